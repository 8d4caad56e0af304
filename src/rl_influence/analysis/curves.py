"""A study's learning curves from its runs' folders: checked one by one, gathered in one tidy table.

Which runs there should be comes from the configuration. A run that is missing, damaged, short, or another
configuration's is named with its reason and contributes nothing.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rl_influence.config import Config, ConfigError, Run, RunSpec, SelectionConfig
from rl_influence.runs.provenance import RESULTS_VERSION, fingerprint
from rl_influence.runs.store import CURVE_COLUMNS, TIMING_COLUMNS, ResultError, check_run, run_directory

KEY = ["environment", "method", "seed"]
VERSIONS = ("python", "numpy", "torch", "gymnasium")
COUNTS = ("round", "env_steps", "records_kept", "updates")


@dataclass(frozen=True)
class StudyCurves:
    """Everything that tables are made of.

    Attributes:
        config: the study's configuration.
        curves: one row per run and round: environment, method (categories in the study's order), seed, then the columns
            of curve.csv and timing.csv; sorted by run and round.
        runs: one row per expected run: environment, method, seed, fingerprint, reason (empty: the run is in `curves`),
            and what its manifest says of code and packages.
        missing: expected runs that are not in `curves`, with the reason.
    """

    config: Config
    curves: pd.DataFrame
    runs: pd.DataFrame
    missing: tuple[tuple[Run, str], ...]


def load_run(directory: str | Path, spec: RunSpec) -> pd.DataFrame:
    """One run's curve and timings by round: the columns of curve.csv, then the seconds of timing.csv.

    Raises:
        ResultError: one line naming the file and what is wrong with it: missing, truncated, wrong columns, rounds that
            do not run from 0 to `spec.rounds`, values out of bounds, another configuration's result, a checksum.
    """
    return pd.DataFrame(_load_run(Path(directory), spec)[0])


def load_study(config: Config, root: str | Path = ".") -> StudyCurves:
    """All runs that `config` expects; `root` is the folder that holds `results/`."""
    root = Path(root)
    rows, missing, sizes = [], [], []
    columns = {name: [] for name in (*CURVE_COLUMNS, *TIMING_COLUMNS[1:])}
    for run in config.runs:
        folder = run_directory(config.study, run)
        row = {"environment": run.environment, "method": run.method, "seed": run.seed}
        row |= {"fingerprint": fingerprint(run.spec), **dict.fromkeys(("reason", "code", *VERSIONS), "")}
        try:
            table, manifest = _load_run(root / folder, run.spec)
        except ResultError as error:
            row["reason"] = _reason(str(error), root, folder)
            missing.append((run, row["reason"]))
            sizes.append(0)
        else:
            for name, values in table.items():
                columns[name] += values
            sizes.append(len(values))
            row |= {"code": str(manifest.get("code_fingerprint", ""))[:12]} | _versions(manifest)
        rows.append(row)
    runs = pd.DataFrame(rows)
    runs["environment"] = pd.Categorical(runs["environment"], environments_of(config), ordered=True)
    runs["method"] = pd.Categorical(runs["method"], methods_of(config), ordered=True)
    curves = runs.loc[runs.index.repeat(sizes), KEY].reset_index(drop=True).assign(**columns)
    curves = curves.sort_values([*KEY, "round"], ignore_index=True)
    runs = runs.sort_values(KEY, ignore_index=True)
    return StudyCurves(config, curves, runs, tuple(missing))


def leftover_runs(config: Config, root: str | Path = ".") -> list[str]:
    """Run folders of the study that its grid does not have (other settings or versions); no table reads them."""
    expected = {run_directory(config.study, run) for run in config.runs}
    folders = (path.relative_to(root) for path in Path(root, "results", config.study, "runs").glob("*/*/seed*"))
    return sorted(path.as_posix() for path in folders if path not in expected)


def runs_behind(runs: pd.DataFrame, study: str) -> str:
    """What figures and printed tables say of their runs; `runs` is the table of that name, which lists them all."""
    there = sorted(runs.loc[runs["reason"].isna() | (runs["reason"] == ""), "fingerprint"])
    digest = hashlib.sha256("\n".join(there).encode()).hexdigest()[:16]
    return (
        f"study {study}: {len(there)} of {len(runs)} runs, results version {RESULTS_VERSION}, digest of their "
        f"fingerprints {digest}; see results/{study}/tables/runs.csv"
    )


# Which method is which, from what methods do (an id is an opaque name).


def environments_of(config: Config) -> list[str]:
    """The study's environments, in its order."""
    return list(dict.fromkeys(run.environment for run in config.runs))


def compared_environments(config: Config) -> list[str]:
    """The study's environments without those that it has on less than half as many seeds as another one.

    Pong in the study `paper` is such a one: its one seed shows records, and compares no methods.
    """
    seeds = {e: len({run.seed for run in config.runs if run.environment == e}) for e in environments_of(config)}
    return [environment for environment, number in seeds.items() if 2 * number >= max(seeds.values())]


def methods_of(config: Config, kind: str | None = None) -> list[str]:
    """The study's methods, in the catalogue's order; with `kind`, only those whose selection is of that kind."""
    used = {run.method for run in config.runs}
    return [name for name, m in config.methods.items() if name in used and kind in (None, m.selection.kind)]


def reference_method(config: Config) -> str:
    """Standard PPO: all records, its own updates, the environment's PPO settings."""
    for name in config.methods:
        if config.methods[name].selection.kind == "all" and _plain(config, name):
            return name
    raise ConfigError("methods.yaml has no standard PPO: a method with selection: {kind: all} and nothing else")


def iif_sweep(config: Config) -> dict[str, float]:
    """IIF's methods of one p and with nothing else changed: id -> p in percent, rising."""
    found = {
        name: method.selection.drop_percent
        for name, method in config.methods.items()
        if method.selection.kind == "influence" and _plain(config, name) and method.selection.drop_percent != "chosen"
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))


