"""`python -m rl_influence.rlhf`: prepare detectors and models, train runs, draw results."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

from rl_influence.config import ConfigError
from rl_influence.ppo.records import TrainingError
from rl_influence.rlhf.settings import RunSpec, Study, load_study, locate, run_directory
from rl_influence.rlhf.store import Stopped, is_whole
from rl_influence.runs.files import write_atomic
from rl_influence.runs.store import ResultError


def main(arguments: list[str] | None = None) -> None:
    """Entry point. What a user can mend is one line on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m rl_influence.rlhf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="detectors and start models")
    prepare.add_argument("what", choices=("detectors", "fast-model", "study-model"))
    prepare.add_argument("--corpus", type=Path, help="of fast-model: folder of JSON lists of sentences")
    prepare.add_argument("--output", type=Path, help="folder")
    prepare.set_defaults(function=_prepare)
    run = commands.add_parser("run", help="train one run")
    run.add_argument("--method", required=True)
    run.add_argument("--seed", required=True, type=int)
    run.add_argument("--output", type=Path, help="default: its folder in results/")
    run.set_defaults(function=_run)
    study = commands.add_parser("study", help="train the runs of a study that are missing, one after another")
    study.set_defaults(function=_study)
    removals = commands.add_parser(
        "faithfulness", help="leave halves of a round out: do its scores predict what happens?"
    )
    removals.add_argument("--seed", required=True, type=int)
    removals.add_argument("--round", required=True, type=int, help="one of the study's faithfulness.rounds")
    removals.set_defaults(function=_faithfulness)
    draw = commands.add_parser("draw", help="tables and figures of the runs that are there; needs no torch")
    draw.set_defaults(function=_draw)
    for command in (run, study, removals, draw):
        command.add_argument("--config", type=Path, required=True, help="config/rlhf_*.yaml")
    report = commands.add_parser("report", help="write the generated blocks of docs/rlhf.md anew")
    report.set_defaults(function=_report)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        options.function(options)
    except Stopped as error:
        _fail(error, 143)
    except (ConfigError, ResultError, TrainingError, OSError) as error:
        _fail(error)
    except KeyboardInterrupt:
        _fail("interrupted; the same command continues after the last saved round", 130)


def _fail(error: Exception | str, code: int = 1) -> None:
    print(f"rl-influence rlhf: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(code)


def _say(line: str) -> None:
    print(line, flush=True)


def _prepare(options: argparse.Namespace) -> None:
    from rl_influence.rlhf import detectors

    if options.what == "detectors":
        detectors.prepare(options.output or detectors.PREPARED)
        return
    if options.output is None:
        raise ConfigError(f"prepare {options.what} needs --output")
    from rl_influence.rlhf import pretrain

    if options.what == "fast-model":
        if options.corpus is None:
            raise ConfigError("prepare fast-model needs --corpus, a folder of JSON lists of sentences")
        pretrain.make_small_model(options.corpus, options.output, log=_say)
    else:
        pretrain.make_study_model(options.output, log=_say)


def _train(study: Study, method: str, seed: int, spec: RunSpec, output: Path | None = None) -> None:
    from rl_influence.rlhf.run import run

    run(spec, output or run_directory(study.study, method, seed, spec), log=_say)


def _run(options: argparse.Namespace) -> None:
    study = load_study(options.config)
    spec = study.run_spec(options.method, options.seed)
    _train(study, options.method, options.seed, spec, options.output)


def _study(options: argparse.Namespace) -> None:
    from rl_influence.runs.progress import duration

    study = load_study(options.config)
    folders = {(m, s): locate(study.study, m, s, spec) for m, s, spec in study.runs()}
    missing = [(m, s, spec) for m, s, spec in study.runs() if not is_whole(folders[m, s], spec)]
    start = time.monotonic()
    for number, (method, seed, spec) in enumerate(missing):
        left = (
            f", about {duration((time.monotonic() - start) / number * (len(missing) - number))} left" if number else ""
        )
        _say(f"{len(folders) - len(missing) + number} of {len(folders)} runs trained{left}; now {method}, seed {seed}")
        _train(study, method, seed, spec)
    _say(f"{study.study}: all {len(folders)} runs trained")


def _faithfulness(options: argparse.Namespace) -> None:
    from rl_influence.rlhf.faithfulness import write

    study = load_study(options.config)
    files = {(seed, number): (path, spec) for path, (seed, number, spec) in study.removals().items()}
    if (options.seed, options.round) not in files:
        there = ", ".join(f"{seed} {number}" for seed, number in files) or "none"
        asked = f"study {study.study}: no faithfulness of seed and round {options.seed} {options.round}"
        raise ConfigError(f"{asked}; there: {there}")
    path, spec = files[options.seed, options.round]
    write(spec, options.round, study.faithfulness, path)
    _say(str(path))


def _draw(options: argparse.Namespace) -> None:
    from rl_influence.rlhf import figures, tables

    study = load_study(options.config)
    _say(f"tables: {tables.write(study)}")
    for path in figures.write(study):
        _say(f"figure: {path}")


def _report(options: argparse.Namespace) -> None:
    from rl_influence.rlhf.report import render

    path = Path("docs/rlhf.md")
    write_atomic(path, render(path.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    main()
