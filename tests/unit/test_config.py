"""Configuration: what is resolved, and one line for everything that is wrong with it."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_influence.cli import main
from rl_influence.config import (
    AnalysisBlock,
    Config,
    ConfigError,
    EnvironmentConfig,
    GridBlock,
    PPOConfig,
    RunSpec,
    check_environments,
    check_packages,
    load_environments,
    load_run_spec,
    parse,
    read_yaml,
)
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import run_directory

ROOT = Path(__file__).parents[2]
STUDY, METHODS, FROZENLAKE = "config.yaml", "methods.yaml", "environments/frozenlake.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of config/ to be spoilt."""
    return shutil.copytree(ROOT / "config", tmp_path / "config")


def change(file: Path, place: str, value) -> None:
    """Sets one key of a YAML file; `place` is dotted, a number indexes a list."""
    data = yaml.safe_load(file.read_text())
    *parents, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    node = data
    for part in parents:
        node = node[part] if isinstance(node, list) else node.setdefault(part, {})
    node[last] = value
    file.write_text(yaml.safe_dump(data))


def error_line(folder: Path, capsys, **arguments: str) -> str:
    """What `rl-influence run` says, after checking that it says one line, exits with 1 and writes nothing."""
    options = {"config": folder / STUDY, "environment": "frozenlake", "method": "ppo", "seed": "0"} | arguments
    output = folder / "output"
    with pytest.raises(SystemExit) as stopped:
        main(["run", *(f"--{key}={value}" for key, value in options.items()), f"--output={output}"])
    said = capsys.readouterr()
    assert stopped.value.code == 1
    assert said.out == "" and said.err.count("\n") == 1 and said.err.endswith("\n"), said.err
    assert "Traceback" not in said.err and len(said.err) < 700
    assert not output.exists()
    return said.err


# What is right


def test_committed_studies_have_the_runs_that_their_grids_multiply_to():
    counts = {name: len(Config(ROOT / f"config/{name}.yaml").runs) for name in ("config", "paper", "smoke")}
    for name, count in counts.items():
        grid = Config(ROOT / f"config/{name}.yaml").study_config.grid
        assert count == sum(len(b.environments) * len(b.methods) * len(b.seeds) for b in grid)


def test_frozenlake_resolves_to_the_settings_of_the_paper():
    spec = load_run_spec(environment="frozenlake", method="ppo", seed=0, config=ROOT / "config/paper.yaml")
    ppo = spec.ppo
    assert (ppo.n_steps, ppo.batch_size, ppo.n_epochs) == (2048, 64, 10)
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip_range) == (0.99, 0.95, 0.2)
    assert (ppo.entropy_coef, ppo.value_coef, ppo.max_grad_norm) == (0, 0.5, 0.5)
    assert (ppo.optimizer, ppo.learning_rate, ppo.normalize_advantage) == ("sgd", 5e-3, True)
    assert spec.rounds == 50 and spec.environment.kwargs == {"map_name": "4x4", "is_slippery": False}
    assert spec.selection.kind == "all" and spec.drop_fraction == 0


@pytest.mark.parametrize("environment, percent", [("frozenlake", 50), ("minigrid", 12.5), ("acrobot", 50)])
def test_random_takes_the_environments_own_p(environment, percent):
    spec = load_run_spec(environment=environment, method="random", seed=0, config=ROOT / "config/paper.yaml")
    assert spec.selection.drop_percent == percent and spec.drop_fraction == percent / 100


