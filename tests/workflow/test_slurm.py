"""The workflow through sbatch, on a real Slurm of one node that these tests start: the same bytes as a local run,
whatever is cancelled, restarted or killed."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LOCAL_SLURM = Path(__file__).with_name("local_slurm.sh")
RUNS = 2
ROUNDS = 100  # ten seconds of training or more: time to be killed in
STUDY = {
    "study": "slurm",
    "grid": [{"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": ROUNDS}],
    "figures": ["fig06_returns"],
    "tables": ["efficiency"],
}
QUICK = ("--slurm-init-seconds-before-status-checks=3", "--latency-wait=5")
SUBMIT = ("--profile", "workflow/profiles/slurm", *QUICK)


def local_slurm(action: str, folder: Path) -> None:
    subprocess.run([LOCAL_SLURM, action, folder], check=True, timeout=120)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The folder of a running Slurm."""
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=path)]
    if missing:
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)} (Debian: munge slurmctld slurmd slurm-client)")
    if os.geteuid() != 0:
        pytest.skip("a Slurm for tests can be started by root only")
    folder = tmp_path_factory.mktemp("slurm")
    try:
        local_slurm("up", folder)
        yield folder
    finally:
        local_slurm("down", folder)


@pytest.fixture(scope="module")
def local(slurm, make_workspace):
    """The study, run without Slurm."""
    workspace = make_workspace(STUDY)
    result = workspace.snakemake("--cores", "2", study="slurm")
    assert result.returncode == 0, result.stdout
    return workspace


@pytest.fixture
def remote(slurm, make_workspace):
    return make_workspace(STUDY)


def curves(workspace) -> dict[str, bytes]:
    files = workspace.files("results/slurm/runs")
    return {name: content for name, content in files.items() if name.endswith("curve.csv")}


def manifests(workspace) -> list[dict]:
    paths = workspace.path.glob("results/slurm/runs/*/*/*/manifest.json")
    return [json.loads(path.read_text()) for path in sorted(paths)]


def same_runs(one, two) -> bool:
    weights = [[manifest["weights_sha256"] for manifest in manifests(w)] for w in (one, two)]
    return len(weights[0]) == RUNS and weights[0] == weights[1] and curves(one) == curves(two)


def jobs(workspace, *options: str) -> list[dict[str, str]]:
    """Slurm's jobs of a folder, oldest first; ended ones too, unless `options` say otherwise."""
    fields = {"id": "%A", "state": "%T", "cpus": "%C", "memory": "%m", "time": "%l", "comment": "%k", "folder": "%Z"}
    command = ["squeue", "--noheader", *(options or ["--states=all"]), f"--format={'|'.join(fields.values())}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
    return sorted((job for job in found if job["folder"] == str(workspace.path)), key=lambda job: int(job["id"]))


def rounds_trained(workspace) -> list[int]:
    """By the logs of the runs that have started; the runs of an allocation follow one another."""
    logs = workspace.path.glob("logs/slurm/train/*/*/*.log")
    return [sum(line.startswith("round ") for line in log.read_text().splitlines()) for log in logs]


def midway(workspace):
    """Whether a run is far from both ends."""
    return lambda: any(2 < rounds < ROUNDS / 2 for rounds in rounds_trained(workspace))


def wait(condition, what: str, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.1)


def finished(process: subprocess.Popen) -> str:
    """The output of a process that has to succeed."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def submit(workspace, *arguments: str) -> subprocess.Popen:
    return workspace.start("-m", "snakemake", "--configfile", "config/slurm.yaml", *SUBMIT, *arguments)


def test_a_restart_of_the_node_and_a_cancelled_job(local, remote, slurm):
    process = submit(remote, "--until", "train")
    try:
        wait(midway(remote), "training has started")
        [job] = jobs(remote, "--states=running")
        before = sum(rounds_trained(remote))
        local_slurm("restart", slurm)
        wait(lambda: sum(rounds_trained(remote)) > before, "training has gone on without slurmd")
        wait(midway(remote), "a run to cancel")
        assert [job["id"] for job in jobs(remote, "--states=running")] == [job["id"]]
        subprocess.run(["scancel", job["id"]], check=True)
        output = finished(process)
    finally:
        process.kill()
    assert "Trying to restart job" in output
    assert same_runs(remote, local)
    assert sum(manifest["resumed"] for manifest in manifests(remote)) == 1
    first, second = jobs(remote)
    assert first["state"] == "CANCELLED" and second["state"] == "COMPLETED"
    assert first["memory"] != second["memory"] and first["time"] != second["time"]  # both grow


def test_snakemake_itself_is_killed(local, remote):
    process = submit(remote, "--until", "train")
    try:
        wait(midway(remote), "training has started")
    finally:
        process.kill()
        process.wait()
    orphans = jobs(remote, "--states=running")
    assert len(orphans) == 1
    arguments = ("--configfile", "config/slurm.yaml", *SUBMIT, "--until", "train")
    output = finished(remote.start("workflow/scripts/resume.py", *arguments))
    assert f"cancelling 1 jobs: {orphans[0]['id']}" in output
    assert same_runs(remote, local)
    assert sum(manifest["resumed"] for manifest in manifests(remote)) == 1
    assert [job["state"] for job in jobs(remote)] == ["CANCELLED", "COMPLETED"]
