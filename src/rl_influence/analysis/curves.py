"""A study's learning curves, gathered from its runs in one tidy table.

Which runs there should be comes from the configuration. A run that is missing, damaged, short, or another
configuration's is named with its reason and contributes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rl_influence.config import Config, ConfigError, MethodConfig, SelectionConfig
from rl_influence.runs.columns import CURVE_COLUMNS, DIAGNOSTICS_COLUMNS, PHASES
from rl_influence.runs.provenance import RESULTS_VERSION, fingerprint
from rl_influence.runs.store import Found, Results

KEY = ["environment", "method", "seed"]
VERSIONS = ("python", "numpy", "torch", "gymnasium")


@dataclass(frozen=True)
class StudyCurves:
    """Everything that tables are made of.

    curves has a row per run and round: environment, method (categories in the study's order), seed, then the columns of
    curve.csv; sorted by run and round. runs has a row per expected run: environment, method, seed, fingerprint, reason
    (empty: the run is in `curves`), and what its manifest says of code and packages. diagnostics are those of the runs
    that have some, timings see runs/timings.py.
    """

    config: Config
    curves: pd.DataFrame
    runs: pd.DataFrame
    missing: tuple[Found, ...]  # what there is of the expected runs that are not in `curves`
    diagnostics: pd.DataFrame
    timings: pd.DataFrame


def load_study(config: Config, root: str | Path = ".") -> StudyCurves:
    """All runs that `config` expects; `root` is the folder that holds `results/`."""
    results = Results(root)
    rows, missing, sizes, seen = [], [], [], []
    columns = {name: [] for name in CURVE_COLUMNS}
    for run in config.runs:
        row = {"environment": run.environment, "method": run.method, "seed": run.seed}
        row |= {"fingerprint": fingerprint(run.spec), **dict.fromkeys(("reason", "code", *VERSIONS), "")}
        found = results.find(config.study, run)
        if found.result:
            for name, values in columns.items():
                values += found.result.columns[name]
            rounds = found.result.diagnostics()
            seen += [pd.DataFrame(dict(zip(KEY, row.values(), strict=False)) | rounds)] if rounds else []
            row |= made_by(found.result.manifest)
        else:
            row["reason"] = found.reason
            missing.append(found)
        sizes.append(len(found.result.columns["round"]) if found.result else 0)
        rows.append(row)
    runs = pd.DataFrame(rows)
    runs["environment"] = pd.Categorical(runs["environment"], environments_of(config), ordered=True)
    runs["method"] = pd.Categorical(runs["method"], methods_of(config), ordered=True)
    curves = runs.loc[runs.index.repeat(sizes), KEY].reset_index(drop=True).assign(**columns)
    curves = curves.sort_values([*KEY, "round"], ignore_index=True)
    runs = runs.sort_values(KEY, ignore_index=True)
    observed = pd.concat(seen, ignore_index=True) if seen else pd.DataFrame(columns=[*KEY, *DIAGNOSTICS_COLUMNS])
    path = Path(root) / "results" / config.study / "timings" / "timings.csv"
    untimed = pd.DataFrame(columns=["environment", "method", "repeat", *PHASES])
    timings = pd.read_csv(path) if path.exists() else untimed
    return StudyCurves(config, curves, runs, tuple(missing), observed, timings)


def runs_behind(runs: pd.DataFrame, study: str) -> str:
    """What figures and printed tables say of their runs; `runs` is the table of that name, which lists them all."""
    there, expected, digest = provenance(runs)
    return (
        f"study {study}: {there} of {expected} runs, results version {RESULTS_VERSION}, digest of their "
        f"fingerprints {digest}; see results/{study}/tables/runs.csv"
    )


def provenance(listed: pd.DataFrame) -> tuple[int, int, str]:
    """How many results of a list are there, how many it names, and a digest of the fingerprints of the former."""
    there = sorted(listed.loc[listed["reason"].isna() | (listed["reason"] == ""), "fingerprint"])
    return len(there), len(listed), hashlib.sha256("\n".join(there).encode()).hexdigest()[:16]


def made_by(manifest: dict) -> dict[str, str]:
    """Code and packages that are listed beside a result; empty where its manifest does not say."""
    packages = manifest.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    return {"code": str(manifest.get("code_fingerprint", ""))[:12]} | {n: str(packages.get(n, "")) for n in VERSIONS}


def rows_of(table: pd.DataFrame, key: tuple) -> pd.DataFrame:
    """The rows of an environment, of one with a method, or of both with a seed."""
    for name, value in zip(KEY, key, strict=False):
        table = table[table[name] == value]
    return table


# Which method is which, from what methods do (an id is an opaque name).


def environments_of(config: Config, *, adam: bool = True) -> list[str]:
    """The study's environments, in its order; without `adam` those that repeat no other one with that optimiser."""
    environments = list(dict.fromkeys(run.environment for run in config.runs))
    return environments if adam else [name for name in environments if name not in adam_variants(config)]


def compared_environments(config: Config) -> list[str]:
    """The environments (without Adam's) that are compared over seeds: not those (Pong in the study `paper`, whose one
    seed shows records) that the study has on fewer than three and on less than half as many as another one."""
    seeds = {e: len({run.seed for run in config.runs if run.environment == e}) for e in environments_of(config)}
    return [e for e in environments_of(config, adam=False) if seeds[e] >= 3 or 2 * seeds[e] >= max(seeds.values())]


def methods_of(config: Config, kind: str | None = None) -> list[str]:
    """The study's methods, in the catalogue's order; with `kind`, only those whose selection is of that kind."""
    used = {run.method for run in config.runs}
    return [name for name, m in config.methods.items() if name in used and kind in (None, m.selection.kind)]


def reference_method(config: Config) -> str:
    """Standard PPO: all records, its own updates, the environment's PPO settings."""
    for name, method in config.methods.items():
        if method.selection.kind == "all" and _plain(method):
            return name
    raise ConfigError("methods.yaml has no standard PPO: a method with selection: {kind: all} and nothing else")


def random_methods(config: Config) -> list[str]:
    """Random dropping with nothing else changed."""
    return [name for name in methods_of(config, "random") if _plain(config.methods[name])]


def iif_sweep(config: Config) -> dict[str, float]:
    """IIF's methods of one p and with nothing else changed: id -> p in percent, rising."""
    found = {
        name: method.selection.drop_percent
        for name, method in config.methods.items()
        if method.selection.kind == "influence" and _plain(method) and method.selection.drop_percent != "chosen"
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))