def test_a_blocks_overrides_apply_to_its_runs_and_to_no_others(folder):
    change(folder / STUDY, "grid", [
        {"environments": ["acrobot"], "methods": ["ppo"], "seeds": [0], "rounds": 3, "evaluation_episodes": 7},
        {"environments": ["acrobot"], "methods": ["random"], "seeds": [0], "rounds": 4, "evaluation_every": 2},
    ])  # fmt: skip

    def resolved(environment, method, seed):
        spec = load_run_spec(environment=environment, method=method, seed=seed, config=folder / STUDY)
        return spec.rounds, spec.evaluation.episodes, spec.evaluation.every

    assert resolved("acrobot", "ppo", 0) == (3, 7, 1)
    assert resolved("acrobot", "random", 0) == (4, 1000, 2)
    with pytest.warns(UserWarning, match="no block has environment acrobot, method random, seed 1: it takes"):
        assert resolved("acrobot", "random", 1) == (50, 1000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the study says nothing of FrozenLake that could be missed
        assert resolved("frozenlake", "ppo", 0) == (50, 100, 1)


@pytest.mark.parametrize("seed", [3, "3", " 3 ", 3.0, np.int64(3), np.uint8(3), np.float64(3)])
def test_a_seed_is_cast_once(seed):
    spec = load_run_spec(environment="frozenlake", method="ppo", seed=seed, config=ROOT / "config/config.yaml")
    assert type(spec.seed) is int and spec.seed == 3


@pytest.mark.parametrize("seed", [3.5, "3.5", True, -1, "-1", None, "three", 2**63, float("nan"), float("inf"), [3]])
def test_no_seed(seed):
    with pytest.raises(ConfigError, match="seed = "):
        load_run_spec(environment="frozenlake", method="ppo", seed=seed, config=ROOT / "config/config.yaml")


@pytest.mark.parametrize("written", [25, 25.0, "25", "25.0", 2.5e1])
def test_p_has_one_spelling(written, folder):
    change(folder / METHODS, "iif_p25.selection.drop_percent", written)
    [spec] = [run.spec for run in Config(folder / "paper.yaml").runs if run.name == "frozenlake iif_p25 seed 0"]
    committed = load_run_spec(environment="frozenlake", method="iif_p25", seed=0, config=ROOT / "config/config.yaml")
    assert fingerprint(spec) == fingerprint(committed)


def test_numbers_that_yaml_reads_as_text_are_numbers():
    assert isinstance(yaml.safe_load("5e-3"), str)
    assert parse(PPOConfig, yaml.safe_load("learning_rate: 5e-3"), "here").learning_rate == 0.005


def test_a_spec_survives_json():
    for run in Config(ROOT / "config/smoke.yaml").runs:
        assert RunSpec(**json.loads(json.dumps(run.spec.model_dump(mode="json")))) == run.spec


def test_a_method_may_turn_clipping_off_and_only_if_it_says_so(folder):
    change(folder / FROZENLAKE, "ppo.max_grad_norm", 0.7)
    config = Config(folder / STUDY)
    assert config.resolve("frozenlake", "ppo", 0).ppo.max_grad_norm == 0.7
    assert config.resolve("frozenlake", "ppo_noclip", 0).ppo.max_grad_norm is None


@pytest.mark.parametrize(
    "written, seeds",
    [
        ("0..4", (0, 1, 2, 3, 4)),
        ("7..7", (7,)),
        (" 3 .. 5 ", (3, 4, 5)),
        (["0..2", 7, "10..11"], (0, 1, 2, 7, 10, 11)),
        (["5", "6..7"], (5, 6, 7)),
    ],
)
def test_seeds_may_be_ranges(written, seeds, folder):
    change(folder / STUDY, "grid.0.seeds", written)
    change(folder / STUDY, "analyses", [])
    grid = Config(folder / STUDY).study_config.grid
    assert grid[0].seeds == seeds
    analysis = {"analysis": "agreement", "environments": ["frozenlake"], "seeds": written, "rounds": [1]}
    assert parse(AnalysisBlock, analysis, "here").seeds == seeds


def test_seeds_as_they_stand_in_yaml():
    block = "{environments: [frozenlake], methods: [ppo], seeds: [0..4, 7], ppo: {learning_rate: 1e-2}}"
    parsed = parse(GridBlock, yaml.safe_load(block), "here")
    assert parsed.seeds == (0, 1, 2, 3, 4, 7) and parsed.ppo.model_dump() == {"learning_rate": 0.01}


def test_a_blocks_hyperparameters_replace_the_environments(folder):
    change(folder / FROZENLAKE, "ppo", {"gamma": 0.9, "learning_rate": 0.02, "n_steps": 4096})
    block = {"environments": ["frozenlake"], "methods": ["ppo", "ppo_lr3", "ppo_noclip"], "seeds": [0]}
    change(folder / STUDY, "grid", [block | {"ppo": {"learning_rate": 0.1, "batch_size": 3000, "max_grad_norm": 0.7}}])
    change(folder / STUDY, "analyses", [])
    config = Config(folder / STUDY)
    ppo, tripled, unclipped = (run.spec.ppo for run in config.runs)
    assert (ppo.learning_rate, ppo.batch_size, ppo.gamma, ppo.n_steps) == (0.1, 3000, 0.9, 4096)
    assert tripled == ppo.model_copy(update={"learning_rate": 0.1 * 3})  # a method changes what the block says
    assert unclipped == ppo.model_copy(update={"max_grad_norm": None})
    assert config.resolve("frozenlake", "ppo", 0).ppo.learning_rate == 0.02
    again = Config(json.loads(json.dumps(config.study_config.model_dump(mode="json"))), folder)
    assert again.runs == config.runs  # what a block does not change stays unsaid when it is written out


@pytest.mark.parametrize("factor", [3, 10, 30])
def test_a_methods_learning_rate_is_a_multiple_of_its_environments(factor):
    config = Config(ROOT / "config/paper.yaml")
    for environment in ("frozenlake", "lunarlander_adam"):
        for kind in ("ppo", "iif", "random"):
            plain = config.resolve(environment, kind, 0)
            spec = config.resolve(environment, f"{kind}_lr{factor}", 0)
            assert spec.ppo.learning_rate == pytest.approx(factor * config.environments[environment].ppo.learning_rate)
            ppo = spec.ppo.model_copy(update={"learning_rate": plain.ppo.learning_rate})
            assert spec.model_copy(update={"ppo": ppo}) == plain  # and nothing else differs


@pytest.mark.parametrize("environment, same", [("frozenlake", "iif_p50"), ("minigrid", "iif_p12_5")])
def test_iif_is_the_run_at_the_environments_own_p(environment, same):
    config = Config(ROOT / "config/paper.yaml")
    assert fingerprint(config.resolve(environment, "iif", 0)) == fingerprint(config.resolve(environment, same, 0))
    noclip = config.resolve(environment, "iif_noclip", 0)
    assert fingerprint(noclip) == fingerprint(config.resolve(environment, f"{same}_noclip", 0))


def test_a_key_that_was_added_enters_a_fingerprint_only_away_from_its_default():
    config = Config(ROOT / "config/paper.yaml")
    spec, matched = (config.resolve("frozenlake", name, 0) for name in ("ppo", "ppo_matched_displacement"))
    assert "displacement" not in spec.result_key()["selection"]
    assert matched.result_key()["selection"]["displacement"] == "as_influence"
    assert RunSpec(**json.loads(json.dumps(matched.model_dump(mode="json")))) == matched


def test_a_file_that_is_not_there_is_told_from_its_neighbours(folder):
    with pytest.raises(ConfigError, match=r"papr.yaml: no such file, did you mean 'paper.yaml'\? choices: "):
        Config(folder / "papr.yaml")


# What is wrong, through the command line


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"environment": "frozenlak"}, ["unknown environment 'frozenlak'", "mean 'frozenlake'", "acrobot", "minigrid"]),
        ({"environment": ""}, ["unknown environment ''", "frozenlake"]),
        ({"method": "iif_p51"}, ["unknown method 'iif_p51'", "iif_p50", "td_error"]),
        ({"method": "../ppo"}, ["unknown method '../ppo'", "choices"]),
        ({"seed": "-1"}, ["seed", "-1", "greater than or equal to 0"]),
        ({"seed": "3.5"}, ["seed", "3.5", "integer"]),
        ({"seed": "nought"}, ["seed", "nought", "integer"]),
        ({"config": "no/such.yaml"}, ["no/such.yaml: no such file; work in the clone, or name with --config"]),
        ({"config": "."}, ["cannot be read", "directory"]),
    ],
)
def test_arguments(arguments, words, folder, capsys):
    line = error_line(folder, capsys, **arguments)
    assert all(word in line for word in words), line


