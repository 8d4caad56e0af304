"""`rl-influence`: one run without Snakemake."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from rl_influence.config import ConfigError
from rl_influence.provenance import ResultError

STOPPED, INTERRUPTED = 143, 130  # 128 + SIGTERM or SIGINT, as a shell reports them


def main(arguments: list[str] | None = None) -> None:
    """Entry point. What a user can mend is one line on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="rl-influence", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train one run and write its curve")
    run.add_argument("--config", type=Path, default="config/config.yaml", help="a study's file (default: %(default)s)")
    run.add_argument("--environment", required=True, help="id of a file in config/environments/")
    run.add_argument("--method", required=True, help="id in config/methods.yaml")
    run.add_argument("--seed", required=True, help="whole number of at least 0")
    run.add_argument("--output", type=Path, required=True, help="folder for curve.csv, timing.csv and manifest.json")
    run.set_defaults(function=_run)
    options = parser.parse_args(arguments)
    try:
        options.function(options)
    except (ConfigError, ResultError, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        fail("interrupted; the same command continues after the last saved round", INTERRUPTED)


def fail(error: Exception | str, code: int = 1) -> NoReturn:
    """Ends the program with one line."""
    print(f"rl-influence: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(code)


def _run(options: argparse.Namespace) -> None:
    from rl_influence.config import load_run_spec

    spec = load_run_spec(
        environment=options.environment, method=options.method, seed=options.seed, config=options.config
    )
    from rl_influence import training  # after the checks: a typing error should not wait for torch

    try:
        training.run(spec, options.output, log=lambda line: print(line, flush=True))
    except training.TrainingError as error:
        fail(error)
    except training.Stopped as error:
        fail(error, STOPPED)
