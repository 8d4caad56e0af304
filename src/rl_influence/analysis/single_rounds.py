"""Analyses of single rounds, run by run, and their tables over all runs of a study.

Which analyses there should be comes from the configuration. One that is missing, damaged, or of another configuration
or version is named with its reason and contributes nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rl_influence.config import Analysis, Config
from rl_influence.runs.files import sha256, write_atomic
from rl_influence.runs.provenance import code_fingerprint, package_versions, processor, threads
from rl_influence.runs.provenance import fingerprint as run_fingerprint
from rl_influence.runs.store import Found, Status

from .claims import level_of
from .curves import KEY, VERSIONS, environments_of, made_by, methods_of, provenance, runs_behind
from .groups import with_expected
from .registry import ANALYSES, ANALYSIS_OF, LISTS, MANIFEST, find_analysis, fingerprint, load
from .statistics import level
from .tables import write_table


def run_analysis(
    analysis: Analysis,
    output_dir: str | Path,
    *,
    snapshot_dir: str | Path,
    snapshot_rounds: Iterable[int] = (),
    trained: str | Path | None = None,
    log: Callable[[str], None] = print,
) -> None:
    """Writes an analysis' tables (CSV) and its `manifest.json` to `output_dir`, on one thread.

    Args:
        snapshot_dir: of the run; what it lacks is made first, by training again without evaluation.
        snapshot_rounds: rounds that other analyses of the run need, so that it is trained again once for all of them.
        trained: the run's own folder; that its final weights differ from those of the snapshots is logged.
    """
    from rl_influence.runs import snapshots  # loading a study's tables needs neither this nor torch
    from rl_influence.runs.training import one_thread, take_snapshots

    spec, snapshot_dir, output_dir = analysis.run.spec, Path(snapshot_dir), Path(output_dir)
    snapshot_dir.mkdir(parents=True, exist_ok=True)
    with open(snapshot_dir / "lock", "w") as lock:  # another process that holds it is waited for
        fcntl.flock(lock, fcntl.LOCK_EX)
        take_snapshots(spec, {*analysis.rounds, *snapshot_rounds}, snapshot_dir, log=log)
    weights = hashlib.sha256(snapshots.load_final(snapshot_dir).parameters.tobytes()).hexdigest()
    if trained and json.loads((Path(trained) / MANIFEST).read_text())["weights_sha256"] != weights:
        log("trained again here, the run ends with other weights (another processor, or other packages)")
    with one_thread():
        tables, used = load(analysis.name).analyse(spec, snapshot_dir, analysis.rounds), threads()
    assert set(tables) == set(ANALYSES[analysis.name].tables), f"{analysis.name} makes {sorted(tables)}"
    for name, table in tables.items():
        write_table(table, output_dir / f"{name}.csv")
    record = {
        "fingerprint": fingerprint(analysis),
        "analysis": analysis.name,
        "version": ANALYSES[analysis.name].version,
        "rounds": analysis.rounds,
        "run_fingerprint": run_fingerprint(spec),
        "spec": spec.model_dump(mode="json"),
        "weights_sha256": weights,
        "files_sha256": {f"{name}.csv": sha256(output_dir / f"{name}.csv") for name in tables},
        "code_fingerprint": code_fingerprint(),
        "packages": package_versions(),
        "threads": used,
        "host": {"system": platform.platform(), "processor": processor(), "cores": os.cpu_count()},
    }
    write_atomic(output_dir / MANIFEST, (json.dumps(record, indent=1) + "\n").encode())
    log(f"{analysis.name} of {len(analysis.rounds)} rounds: {', '.join(tables)}")


@dataclass(frozen=True)
class StudyAnalyses:
    """All analyses of a study."""

    tables: dict[str, pd.DataFrame]  # over all runs, in the study's order; the first columns are `KEY`
    missing: tuple[Found, ...]  # what there is of the expected analyses that are in no table


def load_analyses(config: Config, root: str | Path = ".") -> StudyAnalyses:
    """All analyses that `config` expects below `root` / results, their summaries (where n, the seeds behind a row,
    stands beside expected), and the tables `analyses` and `missing_analyses`."""
    orders = list(ANALYSES), environments_of(config), methods_of(config)

    def place(analysis: Analysis) -> tuple:
        names = analysis.name, analysis.run.environment, analysis.run.method
        return *(order.index(name) for order, name in zip(orders, names, strict=True)), analysis.run.seed

    asked = dict.fromkeys(analysis.name for analysis in config.analyses)
    parts = {table: [] for name in asked for table in ANALYSES[name].tables}
    rows, missing = [], []
    for analysis in sorted(config.analyses, key=place):
        run, one = analysis.run, find_analysis(config.study, analysis, root)
        key = {"environment": run.environment, "method": run.method, "seed": run.seed}
        row = {"analysis": analysis.name, **key, "rounds": len(analysis.rounds), "fingerprint": fingerprint(analysis)}
        row |= dict.fromkeys(("reason", "code", *VERSIONS), "")
        if one.status is Status.WHOLE:
            for name in ANALYSES[analysis.name].tables:
                path = Path(root) / one.folder / f"{name}.csv"
                table = pd.read_csv(path, keep_default_na=False, na_values=[""])
                parts[name].append(pd.concat([pd.DataFrame(key, index=table.index), table], axis=1))
            row |= made_by(one.result)
        else:
            row["reason"] = one.reason
            missing.append(one)
        rows.append(row)
    found = {}
    for name, frames in parts.items():
        filled = [frame for frame in frames if len(frame)]  # an empty one would turn numbers into objects
        found[name] = pd.concat(filled or frames, ignore_index=True) if frames else pd.DataFrame(columns=KEY)
    for name in asked:
        own = {table: found[table] for table in ANALYSES[name].tables}
        seeds = Counter((a.run.environment, a.run.method) for a in config.analyses if a.name == name)
        for summary in ANALYSES[name].summaries:
            found[summary] = pd.DataFrame(columns=KEY[:2])
            if any(parts[table] for table in own):
                with level(level_of(config)):
                    found[summary] = with_expected(load(name).SUMMARIES[summary](own), seeds)
    listed = pd.DataFrame(rows)
    found |= {LISTS[0]: listed, LISTS[1]: listed.loc[listed["reason"] != "", ["analysis", *KEY, "reason"]]}
    return StudyAnalyses(found, tuple(missing))


def source(tables: Iterable[str], folder: str | Path, study: str) -> str:
    """What a figure or printed table of these tables says of the runs and analyses behind it; `folder` holds the
    study's tables `runs` and `analyses` (the latter is read if it is needed)."""
    text = runs_behind(pd.read_csv(Path(folder) / "runs.csv"), study)
    names = list(dict.fromkeys(ANALYSIS_OF[table] for table in tables if table in ANALYSIS_OF))
    if not names:
        return text
    listed = pd.read_csv(Path(folder) / f"{LISTS[0]}.csv")
    for name in names:
        there, expected, digest = provenance(listed[listed["analysis"] == name])
        text += f"; {name} of {there} of {expected} runs, digest of its fingerprints {digest}"
    return f"{text}; see results/{study}/tables/{LISTS[0]}.csv"
