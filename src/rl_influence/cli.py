"""`rl-influence`: one run without Snakemake, results of several machines, and what a study can be made of."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np

from rl_influence import __version__
from rl_influence.config import ConfigError
from rl_influence.runs.store import ResultError

CONFIG = Path("config/config.yaml")
LISTS = ("environments", "methods", "figures", "studies")
STOPPED, INTERRUPTED = 143, 130  # 128 + SIGTERM or SIGINT, as a shell reports them


def main(arguments: list[str] | None = None) -> None:
    """Entry point. What a user can mend is one line on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):  # one that has no ± says ? instead of failing
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    options = parser().parse_args(arguments)
    try:
        if not getattr(options, "config", Path("x")).parent.is_dir():
            hint = "work in the clone, or name with --config a study's file that lies beside methods.yaml"
            raise ConfigError(f"{options.config}: no such file; {hint}")
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"rl-influence: {message}", file=sys.stderr, flush=True)
            options.function(options)
            sys.stdout.flush()
    except BrokenPipeError:  # of `rl-influence list | head`: whoever reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConfigError, ResultError, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        fail("interrupted; the same command continues after the last saved round", INTERRUPTED)


def parser() -> argparse.ArgumentParser:
    """The commands and their options; what is parsed has `function`, to be called with it."""
    parser = argparse.ArgumentParser(prog="rl-influence", description=__doc__)
    parser.add_argument("--version", action="version", version=f"rl-influence {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands)
    _add_snapshots(commands)
    _add_studies(commands)
    return parser


def _add(commands, name: str, function: Callable, about: str, *, config: str = "") -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=about)
    if config:
        command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help=f"{config}; default: {CONFIG}")
    command.set_defaults(function=function)
    return command


def _add_run(commands) -> None:
    run = _add(commands, "run", _run, "train one run and write its curve", config="a study's file")
    run.add_argument("--environment", required=True, help="id of a file in config/environments/")
    run.add_argument("--method", required=True, help="id in config/methods.yaml")
    run.add_argument("--seed", required=True, help="whole number of at least 0")
    run.add_argument("--output", type=Path, required=True, help="folder for the run's files")
    run.add_argument(
        "--snapshot-rounds", default="", metavar="K,K,...", help="rounds to keep for `score`, in OUTPUT/snapshots"
    )
    show = _add(commands, "show", _show, "draw a finished run: its curve, and what every round did to the policy")
    show.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    show.add_argument("--output", type=Path, help="PNG file; default: RUN/run.png")


def _add_snapshots(commands) -> None:
    about = "influence of one round's records; needs a run with --snapshot-rounds"
    score = _add(commands, "score", _score, about)
    evaluate = _add(commands, "evaluate", _evaluate, "test return of a snapshot's policy")
    for command in (score, evaluate):
        command.add_argument("--run", type=Path, required=True, help="folder of the run, or of its snapshots")
    score.add_argument("--round", type=int, required=True, help="a round with a snapshot; 0: the untrained policy's")
    score.add_argument("--target", choices=("return", "action"), default="return", help="default: %(default)s")
    score.add_argument("--observation", metavar="JSON", help="of target action: as the environment gives it")
    score.add_argument("--action", metavar="JSON", help="of target action: an integer, or a list of numbers")
    score.add_argument(
        "--advantages",
        choices=("raw", "normalised"),
        default="raw",
        help="of the records; normalised: per mini-batch, as IIF scores them (--full normalises as the updates did)",
    )
    score.add_argument("--backend", choices=("jvp", "ghost", "per_record"), help="default: the fastest")
    score.add_argument("--full", action="store_true", help="over all updates of the round, not only at its start")
    score.add_argument("--show", type=int, default=10, metavar="N", help="records to print of either end")
    score.add_argument("--output", type=Path, help="parquet file; default: beside the snapshot")
    evaluate.add_argument("--round", required=True, help="a round with a snapshot, or final")
    evaluate.add_argument("--kind", choices=("exact", "batched", "episodes"), help="default: the run's")
    evaluate.add_argument("--episodes", type=int, help="default: the run's")