BAD_KEYS = [
    (STUDY, "grids", "grid"),
    (STUDY, "grid.0.seed", "seeds"),
    (STUDY, "grid.0.ppo.learningrate", "learning_rate"),
    (FROZENLAKE, "gymid", "gym_id"),
    (FROZENLAKE, "ppo.batchsize", "batch_size"),
    (FROZENLAKE, "evaluation.episode", "episodes"),
    (METHODS, "ppo.selections", "selection"),
    (METHODS, "random.selection.drop_percentage", "drop_percent"),
    (METHODS, "ppo.ppo.max_gradient_norm", "max_grad_norm"),
]


@pytest.mark.parametrize("file, place, meant", BAD_KEYS)
def test_a_misspelt_key(file, place, meant, folder, capsys):
    change(folder / file, place, 1)
    line = error_line(folder, capsys)
    name = place.split(".")[-1]
    assert file in line and "unknown key" in line and name in line and f"did you mean {meant!r}? choices:" in line


@pytest.mark.parametrize("file, place", [(STUDY, "grid"), (FROZENLAKE, "gym_id"), (METHODS, "ppo.selection")])
def test_a_missing_key(file, place, folder, capsys):
    data = yaml.safe_load((folder / file).read_text())
    *parents, last = place.split(".")
    node = data
    for part in parents:
        node = node[part]
    del node[last]
    (folder / file).write_text(yaml.safe_dump(data))
    line = error_line(folder, capsys)
    assert file in line and f"key '{last}' is missing" in line


