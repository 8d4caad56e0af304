"""Runs that are killed, meet a full or read-only disk, a second process or a clock that jumps, and are started again.

A run is the command line's (`rl-influence run`), in a process of its own that a server forks. The server has imported
this module, and so what a run needs: starting one takes milliseconds, and most kills meet a run at work.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

import envpool  # noqa: F401  (for the server)
import numpy as np
import scipy.sparse  # noqa: F401  (for the server)

from benchmarks.faults import METHODS, Tally, small_study
from rl_influence import cli
from rl_influence.config import load_run_spec
from rl_influence.runs import training
from rl_influence.runs.provenance import code_fingerprint
from rl_influence.runs.store import check_run

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([__name__])
code_fingerprint()  # computed once, in the server


def program(arguments: list[str], said: Path, clock_seed: int | None) -> None:
    """`rl-influence` with a state after every round; its stderr goes to the file `said`.

    With `clock_seed`, every look at the clock shows another time.
    """
    training.CHECKPOINT_EVERY_S = -1.0
    if clock_seed is not None:
        rng = np.random.default_rng(clock_seed)
        training.now = lambda: f"{rng.integers(1970, 2100)}-01-01T00:00:00+00:00"
        time.monotonic = time.time = lambda: float(rng.uniform(-1e9, 1e9))
    with open(said, "w") as errors, open(os.devnull, "w") as nowhere:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(nowhere):
            try:
                cli.main(arguments)
            except Exception:
                traceback.print_exc()
                sys.exit(70)


class Run:
    """One run of the small study in a folder of its own."""

    def __init__(self, study: Path, environment: str, method: str, folder: Path, said: Path):
        self.study, self.environment, self.method, self.folder, self.said = study, environment, method, folder, said
        self.unclear = 0

    def process(self, clock_seed: int | None = None) -> multiprocessing.Process:
        self.said.write_text("")
        options = {"config": self.study, "environment": self.environment, "method": self.method, "seed": 0}
        arguments = ["run", *(f"--{key}={value}" for key, value in options.items()), f"--output={self.folder}"]
        process = SERVER.Process(target=program, args=(arguments, self.said, clock_seed))
        process.start()
        return process

    def ended(self, process: multiprocessing.Process) -> int:
        """The exit code, as of `Popen.returncode`; whoever was not killed has said why in one line."""
        process.join()
        code, line = process.exitcode, self.said.read_text()
        one_line = line.startswith("rl-influence: ") and line.count("\n") == 1
        self.unclear += not one_line if code > 0 else line != ""
        return code

    def attempt(self, expected: dict[int, str]) -> int:
        """Runs to the end; `expected` are exit codes and a part of what is said then."""
        code = self.ended(self.process())
        line = self.said.read_text()
        if code not in expected or expected[code] not in line:
            raise AssertionError(f"{self.folder}: exit code {code}, expected {expected}: {line}")
        return code

    def killed(
        self, kill: signal.Signals, after_s: float, *, in_write: bool = False, clock_seed: int | None = None
    ) -> bool:
        """Runs until it is killed, with `in_write` when it next writes a file; False if it ended before."""
        process = self.process(clock_seed)
        process.join(after_s)
        while in_write and process.exitcode is None and not self.half_written():
            pass
        if process.exitcode is None:
            os.kill(process.pid, kill)
        code = self.ended(process)
        if code not in (0, cli.STOPPED, -signal.SIGKILL, -signal.SIGTERM):
            raise AssertionError(f"{self.folder}: exit code {code}: {self.said.read_text()}")
        return code != 0

    def outcome(self) -> bytes:
        """All of a finished run that has to be the same bytes: its curve, and the checksum of its weights."""
        spec = load_run_spec(environment=self.environment, method=self.method, seed=0, config=self.study)
        return (self.folder / "curve.csv").read_bytes() + check_run(self.folder, spec)["weights_sha256"].encode()

    def half_written(self) -> bool:
        """Whether a killed writer left something."""
        return any(self.folder.rglob(".*.tmp"))


class Workshop:
    """Runs of the small study in one folder, and the same ones undisturbed, to compare with."""

    def __init__(self, folder: Path):
        self.folder, self.study, self.number = folder, small_study(folder / "config"), 0
        self._undisturbed: dict[tuple[str, str], tuple[bytes, float]] = {}

    def run(self, environment: str, folder: Path | None = None) -> Run:
        """A new run; methods take turns."""
        method, name = METHODS[self.number % len(METHODS)], f"run-{self.number}"
        self.number += 1
        return Run(self.study, environment, method, folder or self.folder / name, self.folder / f"{name}.stderr")

    def undisturbed(self, run: Run) -> tuple[bytes, float]:
        """The outcome of a run to which nothing happens, and the seconds that it takes."""
        key = run.environment, run.method
        if key not in self._undisturbed:
            name = "undisturbed-" + "-".join(key)
            twin = Run(self.study, *key, self.folder / name, self.folder / f"{name}.stderr")
            start = time.perf_counter()
            twin.attempt({0: ""})
            self._undisturbed[key] = twin.outcome(), time.perf_counter() - start
        return self._undisturbed[key]

    def count(self, run: Run, tally: Tally) -> None:
        """Compares a run that has ended."""
        pairs = zip_longest(run.outcome(), self.undisturbed(run)[0])
        tally.wrong += sum(one != two for one, two in pairs)
        tally.unclear += run.unclear
        tally.kinds["runs"] += 1


@contextlib.contextmanager
def workshop() -> Iterator[Workshop]:
    with tempfile.TemporaryDirectory() as folder:
        yield Workshop(Path(folder))


def kill_runs(environment: str, kills: int, seed: int, *, turn_clock: bool = False) -> Tally:
    """Kills runs at random moments and starts them again, until `kills` have hit and every run has ended.

    Both ways of killing take turns: which of random ones hit would be the machine's choice, and it might be one alone.
    """
    rng, tally = np.random.default_rng(seed), Tally()
    with workshop() as shop:
        while tally.faults < kills:
            run = shop.run(environment)
            _, seconds = shop.undisturbed(run)
            while tally.faults < kills:
                kill = (signal.SIGKILL, signal.SIGTERM)[tally.faults % 2]
                clock_seed = int(rng.integers(2**31)) if turn_clock else None
                in_write = bool(rng.integers(3) == 0)
                if not run.killed(kill, rng.uniform(0, seconds), in_write=in_write, clock_seed=clock_seed):
                    break
                tally.faults += 1
                tally.kinds[kill.name] += 1
                tally.kinds["left half a file"] += run.half_written()
                if turn_clock:
                    for path in run.folder.rglob("*"):
                        os.utime(path, (rng.uniform(0, 4e9),) * 2)
            run.attempt({0: ""})
            shop.count(run, tally)
    return tally


def two_at_once(pairs: int, seed: int) -> Tally:
    """Starts pairs of processes on one folder, the second at a random moment of the first."""
    rng, tally = np.random.default_rng(seed), Tally()
    with workshop() as shop:
        for _ in range(pairs):
            run = shop.run("frozenlake")
            _, seconds = shop.undisturbed(run)
            second = Run(run.study, run.environment, run.method, run.folder, run.said.with_suffix(".second"))
            first = run.process()
            time.sleep(rng.uniform(0, seconds))
            refused = second.attempt({0: "", 1: "another live process is training this run"})
            code = run.ended(first)  # it is the one to be refused if the second was faster
            if not (code == 0 or code == 1 and not refused):
                raise AssertionError(f"{run.folder}: exit codes {code} and {refused}: {run.said.read_text()}")
            tally.faults += 1
            tally.kinds["refused"] += refused or code
            tally.unclear += second.unclear
            shop.count(run, tally)
    return tally


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """Mounts a disk of that size; yields a function that changes its options.

    Raises:
        PermissionError: if this process may not mount anything.
    """

    def mount(*arguments: str) -> None:
        done = subprocess.run(["mount", *arguments, folder], capture_output=True, text=True)
        if done.returncode:
            raise PermissionError(" ".join(done.stderr.split()))

    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "none")
    try:
        yield lambda options: mount("-o", f"remount,{options}")
    finally:
        subprocess.run(["umount", folder], check=True)


def full_disks(disks: int, seed: int) -> Tally:
    """Runs on disks that are too small from some moment on, continued when there is room."""
    rng, tally = np.random.default_rng(seed), Tally()
    with workshop() as shop:
        while tally.faults < disks:
            disk = shop.folder / f"disk-{shop.number}"
            run = shop.run("frozenlake", disk / "run")
            with small_disk(disk, 4 * int(rng.integers(4, 60))) as change:
                if run.attempt({0: "", 1: "No space left on device"}):
                    tally.faults += 1
                    tally.wrong += run.half_written()
                    change("size=64m")
                    run.attempt({0: ""})
                shop.count(run, tally)
    return tally


def read_only_disks(disks: int, seed: int) -> Tally:
    """Runs that are killed, and find their disk read-only when they are started again."""
    rng, tally = np.random.default_rng(seed), Tally()
    with workshop() as shop:
        while tally.faults < disks:
            disk = shop.folder / f"disk-{shop.number}"
            run = shop.run("frozenlake", disk / "run")
            _, seconds = shop.undisturbed(run)
            with small_disk(disk, 65536) as change:
                if run.killed(signal.SIGKILL, rng.uniform(0, seconds)):
                    tally.faults += 1
                    change("ro")
                    run.attempt({1: "Read-only file system"})
                    change("rw")
                    run.attempt({0: ""})
                shop.count(run, tally)
    return tally