def chosen_iif(config: Config, environment: str) -> str | None:
    """IIF at the environment's own p: the id that the grid has there, or else one of the catalogue's."""
    numbers = {name for name, p in iif_sweep(config).items() if p == config.environment(environment).drop_percent}
    chosen = {
        name
        for name, method in config.methods.items()
        if method.selection == SelectionConfig(kind="influence", drop_percent="chosen") and _plain(config, name)
    }
    used = {run.method for run in config.runs if run.environment == environment}
    return next((name for name in [*sorted((numbers | chosen) & used), *sorted(numbers), *sorted(chosen)]), None)


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


def _plain(config: Config, name: str) -> bool:
    method = config.methods[name]
    own = method.selection.updates == method.selection.displacement == "own"
    return own and not method.ppo.model_dump(exclude_unset=True)


def _load_run(directory: Path, spec: RunSpec) -> tuple[dict[str, list], dict]:
    """Columns of the run's curve and timings, and its manifest."""
    # the schema first: it says more about a damaged file than the checksum that check_run compares
    curve = _read(directory / "curve.csv", CURVE_COLUMNS, spec)
    timing = _read(directory / "timing.csv", TIMING_COLUMNS, spec)
    _check_curve(directory / "curve.csv", curve, spec)
    for name in TIMING_COLUMNS[1:]:
        for k, seconds in enumerate(timing[name]):
            if not 0 <= seconds < math.inf:
                raise ResultError(f"{directory / 'timing.csv'}: round {k}: {name} is {seconds}, expected seconds >= 0")
    manifest = check_run(directory, spec)
    del timing["round"]
    return curve | timing, manifest


def _read(path: Path, columns: tuple[str, ...], spec: RunSpec) -> dict[str, list]:
    """Columns of a file with exactly these columns and the rounds 0 .. K."""
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise ResultError(f"{path}: missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{path}: cannot be read ({type(error).__name__})") from None
    header, *lines = text.split("\n")
    if header != ",".join(columns):
        raise ResultError(f"{path}: columns are {header[:100]!r}, expected {','.join(columns)!r}")
    if not lines or lines.pop() != "":
        raise ResultError(f"{path}: truncated, its last line has no end")
    rows = []
    for number, line in enumerate(lines, start=2):
        fields = line.split(",")
        if len(fields) != len(columns):
            raise ResultError(f"{path}: line {number} has {len(fields)} fields, expected {len(columns)}")
        try:
            rows.append(
                [
                    int(field) if name in COUNTS else float(field) if field else None
                    for name, field in zip(columns, fields, strict=True)
                ]
            )
        except ValueError:
            raise ResultError(f"{path}: line {number} is not made of numbers: {line[:80]!r}") from None
    rounds = [row[0] for row in rows]
    if rounds != list(range(spec.rounds + 1)):
        lacking = sorted(set(range(spec.rounds + 1)) - set(rounds))
        what = f"round {lacking[0]} is missing" if lacking else "rounds are repeated, unordered or too many"
        raise ResultError(f"{path}: {what}; expected 0 to {spec.rounds}, found {len(rounds)} rows")
    table = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    for name in columns:
        if path.name == "timing.csv" and None in table[name]:
            raise ResultError(f"{path}: round {table[name].index(None)}: {name} is empty")
    return table


def _check_curve(path: Path, curve: dict[str, list], spec: RunSpec) -> None:
    """Values of curve.csv within their bounds; empty returns (rounds that were not evaluated) become nan."""

    def refuse(k: int, name: str, expected: str):
        shown = "empty" if curve[name][k] is None else curve[name][k]
        raise ResultError(f"{path}: round {k}: {name} is {shown}, expected {expected}")

    n, last = spec.ppo.n_steps, spec.rounds
    for k in range(last + 1):
        if curve["env_steps"][k] != k * n:
            refuse(k, "env_steps", str(k * n))
        if not 0 <= curve["records_kept"][k] <= (n if k else 0):
            refuse(k, "records_kept", f"0 to {n}" if k else "0")
        if not 0 <= curve["updates"][k] <= (math.inf if k else 0):
            refuse(k, "updates", ">= 0" if k else "0")
        evaluated = k % spec.evaluation.every == 0 or k == last
        for name in ("test_return", "test_return_se"):
            value = curve[name][k]
            if not evaluated and value is not None:
                refuse(k, name, "nothing, the round is not evaluated")
            if evaluated and (value is None or not math.isfinite(value)):
                refuse(k, name, "a finite number")
            if value is None:
                curve[name][k] = math.nan
        if curve["test_return_se"][k] < 0:
            refuse(k, "test_return_se", ">= 0")


def _reason(error: str, root: Path, folder: Path) -> str:
    """Why a run is missing, without the machine's own paths; names what lies there in its stead."""
    name = folder.name
    if not (root / folder / "manifest.json").exists():  # written last: the folder is there before the run ends
        others = sorted(path.name for path in (root / folder.parent).glob(f"{name.split('-')[0]}-*") if path.is_dir())
        found = f"; only another configuration or version: {', '.join(others)}" if others else ""
        return f"no folder {name}{found}"
    return error.replace(f"{root / folder}/", f"{name}/")


def _versions(manifest: dict) -> dict[str, str]:
    packages = manifest.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    return {name: str(packages.get(name, "")) for name in VERSIONS}