P = "expected a percentage from 1 to 100, or chosen"
NO_BOOLEAN = "expected no boolean"
BAD_VALUES = [
    *((METHODS, "iif_p50.selection.drop_percent", p, P) for p in (0, -1, 100.1, float("nan"), float("inf"), True)),
    *((METHODS, "iif_p50.selection.drop_percent", p, P) for p in ("0", "nan", "half", [50], 10**400)),
    *((FROZENLAKE, "drop_percent", p, "") for p in (0, -1, 100.1, float("nan"), True, "chosen")),
    (METHODS, "iif_p50.selection.drop_percent", 0.5, f"drop_percent = 0.5: {P}; did you mean 50?"),
    (FROZENLAKE, "drop_percent", 0.125, "expected a percentage from 1 to 100; did you mean 12.5?"),
    (METHODS, "iif_p50.selection.drop_percent", None, "selection influence needs drop_percent"),
    (METHODS, "ppo.selection.drop_percent", 50, "selection all takes no drop_percent"),
    (METHODS, "ppo.selection.priority_exponent", 0.6, "selection all takes no priority_exponent"),
    (METHODS, "ppo.selection.updates", "as_influence", "updates as_influence needs drop_percent"),
    (METHODS, "ppo.selection.updates", "as_all", "what selection all does anyway"),
    (METHODS, "random.selection.updates", "as_influence", "what selection random does anyway"),
    (METHODS, "ppo.selection.displacement", "as_influence", "displacement as_influence needs drop_percent"),
    (METHODS, "ppo.selection.displacement", "as_all", "what selection all does anyway"),
    (METHODS, "iif_p50.selection.displacement", "as_influence", "what selection influence does anyway"),
    (METHODS, "iif_p50.selection.displacement", "as_random", "'own', 'as_all' or 'as_influence'"),
    (METHODS, "ppo_lr3.ppo.learning_rate_factor", 1, "1 changes nothing; leave it out"),
    (METHODS, "ppo_lr3.ppo.learning_rate_factor", 0, "greater than 0"),
    (METHODS, "ppo_lr3.ppo.learning_rate_factor", None, "valid number"),
    (METHODS, "ppo_lr3.ppo.learning_rate_factor", float("nan"), "finite number"),
    (METHODS, "ppo.selection.kind", "influences", "'influence'"),
    (METHODS, "ppo.selection", "all", "expected a mapping"),
    (METHODS, "ppo", [], "expected a mapping"),
    *((METHODS, x, {"label": "x", "selection": {"kind": "all"}}, "is a value and no name") for x in ("nan", "null")),
    (FROZENLAKE, "id", "nan", "is a value and no name"),
    (STUDY, "study", "true", "is a value and no name"),
    (METHODS, "PPO", {"label": "x", "selection": {"kind": "all"}}, "expected a-z"),
    (METHODS, "ppo.label", "", "not empty"),
    (STUDY, "grid.0.seeds", [-1], "greater than or equal to 0"),
    (STUDY, "grid.0.seeds", [1, 2, 1], "repeated: 1"),
    (STUDY, "grid.0.seeds", [1, "1"], "repeated: 1"),
    (STUDY, "grid.0.seeds", [1, 1.0], "repeated: 1"),
    (STUDY, "grid.0.seeds", [3.5], "valid integer"),
    (STUDY, "grid.0.seeds", [True], NO_BOOLEAN),
    (STUDY, "grid.0.seeds", 3, "expected a list, or a range as in 0..9"),
    (STUDY, "grid.0.seeds", "0-4", "expected a list, or a range as in 0..9"),
    (STUDY, "grid.0.seeds", [], "at least one entry"),
    *((STUDY, "grid.0.seeds", x, "no range of seeds") for x in ("0..", "..9", "a..b", "-1..3", "0...3", "0..1e2")),
    (STUDY, "grid.0.seeds", "9..0", "expected a range that rises"),
    (STUDY, "grid.0.seeds", "0..10000", "at most 10000 seeds"),
    (STUDY, "grid.0.seeds", ["0..4", 3], "repeated: 3"),
    (STUDY, "grid.0.seeds", ["0..4", "4..5"], "repeated: 4"),
    (STUDY, "grid.0.seeds", f"0..{10**30}", "no range of seeds"),
    (STUDY, "grid.0.ppo", {"learning_rate": -1}, "greater than 0"),
    (STUDY, "grid.0.ppo", {"batch_size": 4096}, "batch_size 4096 is larger than the buffer (n_steps 2048)"),
    (STUDY, "grid.0.ppo", 3, "expected a mapping"),
    (STUDY, "grid.0.environments", {"frozenlake", "acrobot"}, "expected a list"),
    (STUDY, "grid.0.environments", "frozenlake", "expected a list"),
    (STUDY, "grid.0.environments", ["frozenlake", "frozenlake"], "repeated: frozenlake"),
    (STUDY, "grid.0.environments", ["pacman"], "grid block 1: unknown environment 'pacman'"),
    (STUDY, "grid.0.methods", ["ppo", "dqn"], "grid block 1: unknown method 'dqn'"),
    (STUDY, "grid.0.rounds", 0, "greater than or equal to 1"),
    (STUDY, "grid.0.rounds", -3, "greater than or equal to 1"),
    (STUDY, "grid.0.rounds", True, NO_BOOLEAN),
    (STUDY, "grid.0.rounds", 10**30, "less than or equal to 1000000000"),
    (STUDY, "grid.0.rounds", 2.5, "valid integer"),
    (STUDY, "grid.0.rounds", float("inf"), "finite number"),
    (STUDY, "grid.0.rounds", "many", "valid integer"),
    (STUDY, "grid.0.evaluation_episodes", 1, "greater than or equal to 2"),
    (STUDY, "grid", [], "at least one entry"),
    (STUDY, "grid", {"environments": ["frozenlake"]}, "expected a list"),
    (STUDY, "grid", [3], "expected a mapping"),
    (STUDY, "study", "../x", "expected a-z"),
    (STUDY, "study", "x/../../y", "expected a-z"),
    (STUDY, "study", "x\n", "expected a-z"),
    (STUDY, "study", "x" * 65, "expected a-z"),
    (STUDY, "study", True, NO_BOOLEAN),
    (STUDY, "tables", "table_2", "expected a list"),
    (FROZENLAKE, "ppo.batch_size", 0, "greater than or equal to 1"),
    (FROZENLAKE, "ppo.batch_size", 2049, "batch_size 2049 is larger than the buffer (n_steps 2048)"),
    (FROZENLAKE, "ppo.n_steps", 63, "batch_size 64 is larger than the buffer (n_steps 63)"),
    (FROZENLAKE, "ppo.n_steps", False, NO_BOOLEAN),
    (FROZENLAKE, "ppo.gamma", 1.01, "less than or equal to 1"),
    (FROZENLAKE, "ppo.gamma", float("nan"), "finite number"),
    (FROZENLAKE, "ppo.max_grad_norm", float("inf"), "finite number"),
    (FROZENLAKE, "ppo.learning_rate", 0, "greater than 0"),
    (FROZENLAKE, "ppo.learning_rate", "fast", "valid number"),
    (FROZENLAKE, "ppo.optimizer", "Adam", "'sgd', 'adam' or 'rmsprop'"),
    (FROZENLAKE, "ppo.normalize_advantage", 2, "valid boolean"),
    (FROZENLAKE, "ppo", None, "expected a mapping"),
    (FROZENLAKE, "rounds", 0, "greater than or equal to 1"),
    (FROZENLAKE, "evaluation.kind", "precise", "'exact', 'batched' or 'episodes'"),
    (FROZENLAKE, "evaluation.episodes", 1, "greater than or equal to 2"),
    (FROZENLAKE, "network", "transformer", "network 'transformer' is unknown; choices: mlp, minigrid_cnn"),
    (FROZENLAKE, "wrappers", ["greyscale"], "'image_only'"),
    (FROZENLAKE, "kwargs.x", float("nan"), "finite number"),
    (FROZENLAKE, "kwargs.x", {"a", "b"}, "not a valid JSON value"),
    (FROZENLAKE, "kwargs.x", b"\xff", "not a valid JSON value"),
    (FROZENLAKE, "package", "os.path; import x", "pattern"),
    (FROZENLAKE, "id", "frozen", "differs from the file's name"),
]