def chosen_iif(config: Config, environment: str) -> str | None:
    """IIF at the environment's own p: the id that the grid has there, or else one of the catalogue's."""
    numbers = {name for name, p in iif_sweep(config).items() if p == config.environment(environment).drop_percent}
    chosen = {
        name
        for name, method in config.methods.items()
        if method.selection == SelectionConfig(kind="influence", drop_percent="chosen") and _plain(method)
    }
    used = {run.method for run in config.runs if run.environment == environment}
    return next((name for name in [*sorted((numbers | chosen) & used), *sorted(numbers), *sorted(chosen)]), None)


def paper_id(config: Config, environment: str, method: str) -> str:
    """The id under which `paper_reported.yaml` has a method: IIF at an environment's own p stands under that p's."""
    if environment not in config.environments or method != chosen_iif(config, environment):
        return method
    p = config.environment(environment).drop_percent
    return next((name for name, percent in iif_sweep(config).items() if percent == p), method)


def adam_variants(config: Config) -> list[str]:
    """Environments of the study that another one repeats with SGD: the runs of appendix B.7."""

    def task(name: str) -> tuple:
        environment = config.environments[name]
        return environment.gym_id, environment.kwargs, environment.wrappers

    sgd = [task(name) for name, environment in config.environments.items() if environment.ppo.optimizer == "sgd"]
    return [
        name
        for name in environments_of(config)
        if config.environments[name].ppo.optimizer == "adam" and task(name) in sgd
    ]


def _plain(method: MethodConfig) -> bool:
    """Whether a method changes nothing but the records that train."""
    own = method.selection.updates == method.selection.displacement == "own"
    return own and not method.ppo.model_dump(exclude_unset=True)
