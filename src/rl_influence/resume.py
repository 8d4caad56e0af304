"""Going on after snakemake itself died (killed, out of memory, machine rebooted): one command, in a safe order.

The jobs of a dead snakemake still run, and write where those of a new one would. So: tell them to stop (a run saves its
state then), wait until they are gone, unlock the folder, run again.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import psutil

JOBS = "rl_influence_"  # how the names of Slurm's jobs begin, see workflow/profiles/slurm


class ResumeError(RuntimeError):
    """Why nothing was started, in one line."""


def resume(arguments: Sequence[str]) -> None:
    """Runs snakemake with these arguments, those that the dead one had, in place of this process.

    Raises:
        ResumeError: if a snakemake is alive in the folder, or it could not be unlocked.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--directory", "-d", default=".")
    folder = os.path.abspath(parser.parse_known_args(arguments)[0].directory)
    snakemake = [sys.executable, "-m", "snakemake", *arguments]
    for process in _processes(folder, "(^|/)snakemake$"):
        raise ResumeError(f"snakemake is alive in this folder (process {process.pid}); stop it first, or let it work")
    orphans = list(_processes(folder, r"/\.snakemake/scripts/"))
    if orphans:
        print(f"stopping {len(orphans)} processes: {' '.join(str(process.pid) for process in orphans)}", flush=True)
        for process in orphans:
            process.terminate()
        psutil.wait_procs(orphans)
    if any("slurm" in argument for argument in arguments):
        _cancel(folder)
    if subprocess.run([*snakemake, "--unlock"]).returncode:
        raise ResumeError("the folder could not be unlocked; nothing was started")
    os.execv(sys.executable, snakemake)


def _processes(folder: str, pattern: str) -> Iterator[psutil.Process]:
    """Processes of this machine, outside Slurm's jobs, that work in a folder and have `pattern` in their command."""
    for process in psutil.process_iter():
        try:
            if process.cwd() == folder and any(re.search(pattern, part) for part in process.cmdline()):
                if "SLURM_JOB_ID" not in process.environ():
                    yield process
        except psutil.Error:  # gone by now, or another user's
            pass


def _cancel(folder: str) -> None:
    """Cancels the jobs that a snakemake in the folder submitted to Slurm, and waits until they are gone."""
    try:
        jobs = _slurm_jobs(folder)
        if jobs:
            print(f"cancelling {len(jobs)} jobs: {' '.join(jobs)}", flush=True)
            subprocess.run(["scancel", *jobs], check=True)
        while _slurm_jobs(folder):
            time.sleep(2)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ResumeError(f"{error}; nothing was started") from None


def _slurm_jobs(folder: str) -> list[str]:
    """Slurm's ids of the jobs that a snakemake in the folder submitted."""
    command = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A|%Z|%j"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    jobs = [line.split("|", 2) for line in lines]
    return sorted({number for number, place, name in jobs if place == folder and name.startswith(JOBS)})