@pytest.mark.parametrize("file, place, value, words", BAD_VALUES)
def test_a_bad_value(file, place, value, words, folder, capsys):
    change(folder / file, place, value)
    line = error_line(folder, capsys)
    assert words in line, line
    if "unknown" not in line:  # the key by name
        assert place.split(".")[-1] in line or "larger than the buffer" in line, line
    assert Path(file).name in line or "unknown" in line, line


@pytest.mark.parametrize("first, second", [(25, 25.0), (25, "25"), (25.0, "25.00")])
def test_two_ids_for_one_setting(first, second, folder, capsys):
    for name, percent in (("iif_p25", first), ("iif_p25_again", second)):
        change(folder / METHODS, name, {"label": name, "selection": {"kind": "influence", "drop_percent": percent}})
    line = error_line(folder, capsys)
    assert "methods iif_p25 and iif_p25_again are the same setting" in line


def test_two_ids_that_one_environment_makes_the_same(folder):
    change(folder / STUDY, "grid.0.methods", ["iif_p12_5", "iif"])
    Config(folder / STUDY)  # FrozenLake's own p is 50
    change(folder / STUDY, "grid.0.methods", ["iif_p50", "iif"])
    with pytest.raises(ConfigError, match="iif_p50 and iif are the same setting in environment frozenlake"):
        Config(folder / STUDY)


