"""The workflow through sbatch, on a real Slurm of one node that these tests start: the same bytes as a local run,
whatever is cancelled, restarted or killed."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rl_influence.config import Config
from rl_influence.runs.store import run_directory

pytestmark = pytest.mark.slow

LOCAL_SLURM = Path(__file__).with_name("local_slurm.sh")
ROUNDS = 60  # seconds of training: time to be killed in
STUDY = {
    "study": "slurm",
    "grid": [{"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": ROUNDS}],
    "figures": ["fig06_returns"],
    "tables": ["efficiency"],
}
RESUME = ("-m", "rl_influence", "resume")
SUBMIT = ("--profile", "workflow/profiles/slurm")
SUBMIT += ("--slurm-init-seconds-before-status-checks=5", "--latency-wait=5")


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
    files = workspace.files("results")
    return {name: content for name, content in files.items() if name.endswith("/curve.csv")}


def analyses(workspace) -> dict[str, bytes]:
    """Tables of the analyses; their manifests hold times."""
    files = workspace.files("results/smoke/analyses")
    return {name: content for name, content in files.items() if name.endswith(".csv")}


def figures(workspace) -> dict[str, bytes]:
    """Figures and printed tables, without the verdicts, of which one is about times."""
    files = workspace.files("paper_figures/smoke")
    return {name: content for name, content in files.items() if not name.startswith("fig_claims")}


def manifests(workspace) -> dict[str, dict]:
    """Of the runs."""
    files = workspace.files("results")
    runs = {name: content for name, content in files.items() if re.search("/runs/.*/manifest.json", name)}
    return {name: json.loads(content) for name, content in runs.items()}


def differing(one, two) -> list[str]:
    """Runs of `one` whose curves or weights are not those of `two`."""
    ours, theirs = curves(one), curves(two)
    found = [name for name, content in ours.items() if content != theirs[name]]
    ours, theirs = manifests(one), manifests(two)
    return found + [name for name in ours if ours[name]["weights_sha256"] != theirs[name]["weights_sha256"]]


def jobs(workspace, *options: str) -> list[dict[str, str]]:
    """Slurm's jobs of a folder, oldest first; ended ones too, unless `options` say otherwise."""
    fields = {"id": "%A", "state": "%T", "cpus": "%C", "memory": "%m", "time": "%l", "comment": "%k", "folder": "%Z"}
    command = ["squeue", "--noheader", *(options or ["--states=all"]), f"--format={'|'.join(fields.values())}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
    return sorted((job for job in found if job["folder"] == str(workspace.path)), key=lambda job: int(job["id"]))


def rounds_trained(workspace) -> int:
    """Of the only run, by its log."""
    logs = list(workspace.path.glob("logs/slurm/train/*/*/*.log"))
    return sum(line.startswith("round ") for log in logs for line in log.read_text().splitlines())


def wait(condition, what: str, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.1)


def ended(process: subprocess.Popen) -> str:
    """The output of a process that has to succeed."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def submit(workspace, *arguments: str, study: str = "slurm") -> subprocess.Popen:
    return workspace.start("-m", "snakemake", "--configfile", f"config/{study}.yaml", *SUBMIT, *arguments)


@pytest.fixture(scope="module")
def one_run(local) -> str:
    """A file of the study that takes one run."""
    config = Config(local.path / "config/slurm.yaml")
    return (run_directory(config.study, config.runs[0]) / "curve.csv").as_posix()


def test_the_smoke_study_through_sbatch_equals_the_local_one(slurm, finished, workspace):
    output = ended(submit(workspace, study="smoke"))
    assert len(manifests(workspace)) == len(Config(workspace.path / "config/smoke.yaml").runs)
    assert differing(workspace, finished) == []
    assert workspace.files("results/smoke/tables") == finished.files("results/smoke/tables") != {}, output
    assert figures(workspace) == figures(finished) != {}
    assert analyses(workspace) == analyses(finished) != {}
    allocations = jobs(workspace)
    # the runs of an environment share one each, all analyses one, and all that draws one
    assert [job["state"] for job in allocations] == ["COMPLETED"] * 4
    assert {job["cpus"] for job in allocations} == {"1"}


def test_a_restart_of_the_node_and_a_cancelled_job(local, remote, one_run, slurm):
    process = submit(remote, one_run)
    try:
        wait(lambda: rounds_trained(remote) > 2, "training has started")
        [job] = jobs(remote, "--states=running")
        local_slurm("restart", slurm)
        before = rounds_trained(remote)
        wait(lambda: rounds_trained(remote) > before, "training goes on")
        assert [job["id"] for job in jobs(remote, "--states=running")] == [job["id"]]
        subprocess.run(["scancel", job["id"]], check=True)
        output = ended(process)
    finally:
        process.kill()
    logs = "".join(path.read_text() for path in (remote.path / ".snakemake/log").glob("*.log"))
    assert "Trying to restart job" in output + logs  # the terminal has a line a run only
    [manifest] = manifests(remote).values()
    assert manifest["resumed"] == 1 and differing(remote, local) == []
    first, second = jobs(remote)
    assert first["state"] == "CANCELLED" and second["state"] == "COMPLETED"
    assert first["memory"] != second["memory"] and first["time"] != second["time"]  # both grow


def test_snakemake_itself_is_killed(local, remote, one_run):
    process = submit(remote, one_run)
    try:
        wait(lambda: rounds_trained(remote) > 2, "training has started")
    finally:
        process.kill()
        process.wait()
    [orphan] = jobs(remote, "--states=running")
    output = ended(remote.start(*RESUME, one_run, "--configfile", "config/slurm.yaml", *SUBMIT))
    assert f"cancelling 1 jobs: {orphan['id']}" in output
    [manifest] = manifests(remote).values()
    assert manifest["resumed"] == 1 and differing(remote, local) == []
    assert [job["state"] for job in jobs(remote)] == ["CANCELLED", "COMPLETED"]
