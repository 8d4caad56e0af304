"""What may happen to a whole study: snakemake is killed, started twice, its disk is full or read-only."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.slow

STUDY = {  # runs long enough to save a state in their midst (every 5 s): at their end a signal may come too late
    "study": "faults",
    "grid": [{"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": 80}],
    "figures": [],
    "tables": ["efficiency"],
}
TARGET = "results/faults/tables/efficiency.csv"  # reports and figures come from tables, and take longer
RESUME = ("-m", "rl_influence", "resume")
ARGUMENTS = (TARGET, "--cores", "2", "--configfile", "config/faults.yaml")


@pytest.fixture(scope="module")
def undisturbed(make_workspace):
    """The study, finished, and the seconds that it took."""
    workspace, start = make_workspace(STUDY), time.monotonic()
    result = workspace.snakemake("--cores", "2", "--", TARGET, study="faults")
    assert result.returncode == 0, result.stdout
    return workspace, time.monotonic() - start


def outputs(workspace) -> dict[str, bytes]:
    """All that has to be the same bytes: curves and tables."""
    files = workspace.files("results/faults")
    return {name: content for name, content in files.items() if re.search(r"curve\.csv$|^tables/", name)}


def finish(workspace, *command: str) -> str:
    """The output of a command that has to succeed."""
    process = workspace.start(*command, *ARGUMENTS)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def test_snakemake_killed_again_and_again_ends_with_the_same_bytes(undisturbed, make_workspace):
    reference, seconds = undisturbed
    workspace, rng = make_workspace(STUDY), np.random.default_rng(0)
    command = ("-m", "snakemake")
    for _ in range(3):
        process = workspace.start(*command, *ARGUMENTS)
        try:
            process.wait(timeout=rng.uniform(0.3, 0.8) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        command = RESUME
    finish(workspace, *command)
    assert outputs(workspace) == outputs(reference) != {}
    assert "Nothing to be done" in finish(workspace, "-m", "snakemake")


def test_snakemake_that_is_told_to_stop_needs_the_same_command_only(undisturbed, make_workspace):
    reference, seconds = undisturbed
    workspace = make_workspace(STUDY)
    process = workspace.start("-m", "snakemake", *ARGUMENTS)
    end = time.monotonic() + 10 * seconds
    while not list(workspace.path.rglob("checkpoints/**/*.npz")) and time.monotonic() < end:
        time.sleep(0.05)
    for member in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        member.send_signal(signal.SIGINT)  # Ctrl-C goes to all of a terminal's processes
    process.communicate(timeout=120)
    assert process.returncode != 0
    finish(workspace, "-m", "snakemake")
    assert outputs(workspace) == outputs(reference)


def test_a_second_pipeline_in_the_folder_is_refused_and_changes_nothing(undisturbed, make_workspace):
    reference, _ = undisturbed
    workspace = make_workspace(STUDY)
    first = workspace.start("-m", "snakemake", *ARGUMENTS)
    while not list(workspace.path.rglob(".snakemake/locks/*")):
        assert first.poll() is None
        time.sleep(0.02)
    second = workspace.snakemake("--cores", "2", "--", TARGET, study="faults")
    third = workspace.start(*RESUME, *ARGUMENTS)
    refusal, _ = third.communicate()
    output, _ = first.communicate(timeout=600)
    assert second.returncode == 1 and "cannot be locked" in second.stdout and "Traceback" not in second.stdout
    assert third.returncode == 1 and "snakemake is alive in this folder" in refusal and refusal.count("\n") == 1
    assert first.returncode == 0, output
    assert outputs(workspace) == outputs(reference)


@pytest.mark.parametrize(
    ("broken", "mended", "message"),
    [("size=24k", "size=64m", "No space left on device"), ("ro", "rw", "Read-only file system")],
)
def test_a_disk_that_is_full_or_read_only(broken, mended, message, undisturbed, make_workspace):
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    reference, _ = undisturbed
    workspace = make_workspace(STUDY)
    results = workspace.path / "results"
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", broken, "none", results], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr}")
    try:
        result = workspace.snakemake("--cores", "2", "--", TARGET, study="faults")
        assert result.returncode == 1 and message in result.stdout, result.stdout
        subprocess.run(["mount", "-o", f"remount,{mended}", results], check=True)
        finish(workspace, "-m", "snakemake")
        assert outputs(workspace) == outputs(reference)
    finally:
        subprocess.run(["umount", results], check=True)
