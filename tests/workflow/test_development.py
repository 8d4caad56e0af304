"""`make lint` and `make docs`, command by command, with tools that are there or are installed for the test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def commands(target: str) -> list[str]:
    """What a target calls of the tools."""
    recipe = re.search(rf"^{target}: \.venv-dev/ready\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [line.strip().replace("$(BIN)/python", sys.executable) for line in recipe[1].splitlines()]


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """The folder of the tools' programs."""
    if (ROOT / ".venv-dev/ready").exists():
        return ROOT / ".venv-dev/bin"
    folder = tmp_path_factory.mktemp("tools")
    install = [folder / "bin/pip", "install", "--quiet", "--requirement", ROOT / "requirements-dev.lock"]
    for command in ([sys.executable, "-m", "venv", folder], install):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the tools cannot be installed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return folder / "bin"


def call(line: str, tools: Path) -> None:
    line = line.replace(".venv-dev/bin", str(tools))
    command, outside = ["bash", "-c", line], os.environ | {"PYTHONPATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("line", commands("lint"))
def test_the_sources_are_as_the_tools_want_them(line, tools):
    call(line, tools)


def test_the_documentation_is_built_and_no_link_in_it_is_dead(tools, tmp_path):
    (line,) = commands("docs")
    call(f"{line} --site-dir {tmp_path}", tools)
    pages = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.html")}
    del pages[Path("404.html")]
    assert len(pages) == len(list((ROOT / "docs").glob("*.md")))
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^":]+)"', text):
            name, _, place = link.partition("#")
            target = (tmp_path / path.parent / name).resolve() if name else tmp_path / path
            assert target.exists() or (target / "index.html").exists(), f"{path}: {link}"
            if place and target.suffix == ".html":
                assert f'id="{place}"' in target.read_text(), f"{path}: {link}"
