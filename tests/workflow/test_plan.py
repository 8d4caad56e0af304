"""What the workflow plans, and how it refuses what it cannot do. Nothing trains here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rl_influence.analysis.registry import analysis_directory
from rl_influence.config import Config
from rl_influence.rlhf.settings import load_study, locate
from rl_influence.runs.progress import expected_seconds
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import run_directory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, check=True).stdout
    return set(listed.decode().split("\0"))


def missing(folders: list[Path], tracked: set[str]) -> int:
    return sum((folder / "manifest.json").as_posix() not in tracked for folder in folders)


@pytest.mark.slow
def test_a_fresh_clone_plans_exactly_the_runs_and_analyses_that_are_not_committed(workspace, tracked):
    workspace.add_results()
    config = Config(ROOT / "config/paper.yaml")
    result = workspace.snakemake("--dry-run", study="paper")
    assert result.returncode == 0, result.stdout
    planned = {rule: int(number) for rule, number in re.findall(r"^(\w+) +(\d+)$", result.stdout, re.MULTILINE)}
    runs = [run_directory(config.study, run) for run in config.runs]
    analyses = [analysis_directory(config.study, analysis) for analysis in config.analyses]
    assert planned.get("train", 0) == missing(runs, tracked)
    assert planned.get("analysis", 0) == missing(analyses, tracked)
    assert not [rule for rule in planned if rule.startswith("rlhf")]


@pytest.mark.slow
def test_the_quick_study_trains_everything_in_a_fresh_clone_and_fits_ten_minutes_on_two_cores(workspace):
    workspace.add_results()
    quick = Config(ROOT / "config/config.yaml")
    result = workspace.snakemake("--dry-run", study="config")
    planned = dict(re.findall(r"^(\w+) +(\d+)$", result.stdout, re.MULTILINE))
    assert planned["train"] == str(len(quick.runs)), result.stdout
    assert {*planned} == {"train", "tables", "print_table", "figure", "claims", "html_report", "all", "total"}
    others = [run for name in ("paper", "confirm") for run in Config(ROOT / f"config/{name}.yaml").runs]
    assert {fingerprint(run.spec) for run in others}.isdisjoint(fingerprint(run.spec) for run in quick.runs)
    assert sum(expected_seconds(run.spec) for run in quick.runs) <= 1000


@pytest.mark.slow
def test_a_run_that_another_study_has_is_not_trained_again(make_workspace):
    """Under its own method's name, and only where the settings are the same."""
    blocks = [{"environments": ["frozenlake"], "methods": ["iif"], "seeds": [0, 99]}]
    blocks.append({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1], "rounds": 49})
    blocks.append({"environments": ["minigrid"], "methods": ["ppo"], "seeds": [0, 1, 2]})
    workspace = make_workspace({"study": "mine", "grid": blocks})
    assert workspace.planned("train", study="mine") == 7
    workspace.add_results()
    assert workspace.planned("train", study="mine") == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rlhf_fast", "rlhf_explain", "rlhf_study"])
def test_a_study_of_language_models_trains_what_is_not_committed(workspace, tracked, name):
    """Its figures are there already, and detectors are not: neither hides a missing run, nor makes one anew that is
    there. PPO and IIF of `rlhf_explain` are runs of `rlhf_fast`."""
    workspace.add_results()
    study = load_study(ROOT / f"config/{name}.yaml")
    folders = [locate(name, method, seed, spec, ROOT) for method, seed, spec in study.runs()]
    result = workspace.snakemake("--dry-run", name)
    planned = dict(re.findall(r"^(\w+) +(\d+)$", result.stdout, re.MULTILINE))
    assert int(planned.get("rlhf_run", 0)) == missing(folders, tracked), result.stdout
    removals = sum(path.as_posix() not in tracked for path in study.removals())
    assert int(planned.get("rlhf_faithfulness", 0)) == removals
    if name == "rlhf_explain":
        assert sum(folder.parts[1] == "rlhf_fast" for folder in folders) == 2 * len(study.seeds)


@pytest.mark.slow
def test_forceall_plans_the_whole_grid(workspace):
    workspace.add_results()
    assert workspace.planned("train", "--forceall", study="paper") == len(Config(ROOT / "config/paper.yaml").runs)


@pytest.mark.slow
def test_the_entry_for_figures_plans_no_training_and_no_analysis(workspace):
    workspace.add_results()
    for arguments in ((), ("--forceall",)):
        result = workspace.snakemake("--dry-run", *arguments, study="paper", entry="figures.smk")
        assert result.returncode == 0, result.stdout
        assert re.findall(r"^(train|analysis) ", result.stdout, re.MULTILINE) == []
    assert workspace.planned("tables", "--forceall", study="paper", entry="figures.smk") == 1


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["Snakefile", "figures.smk"])
def test_lint(entry):
    command = [sys.executable, "-m", "snakemake", "--snakefile", f"workflow/{entry}", "--lint"]
    result = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0 and "good condition" in result.stdout, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": [{"environments": ["frozenlke"], "methods": ["ppo"], "seeds": [0]}]}, "did you mean 'frozenlake'?"),
        ({"gird": []}, "unknown key 'gird', did you mean 'grid'?"),
        ({"figures": ["fig06_return"]}, "unknown figure 'fig06_return', did you mean 'fig06_returns'?"),
        ({"tables": ["table_6"]}, "unknown printed table 'table_6'"),
        (
            {"figures": ["fig08_minigrid"], "tables": [], "analyses": []},
            "figure fig08_minigrid needs the analysis diagnosis",
        ),
        ({"study": "../elsewhere"}, "../elsewhere"),
    ],
)
def test_a_bad_study_is_one_line_and_exit_code_1(workspace, change, message):
    path = workspace.path / "config/smoke.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    result = workspace.snakemake("--dry-run")
    assert result.returncode == 1 and "Traceback" not in result.stdout
    first, line, *places = result.stdout.splitlines()[1:]
    assert first.startswith("WorkflowError in file") and message in line, result.stdout
    assert all(place.startswith("  File ") for place in places)
    assert not (workspace.path / "results").exists()


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_is_named_before_the_first_job(workspace):
    path = workspace.path / "config/environments/acrobot.yaml"
    path.write_text(path.read_text().replace("Acrobot-v1", "Acrobat-v1"))
    assert workspace.snakemake("--dry-run").returncode == 0  # a plan makes none
    result = workspace.snakemake("--cores", "1")
    assert result.returncode == 1 and "Traceback" not in result.stdout
    assert "environment acrobot: gym_id 'Acrobat-v1'" in result.stdout, result.stdout
    assert not (workspace.path / "results").exists()
