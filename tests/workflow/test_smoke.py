"""The smoke study, run for real: bytes, second calls, damaged results."""

import json
import re
import shutil

import pandas as pd
import pytest
import yaml

from rl_influence.config import Config

pytestmark = pytest.mark.slow


def test_every_output_is_there(finished):
    config = Config(finished.path / "config/smoke.yaml")
    runs = [name.split("/")[-1] for name in finished.files("results/smoke/runs")]
    for name in ("curve.csv", "timing.csv", "diagnostics.csv", "manifest.json"):
        assert runs.count(name) == len(config.runs)
    for name in config.study_config.figures:
        for kind in ("png", "pdf"):
            assert (finished.path / f"paper_figures/smoke/{name}.{kind}").stat().st_size > 5000
    for name in config.study_config.tables:
        assert (finished.path / f"paper_figures/smoke/{name}.tex").read_text().startswith(r"\begin{tabular}")
    assert pd.read_csv(finished.path / "results/smoke/tables/missing_runs.csv").empty


def test_what_is_printed_is_a_line_per_run_and_what_to_open(finished):
    config = Config(finished.path / "config/smoke.yaml")
    begin, *lines = finished.output.split("\ntotal ")[1].splitlines()
    lines = [line for line in lines if line]
    for number, line in enumerate(lines[: len(config.runs)], start=1):
        left = r", about \d+ (s|min) left" if number < len(config.runs) else ""
        assert re.fullmatch(rf"{number} of {len(config.runs)} runs trained{left} \| .* seed \d: test return .*", line)
    assert lines[len(config.runs) :] == [
        "Not enough runs: FrozenLake, Acrobot.",
        "This study tests no claim of the paper.",
        "open report/smoke.html",
    ]
    assert len(list((finished.path / "report/smoke").glob("*.html"))) == len(config.runs)


def test_every_run_has_a_log(finished):
    logs = list((finished.path / "logs/smoke/train").rglob("*.log"))
    assert len(logs) == len(Config(finished.path / "config/smoke.yaml").runs)
    for log in logs:
        lines = log.read_text().splitlines()
        assert lines[0].startswith("round 0/") and lines[-1].startswith("round ")


def test_nothing_to_do_the_second_time(finished):
    result = finished.snakemake("--cores", "2")
    assert result.returncode == 0 and "Nothing to be done" in result.stdout


def test_the_number_of_cores_changes_no_byte(finished, workspace):
    result = workspace.snakemake("--cores", "1")
    assert result.returncode == 0, result.stdout
    assert workspace.files("results/smoke/tables") == finished.files("results/smoke/tables")
    curves = {k: v for k, v in finished.files("results/smoke/runs").items() if k.endswith("curve.csv")}
    assert curves == {k: v for k, v in workspace.files("results/smoke/runs").items() if k.endswith("curve.csv")}
    weights = [
        {k: json.loads(v)["weights_sha256"] for k, v in w.files("results/smoke/runs").items() if k.endswith(".json")}
        for w in (finished, workspace)
    ]
    assert weights[0] == weights[1]


@pytest.fixture
def copy(finished, workspace):
    for name in ("results", "paper_figures"):
        shutil.copytree(finished.path / name, workspace.path / name)
    return workspace


def redraw(workspace, *options: str):
    return workspace.snakemake("--cores", "2", "--forceall", *options, entry="figures.smk")


def test_redrawing_gives_the_same_bytes(finished, copy):
    assert redraw(copy).returncode == 0
    assert copy.files("paper_figures/smoke") == finished.files("paper_figures/smoke")
    assert copy.files("results/smoke") == finished.files("results/smoke")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "curve.csv"),
        (lambda text: text.replace(text.splitlines()[-1].split(",")[2], "nan"), "nan"),
        (lambda text: "\n".join(text.splitlines()[:-1]) + "\n", "round 2 is missing"),
    ],
)
def test_a_damaged_curve_is_named(copy, damage, message):
    curve = next((copy.path / "results/smoke/runs/frozenlake/ppo").rglob("curve.csv"))
    curve.write_text(damage(curve.read_text()))
    before = copy.files("results/smoke/tables")
    result = redraw(copy)
    assert result.returncode == 1
    (line,) = [line for line in result.stdout.splitlines() if "damaged result" in line]
    assert line.startswith("1 ") and curve.relative_to(copy.path).as_posix() in line and message in line
    assert "Traceback" not in result.stdout
    assert copy.files("results/smoke/tables") == before  # nothing is lost


def test_a_job_that_fails_loses_no_table(copy):
    """Without the check before the first job, the job that makes the tables finds the damage."""
    curve = next((copy.path / "results/smoke/runs/frozenlake/ppo").rglob("curve.csv"))
    curve.write_text("round\n")
    before = {name: copy.files(name) for name in ("results/smoke/tables", "paper_figures/smoke")}
    result = redraw(copy, "--no-hooks")
    assert result.returncode == 1 and "1 damaged result" in result.stdout, result.stdout
    assert {name: copy.files(name) for name in before} == before


