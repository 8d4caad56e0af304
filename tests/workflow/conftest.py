"""Calls of snakemake in a folder of their own, as a user makes them."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


class Workspace:
    """A copy of `config/` and `workflow/`, with or without the committed results."""

    def __init__(self, path: Path):
        self.path = path
        for name in ("config", "workflow"):
            shutil.copytree(ROOT / name, path / name, dirs_exist_ok=True)
        for name in ("environment.yml", "environment-rlhf.yml", "docs/deviations.md"):
            (path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, path / name)

    def add_results(self) -> None:
        """The results that git tracks, as a fresh clone has them."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "results", "paper_figures"], cwd=ROOT, capture_output=True, check=True
        ).stdout.decode()
        for name in filter(None, listed.split("\0")):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.path / name)

    def start(self, *command: str, **variables: str) -> subprocess.Popen:
        """Starts a python module or script in the folder; stdout and stderr together."""
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.path,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def snakemake(
        self, *arguments: str, study: str = "smoke", entry: str = "Snakefile", **variables: str
    ) -> subprocess.CompletedProcess:
        """Runs snakemake; `variables` of the environment."""
        command = ("-m", "snakemake", "--snakefile", f"workflow/{entry}", "--configfile", f"config/{study}.yaml")
        with self.start(*command, *arguments, **variables) as process:
            output, _ = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def planned(self, rule: str, *arguments: str, **options) -> int:
        """How many jobs of a rule a dry run plans."""
        result = self.snakemake("--dry-run", *arguments, **options)
        assert result.returncode == 0, result.stdout
        found = re.search(rf"^{rule}\s+(\d+)$", result.stdout, re.MULTILINE)
        return int(found[1]) if found else 0

    def files(self, folder: str) -> dict[str, bytes]:
        """Relative path -> content of every file below a folder."""
        root = self.path / folder
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture(scope="session")
def make_workspace(tmp_path_factory):
    """Makes workspaces, each with a study of its own in `config/<study>.yaml`."""

    def make(study: dict) -> Workspace:
        workspace = Workspace(tmp_path_factory.mktemp(study["study"]))
        (workspace.path / f"config/{study['study']}.yaml").write_text(yaml.safe_dump(study))
        return workspace

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Workspace:
    """The smoke study after one complete run on two cores; one for all tests, which leave it as it is."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "finished"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output = folder.with_suffix(".txt")
        workspace = Workspace(folder)
        if not output.exists():
            result = workspace.snakemake("--cores", "2")
            assert result.returncode == 0, result.stdout
            output.write_text(result.stdout)
    workspace.output = output.read_text()
    return workspace