def test_a_run_in_two_blocks(folder):
    block = {"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0]}
    change(folder / STUDY, "grid", [block, copy.deepcopy(block) | {"rounds": 3}])
    with pytest.raises(ConfigError, match="grid block 2 repeats environment frozenlake, method ppo, seed 0"):
        Config(folder / STUDY)


BOMB = "a: &a [x, x]\n" + "".join(f"{k}: &{k} [*{p}, *{p}]\n" for p, k in zip("abcdefgh", "bcdefghi", strict=True))
BAD_FILES = {
    "empty": (b"", "expected a mapping of keys, found NoneType"),
    "list": (b"- 1\n- 2\n", "expected a mapping of keys, found list"),
    "text": (b"study", "expected a mapping of keys, found str"),
    "binary": (bytes(range(256)), "cannot be read"),
    "nul": (b"study: a\0b", "not valid YAML"),
    "unclosed": (b"study: [1, 2", "not valid YAML"),
    "tabs": (b"study:\n\t- 1", "not valid YAML"),
    "repeated": (b"study: a\ngrid: []\nstudy: b", "key 'study' is repeated"),
    "repeated deep": (b"study: a\ngrid: [{seeds: [1], seeds: [2]}]", "key 'seeds' is repeated"),
    "number as key": (b"study: a\n1: b", "key 1 is not text"),
    "list as key": (b"? [a, b]\n: c", "key ['a', 'b'] is not text"),
    "bomb": (BOMB.encode(), "alias *a"),
    "endless": (b"study: &a [*a]", "alias *a"),
    "merge": (b"study: a\n<<: {grid: []}", "not valid YAML"),
    "python": (b"study: !!python/object/apply:os.system ['true']", "not valid YAML"),
    "bad tags": (b"study: !!int ''", "not valid YAML"),
    "bad date": (b"study: !!timestamp x", "not valid YAML"),
    "deep": (b"study: " + b"[" * 1200, "not valid YAML"),
    "long number": (b"study: a\ngrid: [{seeds: [0x" + b"f" * 5000 + b"]}]", "decimal digits only"),
    "octal number": (b"study: a\ngrid: [{seeds: [010]}]", "number '010': write whole numbers with decimal digits only"),
    "sexagesimal number": (b"study: a\ngrid: [{seeds: [1:30]}]", "number '1:30'"),
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("file", [STUDY, METHODS, FROZENLAKE])
def test_a_file_that_is_no_configuration(name, file, folder, capsys):
    content, words = BAD_FILES[name]
    (folder / file).write_bytes(content)
    line = error_line(folder, capsys)
    assert file in line
    if file == STUDY:
        assert words in line, line


def test_a_number_of_thousands_of_digits_among_an_environments_arguments(folder, capsys):
    (folder / FROZENLAKE).write_text((ROOT / "config" / FROZENLAKE).read_text().replace("4x4", "0x" + "f" * 5000))
    assert "decimal digits only" in error_line(folder, capsys)


@pytest.mark.parametrize("key", ["render_mode", "id"])
def test_arguments_that_are_not_an_environments(key, folder, capsys):
    text = (ROOT / "config" / FROZENLAKE).read_text()
    (folder / FROZENLAKE).write_text(text.replace("{map_name:", f"{{{key}: human, map_name:"))
    assert f"kwargs: {key} is not for an environment's file" in error_line(folder, capsys)


def test_no_catalogue(folder, capsys):
    (folder / METHODS).unlink()
    assert "methods.yaml" in error_line(folder, capsys)
    shutil.copy(ROOT / "config" / METHODS, folder)
    shutil.rmtree(folder / "environments")
    assert "no environment files" in error_line(folder, capsys)


def test_a_path_that_no_file_can_have():
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml("a\0b")


def test_a_run_spec_is_resolved():
    spec = load_run_spec(environment="frozenlake", method="random", seed=0, config=ROOT / "config/config.yaml")
    data = spec.model_dump()
    data["selection"]["drop_percent"] = "chosen"
    with pytest.raises(ConfigError, match="drop_percent chosen is not resolved"):
        parse(RunSpec, data, "here")


@pytest.mark.parametrize(
    "environment, package, extra",
    [
        ("frozenlake", "gymnasium", "environments"),
        ("minigrid", "minigrid", "environments"),
        ("highway", "highway_env", "environments"),
        ("lunarlander", "Box2D", "environments"),
        ("bipedalwalker", "Box2D", "environments"),
        ("pong", "ale_py", "environments"),
        ("pong", "cv2", "environments"),
        ("acrobot", "envpool", "fast"),  # test episodes
        ("highway", "envpool", "fast"),  # both
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(environment, package, extra, monkeypatch):
    environments = load_environments(ROOT / "config/environments")
    check_packages(environments[environment])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as error:
        check_environments(environments[name] for name in ("frozenlake", environment))
    line = f"environment {environment} needs the package {package}: in the clone, pip install '.[{extra}]'"
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
    assert ("set engine and evaluation_engine to gymnasium" in str(error.value)) == (extra == "fast")


def test_where_box2d_cannot_be_installed_no_command_is_advised(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ConfigError, match="lunarlander needs the package Box2D: it has no build for Linux on aarch64"):
        check_packages(load_environments(ROOT / "config/environments")["lunarlander"])


@pytest.mark.parametrize(
    "package, fits", [("lab.envs", True), ("_a.b_1.C", True), ("lab.", False), ("lab/envs", False)]
)
def test_a_package_may_be_a_dotted_name(package, fits):
    data = load_environments(ROOT / "config/environments")["acrobot"].model_dump() | {"package": package}
    if fits:
        assert parse(EnvironmentConfig, data, "test").package == package
    else:
        with pytest.raises(ConfigError, match="test: package = "):
            parse(EnvironmentConfig, data, "test")


def test_an_environment_that_does_not_name_envpool_does_not_need_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    check_packages(load_environments(ROOT / "config/environments")["frozenlake"])


@pytest.mark.slow
def test_environments_are_made_before_a_sweep_in_a_process_of_its_own():
    """The planning process itself must load no simulator and no torch."""
    script = """
import json, sys
from rl_influence.config import ConfigError, EnvironmentConfig, check_environments
for change in json.loads(sys.argv[2]):
    try:
        check_environments([EnvironmentConfig(**(json.loads(sys.argv[1]) | change))])
        print("made")
    except ConfigError as error:
        print(error)
print(*sorted({"torch", "gymnasium", "envpool"} & set(sys.modules)))
"""
    acrobot = load_environments(ROOT / "config/environments")["acrobot"].model_dump(mode="json")
    changes = [{}, {"gym_id": "Acrobat-v1"}]
    command = [sys.executable, "-c", script, json.dumps(acrobot), json.dumps(changes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made, refused, loaded = done.stdout.splitlines()
    assert (made, loaded) == ("made", "")
    assert refused.startswith("environment acrobot: gym_id 'Acrobat-v1' with {}: ")


def test_without_envpool_gymnasium_simulates(monkeypatch):
    arguments = dict(environment="highway", method="ppo", seed=0, config=ROOT / "config/paper.yaml")
    fast = load_run_spec(**arguments)
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.warns(UserWarning, match=r"environment highway: envpool is not installed; .*pip install '.\[fast\]'"):
        slow = load_run_spec(**arguments)
    assert (fast.environment.engine, fast.environment.evaluation_engine) == ("envpool", "envpool")
    assert (slow.environment.engine, slow.environment.evaluation_engine) == ("gymnasium", "gymnasium")
    changed = fast.model_dump()
    changed["environment"] |= {"engine": "gymnasium", "evaluation_engine": "gymnasium"}
    assert fingerprint(slow) == fingerprint(RunSpec(**changed)) != fingerprint(fast)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_run_spec(**arguments | {"environment": "frozenlake"})  # never needed it


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--environment=pacman"], ["--method=dqn"], ["--seed=-1"]])
def test_the_program_itself(arguments, tmp_path):
    options = ["--environment=frozenlake", "--method=ppo", "--seed=0", f"--output={tmp_path / 'out'}", *arguments]
    command = [sys.executable, "-m", "rl_influence", "run", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert arguments[0].split("=")[1] in done.stderr and not (tmp_path / "out").exists()


# Anything at all: success or a ConfigError of one line

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3000)
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.binary(max_size=5)
    | st.sampled_from(["chosen", "all", "influence", "td_error", "as_all", "ppo", "frozenlake", "../x", "1e9", "nan"])
    | st.sampled_from(["0..3", "3..0", "as_influence"])
)
VALUES = st.recursive(
    SCALARS,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=10) | st.integers(), x, max_size=4),
    max_leaves=8,
)
SMALL_METHODS = {
    "ppo": {"label": "PPO", "selection": {"kind": "all"}},
    "iif": {"label": "IIF", "selection": {"kind": "influence", "drop_percent": 50}, "ppo": {"max_grad_norm": None}},
    "td_error": {"label": "TD", "selection": {"kind": "td_error", "priority_exponent": 0.6}},
}
SMALL_STUDY = {
    "study": "s",
    "grid": [{"environments": ["frozenlake"], "methods": ["ppo", "iif", "td_error"], "seeds": [0, 1], "rounds": 2}],
    "figures": ["fig06_returns"],
    "tables": ["table_2"],
}
SMALL_ENVIRONMENT = yaml.safe_load((ROOT / "config" / FROZENLAKE).read_text())
SMALL = {STUDY: SMALL_STUDY, METHODS: SMALL_METHODS, FROZENLAKE: SMALL_ENVIRONMENT}


def places(node, path=()):
    """Every place inside nested mappings and lists."""
    yield path
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(value, (*path, key))


def replaced(node, path, value):
    """A copy of `node` with `value` at `path`."""
    if not path:
        return value
    changed = node.copy()
    changed[path[0]] = replaced(node[path[0]], path[1:], value)
    return changed


def dumped(content) -> bytes:
    return yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "replace")


def tried(files: dict[str, bytes]) -> str:
    """Loads a configuration: "accepted" or "refused"; anything else is a failure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "environments").mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        try:
            config = Config(folder / STUDY)
        except ConfigError as error:
            assert "\n" not in str(error) and len(str(error)) < 900, str(error)
            return "refused"
        for run in config.runs:
            directory = run_directory(config.study, run)
            assert ".." not in directory.parts and directory.parts[:2] == ("results", config.study)
        return "accepted"


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_fuzz_values(data):
    file = data.draw(st.sampled_from(list(SMALL)))
    content = SMALL[file]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(content))))
        content = replaced(content, path, data.draw(VALUES))
    tried({name: dumped(content) for name, content in (SMALL | {file: content}).items()})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_fuzz_bytes(data):
    files = {name: dumped(content) for name, content in SMALL.items()}
    file = data.draw(st.sampled_from(list(SMALL)))
    content = files[file]
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 10)))
    syntax = st.sampled_from(b"*a |&a |!!int |!!set |<<: |{|[|? |- |\n|\0|%|: ".split(b"|"))
    files[file] = content[:start] + data.draw(syntax | st.binary(max_size=8)) + content[end:]
    tried(files)


def test_fuzz_accepts_what_is_right():
    assert tried({name: dumped(content) for name, content in SMALL.items()}) == "accepted"
