"""A study's table of curves, and which method plays which part."""

import json
import re
import shutil

import numpy as np
import pytest

from rl_influence.analysis import curves
from rl_influence.config import Config, ConfigError
from rl_influence.runs.provenance import fingerprint
from synthetic import CATALOGUE, study, write_synthetic_study

SMALL = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0, 10], "rounds": 4}


@pytest.fixture(scope="module")
def config():
    return study(SMALL)


def test_a_study_holds_its_runs_in_its_order(tmp_path, config):
    write_synthetic_study(tmp_path, config, curve=lambda run: np.arange(5) + run.seed)
    loaded = curves.load_study(config, tmp_path)
    assert loaded.missing == () and len(loaded.curves) == 4 * 5
    runs = loaded.curves[["environment", "method", "seed"]].drop_duplicates().to_numpy().tolist()
    assert runs == [["frozenlake", method, seed] for method in ("ppo", "iif_p50") for seed in (0, 10)]
    assert loaded.curves["test_return"].tolist() == [*range(5), *range(10, 15)] * 2
    assert (loaded.runs["reason"] == "").all()
    assert loaded.runs["fingerprint"].tolist() == [fingerprint(run.spec) for run in config.runs]
    assert set(loaded.runs["numpy"]) == {np.__version__}


def test_what_is_missing_is_named_with_its_reason(tmp_path, config):
    folders = write_synthetic_study(tmp_path, config)
    shutil.rmtree(folders[0])
    leftover = folders[1].with_name("seed10-00000000")
    folders[1].rename(leftover)
    curve = folders[2] / "curve.csv"
    curve.write_text(curve.read_text().rstrip("\n"))
    loaded = curves.load_study(config, tmp_path)
    reasons = {(found.expected.method, found.expected.seed): found.reason for found in loaded.missing}
    assert reasons == {
        ("ppo", 0): f"no folder {folders[0].name}",
        ("ppo", 10): f"no folder {folders[1].name}; only another configuration or version: seed10-00000000",
        ("iif_p50", 0): f"{folders[2].name}/curve.csv: truncated, its last line has no end",
    }
    assert set(zip(loaded.curves["method"], loaded.curves["seed"], strict=True)) == {("iif_p50", 10)}
    assert (loaded.runs["reason"] != "").sum() == 3
    # the machine's own paths are no part of results
    assert not any(str(tmp_path) in reason for reason in loaded.runs["reason"])


def test_a_folder_that_the_study_does_not_expect_is_not_read(tmp_path, config):
    folders = write_synthetic_study(tmp_path, config)
    shutil.copytree(folders[0], folders[0].with_name("seed7-12345678"))
    loaded = curves.load_study(config, tmp_path)
    assert set(loaded.curves["seed"]) == {0, 10}


def test_an_empty_study(tmp_path, config):
    loaded = curves.load_study(config, tmp_path)
    assert len(loaded.curves) == 0 and len(loaded.missing) == 4
    assert list(loaded.curves.columns[:4]) == ["environment", "method", "seed", "round"]


def test_a_manifest_cannot_overwrite_the_table(tmp_path, config):
    folder = write_synthetic_study(tmp_path, config)[0]
    manifest = json.loads((folder / "manifest.json").read_text())
    for packages in ({"seed": "9", "reason": "x"}, ["numpy"], None):
        (folder / "manifest.json").write_text(json.dumps(manifest | {"packages": packages}))
        loaded = curves.load_study(config, tmp_path)
        assert loaded.runs["seed"].tolist() == [0, 10, 0, 10] and (loaded.runs["reason"] == "").all()


@pytest.fixture
def catalogue(tmp_path):
    """The catalogue with an Adam variant of MiniGrid and a few more methods."""
    folder = shutil.copytree(CATALOGUE, tmp_path / "config")
    text = (folder / "environments" / "minigrid.yaml").read_text()
    text = text.replace("id: minigrid\n", "id: minigrid_adam\n").replace("label: MiniGrid", "label: MiniGrid (Adam)")
    text = re.sub(r"ppo:.*", "ppo: {optimizer: adam, learning_rate: 0.0003}", text)
    (folder / "environments" / "minigrid_adam.yaml").write_text(text)
    methods = (folder / "methods.yaml").read_text()
    for name in ("noclip_a", "noclip_b"):
        methods = re.sub(rf"^{name}:.*\n", "", methods, flags=re.M)
    (folder / "methods.yaml").write_text(
        "a_noclip: {label: A, selection: {kind: influence, drop_percent: 37}, ppo: {max_grad_norm: null}}\n" + methods
    )
    return folder


def test_roles_come_from_what_methods_do(catalogue):
    config = study(
        {"environments": ["frozenlake", "minigrid", "minigrid_adam"], "methods": ["ppo", "iif_p12_5"], "seeds": [0]},
        folder=catalogue,
    )
    assert curves.reference_method(config) == "ppo"
    sweep = curves.iif_sweep(config)
    assert list(sweep.items()) == [
        ("iif_p6_25", 6.25),
        ("iif_p12_5", 12.5),
        ("iif_p25", 25),
        ("iif_p50", 50),
        ("iif_p100", 100),
    ]
    assert [curves.chosen_iif(config, e) for e in ("frozenlake", "minigrid", "minigrid_adam")] == [
        "iif_p50",
        "iif_p12_5",
        "iif_p12_5",
    ]
    own = study({"environments": ["frozenlake"], "methods": ["ppo", "iif"], "seeds": [0]}, folder=catalogue)
    assert curves.chosen_iif(own, "frozenlake") == "iif" and curves.iif_sweep(own) == sweep
    names = {name: curves.paper_id(own, "frozenlake", name) for name in ("iif", "ppo", "iif_p25", "iif_lr3")}
    assert names == {"iif": "iif_p50", "ppo": "ppo", "iif_p25": "iif_p25", "iif_lr3": "iif_lr3"}
    assert curves.adam_variants(config) == ["minigrid_adam"]
    assert curves.environments_of(config) == ["frozenlake", "minigrid", "minigrid_adam"]
    assert curves.methods_of(config) == ["ppo", "iif_p12_5"]


def test_a_catalogue_without_standard_ppo(catalogue):
    text = (catalogue / "methods.yaml").read_text()
    (catalogue / "methods.yaml").write_text("\n".join(line for line in text.split("\n") if "{kind: all}" not in line))
    config = study({"environments": ["frozenlake"], "methods": ["iif_p50"], "seeds": [0]}, folder=catalogue)
    with pytest.raises(ConfigError, match="no standard PPO"):
        curves.reference_method(config)


def test_the_repositorys_studies_load_without_results(tmp_path):
    for name in ("config", "paper", "smoke"):
        config = Config(CATALOGUE / f"{name}.yaml")
        assert len(curves.load_study(config, tmp_path).missing) == len(config.runs)


@pytest.mark.parametrize(
    ("most", "seeds", "compared"), [(3, 1, False), (3, 2, True), (2, 1, True), (10, 2, False), (10, 3, True)]
)
def test_an_environment_of_few_seeds_is_not_compared(most, seeds, compared):
    blocks = {"frozenlake": most, "acrobot": seeds}
    config = study(*(SMALL | {"environments": [name], "seeds": list(range(n))} for name, n in blocks.items()))
    assert curves.compared_environments(config) == ["frozenlake", "acrobot"][: 1 + compared]
