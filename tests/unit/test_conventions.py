"""The files that a project's neighbours expect: CI, pre-commit, container, documentation, citation."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, str]:
    """Package -> version of a lock file."""
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_ci_tests_every_python_that_the_package_names():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    tested = workflow["jobs"]["quick"]["strategy"]["matrix"]["python"]
    named = [c.rpartition(" ")[2] for c in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tested == named and PYPROJECT["project"]["requires-python"] == f">={named[0]}"


def test_hooks_have_the_versions_of_the_lock_files():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    wanted = dict(pin.split("==") for hook in hooks for pin in hook["additional_dependencies"])
    development = pins("requirements-dev.lock")
    assert wanted and all(development[name] == version for name, version in wanted.items())
    assert development["ruff"] == pins("requirements.lock")["ruff"]


def test_the_container_copies_what_is_there():
    text = (ROOT / "Dockerfile").read_text()
    sources = [part for line in re.findall(r"^COPY (.+)$", text, re.M) for part in line.split()[:-1]]
    assert sources and all((ROOT / source).exists() for source in sources)
    assert "requirements.lock" in text and re.search(r"^FROM python:3\.\d+", text, re.M)


def test_the_workflow_catalogue_finds_what_it_asks_for():
    """A Snakefile, a README of the configuration, and how it is used."""
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"} and usage["report"] is True
    assert (ROOT / "workflow/Snakefile").exists() and (ROOT / "config/README.md").exists()
    assert 'report: "../report/workflow.rst"' in (ROOT / "workflow/rules/report.smk").read_text()


def test_every_page_of_the_documentation_is_in_its_contents():
    nav = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text())
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(nav) == pages


def test_links_between_files_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "config/README.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not re.match(r"[a-z]+:", target):
                path = target.partition("#")[0]
                assert not path or (page.parent / path).exists(), f"{page.name}: {target}"


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PYPROJECT["project"]["version"]
    assert re.search(rf"^## {re.escape(PYPROJECT['project']['version'])}$", (ROOT / "CHANGELOG.md").read_text(), re.M)
