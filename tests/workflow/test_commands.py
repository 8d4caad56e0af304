"""Every command that the Makefile and the documents tell a user to type is one that works."""

import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from rl_influence import cli

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = " ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)).split()
DOCUMENTS = [ROOT / "README.md", ROOT / "config/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    return subprocess.run(["make", "--dry-run", *arguments], cwd=folder, env=outside, capture_output=True, text=True)


def recipe(folder: Path, *arguments: str) -> list[list[str]]:
    """The commands of a target but for those that install, each as a list of words."""
    done = make(folder, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if not re.search(r"pip install|venv \.venv|version_info|^touch", line)]


def typed_commands() -> list[str]:
    """Lines of the documents' code blocks that call snakemake, make or our own program."""
    blocks = [block for path in DOCUMENTS for block in re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.M | re.S)]
    lines = dict.fromkeys(line.split(" #")[0].strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if re.match(r"(snakemake|make|rl-influence) ", line) and "..." not in line]


@pytest.fixture(scope="module")
def clone(make_workspace):
    """A folder as a fresh clone has it, and with the study of the worked example in docs/extending.md."""
    block = {"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0]}
    workspace = make_workspace({"study": "doorkey_first", "grid": [block]})
    workspace.add_results()
    for name in ("Makefile", "pyproject.toml", *(path.name for path in ROOT.glob("requirements*.lock"))):
        shutil.copy(ROOT / name, workspace.path / name)
    return workspace


def check(clone, words: list[str]) -> None:
    """Snakemake plans a command as it stands; what other programs start is at least there."""
    program, arguments = Path(words[0]).name, words[1:]
    if program == "snakemake":
        process = clone.start("-m", "snakemake", *arguments, "--dry-run")
        output, _ = process.communicate()
        assert process.returncode == 0, output
        assert "Nothing to be done" in output or "This was a dry-run" in output, output
    elif program == "python" and arguments[0] == "-m":
        assert find_spec(arguments[1]), words
    elif program == "python":
        assert (ROOT / arguments[0]).exists(), words
    elif program == "rl-influence":
        assert cli.parser().parse_args(arguments).function  # what it refuses ends the test
    else:  # of environments of their own
        assert words[:2] == ["rm", "-rf"] or any(word.startswith(".venv-dev/bin/") for word in words), words


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_of_the_makefile_is_a_command_that_can_be_planned(clone, target):
    commands = recipe(clone.path, target)
    assert commands
    for words in commands:
        check(clone, words)


def test_the_report_is_of_the_study_that_is_named(clone):
    for arguments, study in (((), "paper"), (("CONFIG=config/config.yaml",), "config")):
        words = recipe(clone.path, "report", *arguments)[-1]
        assert words[words.index("--configfile") + 1 :] == [f"config/{study}.yaml"] and "html_report" in words


def test_a_path_with_a_space_is_refused_in_one_line_before_anything_is_installed(tmp_path):
    folder = tmp_path / "my folder"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for target in TARGETS:
        done = make(folder, target)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.count("\n") == 1 and "has a space" in done.stderr and str(folder) in done.stderr


def test_a_home_that_cannot_be_written_gives_snakemake_another_place_for_its_caches(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "show.mk").write_text("include Makefile\nshow:\n\t@echo cache=$$XDG_CACHE_HOME\n")
    for home, cache in (("/dev/null/home", f"{tmp_path}/.snakemake/cache"), (str(tmp_path), "")):
        command, variables = ["make", "--file", "show.mk", "show"], {"PATH": os.environ["PATH"], "HOME": home}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.stdout == f"cache={cache}\n", done.stderr


def test_no_line_anywhere_puts_a_target_after_configfile_which_would_take_it_for_a_file():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kinds = ("Makefile", "Dockerfile", "Snakefile", ".md", ".smk", ".yaml", ".yml", ".py")
    texts = {name: (ROOT / name).read_text() for name in listed if name.endswith(kinds) and (ROOT / name).exists()}
    found = {name: re.findall(r"--configfile [^\s`\"']+ \w+", text) for name, text in texts.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_documents_have_commands():
    assert len(typed_commands()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("line", typed_commands())
def test_a_command_of_the_documents_can_be_planned(clone, line):
    words = shlex.split(line)
    for command in recipe(clone.path, *words[1:]) if words[0] == "make" else [words]:
        check(clone, command)
