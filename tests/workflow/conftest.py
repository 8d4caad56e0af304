"""Calls of snakemake in a folder of their own, as a user makes them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Workspace:
    """A copy of `config/` and `workflow/`, with or without the committed results."""

    def __init__(self, path: Path):
        self.path = path
        for name in ("config", "workflow"):
            shutil.copytree(ROOT / name, path / name)
        for name in ("environment.yml", "docs/deviations.md"):
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

    def snakemake(self, *arguments: str, study: str = "smoke", entry: str = "Snakefile") -> subprocess.CompletedProcess:
        """Runs snakemake; stdout and stderr together."""
        command = [sys.executable, "-m", "snakemake", "--snakefile", f"workflow/{entry}"]
        command += ["--configfile", f"config/{study}.yaml", *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=self.path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

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


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workspace:
    """The smoke study after one complete run on two cores."""
    workspace = Workspace(tmp_path_factory.mktemp("finished"))
    result = workspace.snakemake("--cores", "2")
    assert result.returncode == 0, result.stdout
    workspace.output = result.stdout
    return workspace
