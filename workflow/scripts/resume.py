"""Goes on after snakemake itself died (killed, out of memory, machine rebooted): one command, in a safe order.

    python workflow/scripts/resume.py --profile workflow/profiles/slurm --configfile config/paper.yaml

The jobs of a dead snakemake still run, and write where those of a new one would. So: tell them to stop (a run saves its
state then), wait until they are gone, unlock the folder, run again. Arguments are those that snakemake had.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

HERE = os.getcwd()
SNAKEMAKE = [sys.executable, "-m", "snakemake", *sys.argv[1:]]
PREFIX = "rl_influence_"  # of the names of Slurm jobs, see profiles/slurm


def processes(pattern: str) -> Iterator[psutil.Process]:
    """Processes of this machine, outside Slurm's jobs, that work in this folder and have `pattern` in their command."""
    for process in psutil.process_iter():
        try:
            if process.cwd() == HERE and any(re.search(pattern, part) for part in process.cmdline()):
                if "SLURM_JOB_ID" not in process.environ():
                    yield process
        except psutil.Error:  # gone by now, or another user's
            pass


def slurm_jobs() -> list[str]:
    """Slurm's ids of the jobs that a snakemake in this folder submitted; none if it is not to run on Slurm."""
    if not any("slurm" in argument for argument in sys.argv[1:]):
        return []
    command = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A|%Z|%j"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    jobs = [line.split("|", 2) for line in lines]
    return sorted({number for number, folder, name in jobs if folder == HERE and name.startswith(PREFIX)})


def main() -> None:
    for process in processes("(^|/)snakemake$"):
        sys.exit(f"resume: snakemake is alive in this folder (process {process.pid}); stop it first, or let it work")
    orphans = list(processes(r"/\.snakemake/scripts/"))
    if orphans:
        print(f"stopping {len(orphans)} processes: {' '.join(str(process.pid) for process in orphans)}", flush=True)
        for process in orphans:
            process.terminate()
        psutil.wait_procs(orphans)
    try:
        jobs = slurm_jobs()
        if jobs:
            print(f"cancelling {len(jobs)} jobs: {' '.join(jobs)}", flush=True)
            subprocess.run(["scancel", *jobs], check=True)
        while slurm_jobs():
            time.sleep(2)
    except subprocess.CalledProcessError as error:
        sys.exit(f"resume: {error}; nothing was started")
    if subprocess.run([*SNAKEMAKE, "--unlock"]).returncode:
        sys.exit("resume: the folder could not be unlocked; nothing was started")
    os.execv(sys.executable, SNAKEMAKE)


main()
