"""What is said of analyses before they run is what they are, and what a study's analyses are follows from its file."""

import subprocess
import sys

import pytest

from rl_influence.analysis import registry
from rl_influence.analysis.behaviour import BEHAVIOURS
from rl_influence.analysis.registry import (
    ANALYSES,
    analysis_directory,
    check_analyses,
    check_tables,
    fingerprint,
    study_tables,
)
from rl_influence.config import Config, ConfigError
from rl_influence.runs.provenance import fingerprint as run_fingerprint
from synthetic import CATALOGUE

GRID = [
    {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0, 1], "rounds": 4},
    {"environments": ["minigrid"], "methods": ["ppo"], "seeds": [0], "rounds": 3},
]


def block(**changes) -> dict:
    return {"analysis": "diagnosis", "environments": ["frozenlake"], "seeds": [0], "rounds": [2, 0]} | changes


def config(*blocks: dict, **changes) -> Config:
    return Config({"study": "made_up", "grid": GRID, "analyses": list(blocks)} | changes, CATALOGUE)


def test_entries_are_what_the_modules_make():
    for name, entry in ANALYSES.items():
        module = registry.load(name)
        assert tuple(getattr(module, "SUMMARIES", {})) == entry.summaries
        assert callable(module.analyse)
    tables = [table for entry in ANALYSES.values() for table in (*entry.tables, *entry.summaries)]
    assert len(set(tables)) == len(tables)


def test_planning_needs_neither_torch_nor_matplotlib():
    script = "import sys, rl_influence.analysis.registry, rl_influence.figures, rl_influence.publish.latex\n"
    script += "print({'torch', 'matplotlib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_blocks_analyses():
    found = config(block(), block(analysis="agreement", methods=["ppo", "iif_p50"], seeds=[1], rounds="all")).analyses
    runs = [(a.name, a.run.environment, a.run.method, a.run.seed, a.rounds) for a in found]
    assert runs == [
        ("diagnosis", "frozenlake", "ppo", 0, (0, 2)),
        ("agreement", "frozenlake", "ppo", 1, (0, 1, 2, 3)),
        ("agreement", "frozenlake", "iif_p50", 1, (0, 1, 2, 3)),
    ]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([block(seeds=[2])], r"block 1 \(diagnosis\): environment frozenlake, method ppo, seed 2 is not in the grid"),
        ([block(environments=["minigrid"], methods=["iif_p50"])], "minigrid, method iif_p50, seed 0 is not in the"),
        ([block(environments=["frozenlke"])], "unknown environment 'frozenlke', did you mean 'frozenlake'"),
        ([block(methods=["pop"])], "unknown method 'pop', did you mean 'ppo'"),
        ([block(rounds=[4])], r"seed 0: round 4: the run has rounds 0 \(untrained policy\) to 3"),
        ([block(rounds=[])], r"rounds = \[\]: expected a list of different rounds from 0 on, or all"),
        ([block(rounds=[1, 1])], "expected a list of different rounds"),
        ([block(rounds=[-1])], "expected a list of different rounds"),
        ([block(rounds="some")], "rounds = 'some': expected a list of different rounds"),
        ([block(rounds=2)], "expected a list of different rounds"),
        ([block(), block(rounds=[1])], r"block 2 \(diagnosis\): .* seed 0 is repeated"),
        ([block(seeds=[0, 0])], "repeated: 0"),
        ([block(round=[1])], "unknown key '.*round', did you mean 'rounds'"),
    ],
)
def test_a_bad_block_is_one_line(blocks, message):
    with pytest.raises(ConfigError, match=message) as error:
        config(*blocks)
    assert "\n" not in str(error.value)


def test_analyses_change_no_run():
    with_, without = config(block()), config()
    assert [run_fingerprint(run.spec) for run in with_.runs] == [run_fingerprint(run.spec) for run in without.runs]


def test_a_fingerprint_covers_run_rounds_analysis_and_version(monkeypatch):
    def of(**changes):
        return fingerprint(config(block(**changes)).analyses[0])

    different = [of(), of(rounds=[0]), of(seeds=[1]), of(analysis="agreement"), of(methods=["iif_p50"])]
    assert len(set(different)) == len(different)
    assert of(rounds=[0, 2]) == different[0]
    path = analysis_directory("made_up", config(block()).analyses[0])
    assert path.as_posix() == f"results/made_up/analyses/diagnosis/frozenlake/ppo/seed0-{different[0][:8]}"
    entry = ANALYSES["diagnosis"]
    monkeypatch.setitem(ANALYSES, "diagnosis", registry.Entry(entry.tables, entry.summaries, entry.version + 1))
    assert of() != different[0]


def test_tables_of_a_study():
    assert study_tables(config()) == []
    made = study_tables(config(block(analysis="agreement", rounds=[0])))
    assert made == ["agreement", "agreement_summary", "analyses", "missing_analyses"]
    check_tables(config(block()), {"figure fig03_diagnosis": ("diagnosis_grid", "curves_summary")})
    with pytest.raises(ConfigError, match="figure fig03_diagnosis needs the analysis diagnosis; add it to analyses"):
        check_tables(config(), {"figure fig03_diagnosis": ("diagnosis_grid",)})


def test_an_unknown_analysis_is_named():
    with pytest.raises(ConfigError, match="unknown analysis 'diagnoses', did you mean 'diagnosis'"):
        check_analyses(config(block(analysis="diagnoses")))


def test_behaviours_are_of_the_environments_that_have_one():
    assert ANALYSES["behaviour"].gym_ids == tuple(BEHAVIOURS)
    check_analyses(config(block()))
    with pytest.raises(
        ConfigError, match=r"analysis behaviour of environment frozenlake.*FrozenLake-v1; choices: high"
    ):
        check_analyses(config(block(analysis="behaviour", rounds=[0])))