def _add_studies(commands) -> None:
    about = "say what a study's results hold: whole, missing and damaged runs"
    _add(commands, "check", _check, about, config="the study's file")
    about = "add a study's runs from the results of other machines"
    merge = _add(commands, "merge", _merge, about, config="the study's file")
    merge.add_argument("sources", type=Path, nargs="+", metavar="FOLDER", help="holds results/, as this folder does")
    about = "environments, methods, figures and studies that there are"
    listed = _add(commands, "list", _list, about, config="a study's file; its folder is the catalogue")
    listed.add_argument("kind", nargs="?", choices=LISTS, help="only these")
    about = "write an environment, a method or a figure that works as it stands, to be changed"
    new = _add(commands, "new", _new, about, config="a study's file; its folder is the catalogue")
    new.add_argument("kind", choices=("environment", "method", "figure"))
    new.add_argument("name", help="its id")
    resume = commands.add_parser(
        "resume",
        help="go on after snakemake itself was killed: stop its jobs, unlock the folder, start it again",
        usage="rl-influence resume ARGUMENT ...",
        prefix_chars="\0",  # all that follows is snakemake's
        add_help=False,
    )
    resume.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="those that snakemake had")
    resume.set_defaults(function=_resume)


def fail(error: Exception | str, code: int = 1) -> NoReturn:
    """Ends the program with one line."""
    print(f"rl-influence: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(code)


def _run(options: argparse.Namespace) -> None:
    from rl_influence.config import EXACT_HEURISTICS, check_packages, load_run_spec

    spec = load_run_spec(
        environment=options.environment, method=options.method, seed=options.seed, config=options.config
    )
    rounds = [_whole_number("--snapshot-rounds", k) for k in options.snapshot_rounds.split(",") if k]
    check_packages(spec.environment)
    from rl_influence.ppo import TrainingError
    from rl_influence.runs import training  # after the checks: a typing error should not wait for torch

    if not (options.output / "manifest.json").exists():  # else there may be nothing left to do
        from rl_influence.runs.check import check_environment

        check_environment(spec.environment, true_advantages=spec.selection.kind in EXACT_HEURISTICS)
    try:
        training.run(spec, options.output, snapshot_rounds=rounds, log=lambda line: print(line, flush=True))
    except TrainingError as error:
        fail(error)
    except training.Stopped as error:
        fail(error, STOPPED)


def _score(options: argparse.Namespace) -> None:
    from rl_influence.attribution import FAction, FReturn, ScoringError
    from rl_influence.runs import snapshots
    from rl_influence.runs.files import write_atomic

    if {option is not None for option in (options.observation, options.action)} != {options.target == "action"}:
        raise ConfigError("--observation and --action belong to --target action, which needs both")
    if options.full and options.advantages == "normalised":
        raise ConfigError("--advantages normalised does not go with --full, which normalises as the updates did")
    snapshot = snapshots.load(options.run, options.round)
    table = snapshot.table()
    table["kept"] = False
    table.loc[snapshot.selection.kept, "kept"] = True
    try:
        target = FReturn(snapshot.records)
        if options.target == "action":
            target = FAction(
                _json_array("--observation", options.observation),
                _json_array("--action", options.action),
                observation_space=snapshot.observation_space,
                action_space=snapshot.action_space,
            )
        if options.full:
            table["influence"] = snapshot.tracin(target, backend=options.backend)
        else:
            advantages = snapshot.normalized_advantages() if options.advantages == "normalised" else None
            table["influence"] = snapshot.influence_on(target, advantages=advantages, backend=options.backend)
    except ScoringError as error:
        fail(error)
    name = f"round_{options.round}-{options.target}{'-full' if options.full else ''}.parquet"
    path = options.output or snapshots.folder(options.run) / name
    try:
        write_atomic(path, table.to_parquet(index=False))
    except ImportError:
        raise ConfigError("tables of scores need the package pyarrow: in the clone, pip install '.[parquet]'") from None
    print(_extremes(table, options.show))
    print(f"\n{len(table)} records: {path}")


def _extremes(table, number: int) -> str:
    """The records of most positive and most negative influence, as text."""
    columns = ["record", "episode", "step", "action", "reward", "advantage", "value", "kept", "influence"]
    short = "observation" in table and np.size(table["observation"].iloc[0]) <= 8
    columns[3:3] = ["observation"] if short else []
    ranked = table.sort_values("influence", ascending=False, kind="stable")[columns]
    number = max(0, min(number, len(table) // 2))
    parts = (("most helpful", ranked.head(number)), ("most harmful", ranked.tail(number)[::-1]))
    return "\n\n".join(
        f"{title} records\n{part.to_string(index=False, float_format='{:.4g}'.format)}" for title, part in parts
    )


def _evaluate(options: argparse.Namespace) -> None:
    from rl_influence import seeding
    from rl_influence.config import EvaluationConfig, on_installed_engines, parse
    from rl_influence.evaluation.returns import evaluate
    from rl_influence.runs import snapshots

    k = options.round if options.round == snapshots.FINAL else _whole_number("--round", options.round)
    saved = snapshots.load_learner(options.run, k)
    changes = {key: value for key in ("kind", "episodes") if (value := getattr(options, key)) is not None}
    settings = parse(EvaluationConfig, saved.spec.evaluation.model_dump() | changes, "evaluate")
    seed = seeding.integer(seeding.seed_sequence(saved.spec.seed, "evaluation", saved.round))  # as in training
    result = evaluate(saved.policy(), on_installed_engines(saved.spec.environment), settings, seed)
    how = f"± {result.se:.2g}, {result.episodes} episodes" if result.episodes else "exact"
    print(f"after {saved.round} rounds: test return {result.mean:.6g} ({how})")


def _show(options: argparse.Namespace) -> None:
    from rl_influence.runs.show import show

    print(show(options.run, options.output))


def _check(options: argparse.Namespace) -> None:
    from rl_influence.config import Config
    from rl_influence.runs.merge import check

    config = Config(options.config)
    found = check(config)
    for title in ("missing", "damaged", "leftover"):
        for line in getattr(found, title):
            print(f"{title}: {line}")
    counts = ", ".join(f"{len(getattr(found, title))} {title}" for title in ("missing", "damaged", "leftover"))
    print(f"study {config.study}: {found.whole} of {len(config.runs)} runs are whole, {counts}")
    if found.damaged:
        fail(f"{len(found.damaged)} damaged runs; remove their folders to train them anew")


def _merge(options: argparse.Namespace) -> None:
    from rl_influence.config import Config
    from rl_influence.runs.merge import merge

    config, refused = Config(options.config), 0
    for source in options.sources:
        merged = merge(config, source)
        for title in ("added", "conflicts", "damaged"):
            for line in getattr(merged, title):
                print(f"{title.removesuffix('s')}: {line}")
        print(f"{source}: {len(merged.added)} runs added, {merged.same} were here already")
        refused += len(merged.conflicts) + len(merged.damaged)
    if refused:
        fail(f"{refused} runs were not taken: conflicts (ours are kept) and damaged ones, see above")


def _resume(options: argparse.Namespace) -> None:
    from rl_influence.resume import ResumeError, resume

    try:
        resume(options.arguments)
    except ResumeError as error:
        fail(error)


def _list(options: argparse.Namespace) -> None:
    from rl_influence.config import load_environments, load_methods

    folder = options.config.parent
    found: dict[str, Callable[[], dict[str, str]]] = {
        "environments": lambda: {
            name: f"{e.label}; {e.rounds} rounds, p = {e.drop_percent:g} %, network {e.network}"
            for name, e in load_environments(folder / "environments").items()
        },
        "methods": lambda: {name: method.label for name, method in load_methods(folder / "methods.yaml").items()},
        "figures": _figures,
        "studies": lambda: _studies(folder),
    }
    for kind in [options.kind] if options.kind else LISTS:
        entries = found[kind]()
        width = max(map(len, entries), default=0)
        print(f"{kind}:")
        for name, text in entries.items():
            print(f"  {name:{width}}  {text}".rstrip())


def _figures() -> dict[str, str]:
    from rl_influence.figures import FIGURES

    return {name: textwrap.shorten(figure.caption, 90, placeholder=" ...") for name, figure in FIGURES.items()}


def _studies(folder: Path) -> dict[str, str]:
    """Files of studies -> what they hold; other files of the folder have no grid."""
    from rl_influence.config import StudyConfig, parse, read_yaml

    found = {}
    for path in sorted(folder.glob("*.yaml")):
        data = read_yaml(path)
        if "grid" in data:
            grid = parse(StudyConfig, data, path).grid
            runs = sum(len(block.environments) * len(block.methods) * len(block.seeds) for block in grid)
            environments = dict.fromkeys(name for block in grid for name in block.environments)
            found[path.as_posix()] = f"study {data['study']}: {runs} runs of {', '.join(environments)}"
    return found


def _new(options: argparse.Namespace) -> None:
    from rl_influence.skeletons import new

    print(new(options.kind, options.name, options.config.parent))


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} {text!r} is not a whole number") from None


def _json_array(name: str, text: str) -> np.ndarray:
    try:
        return np.array(json.loads(text))
    except ValueError:
        raise ConfigError(f"{name} {text!r} is not a number or a regular list of numbers in JSON") from None
