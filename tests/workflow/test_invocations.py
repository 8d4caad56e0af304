"""Every way to call snakemake: options that only look, damaged results, and folders where nothing is as usual."""

import os
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from rl_influence.config import Config
from rl_influence.figures import FIGURES

STUDY = {
    "study": "one",
    "grid": [{"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0], "rounds": 1}],
    "figures": ["fig_claims", "fig06_efficiency"],  # of the second there is nothing to draw
    "tables": ["efficiency"],
}
LOOK = ("--dry-run", "--lint", "--unlock", "--summary", "--dag", "--rulegraph", "--list-rules")


def call(folder, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Snakemake as a user calls it in a folder; stdout and stderr together."""
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trained(plan: subprocess.CompletedProcess) -> int:
    """Trainings that a dry run plans."""
    assert plan.returncode == 0, plan.stdout
    found = re.search(r"^train +(\d+)$", plan.stdout, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def checkout(make_workspace):
    """A checkout with a study of one run beside the others, whose results are damaged, every file of them."""
    workspace = make_workspace(STUDY)
    workspace.add_results()
    for path in (workspace.path / "results/paper").rglob("*.*"):
        path.write_bytes(b"damaged")
    return workspace


@pytest.mark.parametrize("cores", [(), ("--cores", "2")], ids=["", "cores"])
@pytest.mark.parametrize("option", LOOK)
@pytest.mark.slow
def test_what_only_looks_works_with_damaged_results_and_without_cores(checkout, option, cores):
    before = checkout.files("results")
    result = call(checkout.path, option, *cores, "--configfile", "config/paper.yaml")
    assert result.returncode == 0 and "damaged" not in result.stdout, result.stdout
    assert checkout.files("results") == before


@pytest.mark.slow
def test_a_plan_and_unlocking_need_no_sound_results(checkout):
    for option in ("--dry-run", "--unlock"):
        result = call(checkout.path, option, "--configfile", "config/paper.yaml", "--snakefile", "workflow/figures.smk")
        assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["html", "zip"])
def test_snakemakes_own_report_has_our_captions(finished, tmp_path, kind):
    target = tmp_path / f"report.{kind}"
    result = finished.snakemake("--report", str(target))
    assert result.returncode == 0 and target.stat().st_size > 100_000, result.stdout
    if kind == "html":
        text = target.read_text()
        about = (finished.path / "workflow/report/workflow.rst").read_text().split("{")[0]
        for caption in (FIGURES["fig03_diagnosis"].caption, about):
            assert " ".join(caption.split("*")[0].split()[:8]) in " ".join(text.split())


@pytest.mark.slow
def test_an_archive_is_made_or_says_that_it_takes_conda(finished, tmp_path):
    result = finished.snakemake("--archive", str(tmp_path / "archive.tar.gz"))
    assert result.returncode == 0 or "conda" in result.stdout.splitlines()[-1], result.stdout
    assert "Traceback" not in result.stdout


@pytest.mark.slow
def test_from_another_folder_the_default_study_is_found(checkout, tmp_path):
    relative = os.path.relpath(checkout.path / "workflow/Snakefile", tmp_path)
    quick = trained(call(tmp_path, "--snakefile", relative, "--dry-run"))
    assert quick == len(Config(checkout.path / "config/config.yaml").runs) and not (tmp_path / "results").exists()


@pytest.mark.slow
def test_the_default_study_under_another_name(checkout, tmp_path):
    """And in a folder of its own."""
    options = ("--config", "study=mine", "--directory", str(tmp_path), "--dry-run")
    plan = call(checkout.path, *options)
    assert trained(plan) == trained(call(checkout.path, "--directory", str(tmp_path), "--dry-run"))
    assert "results/mine/" in call(checkout.path, *options, "--quiet", "host").stdout


@pytest.mark.slow
def test_a_study_without_a_grid_is_not_completed_by_the_default_one(checkout, tmp_path):
    (tmp_path / "mine.yaml").write_text("study: mine\n")
    result = call(checkout.path, "--configfile", str(tmp_path / "mine.yaml"), "--dry-run")
    assert result.returncode == 1 and "mine.yaml: key 'grid' is missing" in result.stdout


@pytest.mark.slow
def test_the_catalogue_lies_beside_the_study_or_else_in_the_repository(checkout, tmp_path):
    study = tmp_path / "mine.yaml"
    study.write_text(yaml.safe_dump(STUDY | {"study": "mine"}))
    assert trained(call(checkout.path, "--configfile", str(study), "--dry-run")) == 1
    shutil.copytree(checkout.path / "config", tmp_path, dirs_exist_ok=True)
    (tmp_path / "environments/frozenlake.yaml").unlink()
    result = call(checkout.path, "--configfile", str(study), "--dry-run")
    assert result.returncode == 1 and "unknown environment 'frozenlake'" in result.stdout


@pytest.fixture
def read_only(checkout, tmp_path):
    """The checkout, where nothing can be written."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder")
    folder = tmp_path / "read_only"
    folder.mkdir()
    commands = [["mount", "--bind", checkout.path, folder], ["mount", "-o", "remount,bind,ro", folder]]
    if any(subprocess.run(command, capture_output=True).returncode for command in commands):
        pytest.skip("a folder cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_read_only_checkout_works_into_another_folder_with_a_space_in_its_path(read_only, tmp_path):
    elsewhere = tmp_path / "my results"
    elsewhere.mkdir()
    options = ("--snakefile", f"{read_only}/workflow/Snakefile", "--configfile", f"{read_only}/config/one.yaml")
    result = call(elsewhere, *options, "--cores", "1")
    assert result.returncode == 0 and "open report/one.html" in result.stdout, result.stdout
    assert (elsewhere / "report/one.html").stat().st_size > 10_000
    again = call(read_only, *options, "--directory", str(elsewhere), "--dry-run")
    assert "Nothing to be done" in again.stdout, again.stdout


@pytest.mark.slow
def test_a_read_only_checkout_is_no_place_for_results_and_says_so(read_only):
    for options in (("--cores", "1"), ("--dry-run",)):
        result = call(read_only, "--configfile", "config/one.yaml", *options)
        assert result.returncode == 1 and "Traceback" not in result.stdout
        assert f"{read_only} cannot be written to; --directory names another" in result.stdout, result.stdout


@pytest.mark.slow
def test_a_home_that_cannot_be_written_needs_a_folder_for_caches(checkout, tmp_path):
    """As docs/clusters.md says."""
    plan = call(checkout.path, "--configfile", "config/one.yaml", "-n", HOME="/dev/null", XDG_CACHE_HOME=str(tmp_path))
    assert trained(plan) == 1


MODULE = """
configfile: "lab.yaml"


module influence:
    snakefile:
        "{checkout}/workflow/Snakefile"
    config:
        config["influence"]


use rule * from influence as influence_*


rule all:
    default_target: True
    input:
        rules.influence_all.input,
"""


@pytest.mark.slow
def test_as_a_module_of_another_workflow(checkout, tmp_path):
    (tmp_path / "Snakefile").write_text(MODULE.format(checkout=checkout.path))
    study = STUDY | {"study": "lab", "timings": ["frozenlake"]}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump({"influence": study}))
    result = call(tmp_path, "--cores", "1")
    assert result.returncode == 0, result.stdout
    assert (tmp_path / "report/lab.html").stat().st_size > 10_000
    assert pd.read_csv(tmp_path / "results/lab/timings/timings.csv")["method"].nunique() == 2