def test_a_run_without_its_manifest_is_one_that_is_not_there(copy):
    next((copy.path / "results/smoke/runs/frozenlake/ppo").glob("seed1-*/manifest.json")).unlink()
    assert redraw(copy).returncode == 0
    missing = pd.read_csv(copy.path / "results/smoke/tables/missing_runs.csv")
    assert missing[["environment", "method", "seed"]].values.tolist() == [["frozenlake", "ppo", 1]]


def test_tables_of_runs_that_another_study_has(finished, copy):
    smoke = yaml.safe_load((copy.path / "config/smoke.yaml").read_text())
    (copy.path / "config/again.yaml").write_text(yaml.safe_dump(smoke | {"study": "again"}))
    tables = ("returns_per_seed", "efficiency", "diagnosis_summary")
    result = copy.snakemake("--cores", "2", "--", *(f"results/again/tables/{n}.csv" for n in tables), study="again")
    assert result.returncode == 0 and not (copy.path / "results/again/runs").exists(), result.stdout
    for name in tables:
        text = (copy.path / f"results/again/tables/{name}.csv").read_bytes()
        assert text == finished.files("results/smoke/tables")[f"{name}.csv"]


def test_results_of_another_configuration_are_not_used(copy):
    """A folder whose name fits and whose content is another seed's."""
    seeds = sorted((copy.path / "results/smoke/runs/frozenlake/ppo").iterdir())
    shutil.copytree(seeds[1], seeds[0], dirs_exist_ok=True)
    result = redraw(copy)
    assert result.returncode == 1
    assert "belongs to another configuration or version" in result.stdout, result.stdout


def test_missing_runs_are_listed_and_enter_no_mean(copy):
    shutil.rmtree(next((copy.path / "results/smoke/runs/frozenlake/ppo").glob("seed1-*")))
    assert redraw(copy).returncode == 0
    missing = pd.read_csv(copy.path / "results/smoke/tables/missing_runs.csv")
    assert missing[["environment", "method", "seed"]].values.tolist() == [["frozenlake", "ppo", 1]]
    summary = pd.read_csv(copy.path / "results/smoke/tables/curves_summary.csv")
    ppo = summary[(summary["environment"] == "frozenlake") & (summary["method"] == "ppo")]
    assert set(ppo["n"]) == {1} and set(ppo["expected"]) == {2}


def test_analyses_come_from_the_snapshots_that_training_keeps(finished):
    config = Config(finished.path / "config/smoke.yaml")
    assert len(list((finished.path / "results/smoke/analyses").rglob("manifest.json"))) == len(config.analyses)
    for log in (finished.path / "logs/smoke/diagnosis").rglob("*.log"):
        assert log.read_text().startswith("diagnosis of ") and log.read_text().count("\n") == 1  # nothing trained again
    assert pd.read_csv(finished.path / "results/smoke/tables/missing_analyses.csv").empty
    metadata = (finished.path / "paper_figures/smoke/fig03_diagnosis.png").read_bytes()
    assert b"diagnosis of 2 of 2 runs, digest" in metadata


def test_committed_analyses_are_not_repeated_and_one_that_is_lacking_gives_the_same_bytes(finished, workspace):
    """A fresh clone has runs and analyses, and no snapshots."""
    for name in ("runs", "analyses"):
        shutil.copytree(finished.path / "results/smoke" / name, workspace.path / "results/smoke" / name)
    rules = r"^(train|analysis) +(\d+)$"
    assert re.findall(rules, workspace.snakemake("--dry-run").stdout, re.MULTILINE) == []
    lacking = next((workspace.path / "results/smoke/analyses/diagnosis/frozenlake/ppo").glob("seed1-*"))
    shutil.rmtree(lacking)
    planned = re.findall(rules, workspace.snakemake("--dry-run").stdout, re.MULTILINE)
    assert set(planned) == {("analysis", "1")}
    target = (lacking / "manifest.json").relative_to(workspace.path).as_posix()
    result = workspace.snakemake("--cores", "1", target)
    assert result.returncode == 0, result.stdout
    assert workspace.files("results/smoke/analyses") == finished.files("results/smoke/analyses")
    assert workspace.files("results/smoke/runs") == finished.files("results/smoke/runs")
    (log,) = (workspace.path / "logs/smoke/diagnosis").rglob("*.log")
    assert log.read_text().startswith("training 2 rounds again, without evaluation")


def test_missing_analyses_are_listed_and_damaged_ones_stop(copy):
    (first, second) = sorted((copy.path / "results/smoke/analyses/diagnosis/frozenlake/ppo").iterdir())
    shutil.rmtree(first)
    assert redraw(copy).returncode == 0
    missing = pd.read_csv(copy.path / "results/smoke/tables/missing_analyses.csv")
    assert missing[["analysis", "environment", "method", "seed"]].values.tolist() == [
        ["diagnosis", "frozenlake", "ppo", 0]
    ]
    summary = pd.read_csv(copy.path / "results/smoke/tables/diagnosis_summary.csv")
    counts = summary[["environment", "n", "expected"]].drop_duplicates().values.tolist()
    assert counts == [["frozenlake", 1, 2]]
    (second / "diagnosis.csv").write_text("round\n")
    result = redraw(copy)
    assert result.returncode == 1 and "Traceback" not in result.stdout
    assert "1 damaged result" in result.stdout and "diagnosis.csv: differs" in result.stdout, result.stdout
