"""Paired comparisons and the controls' decomposition, against hand values."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rl_influence.analysis import contrasts
from rl_influence.analysis.curves import load_study, reference_method
from rl_influence.analysis.groups import returns_by_run
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.sample_efficiency import sample_efficiency
from rl_influence.analysis.tables import make_tables
from rl_influence.config import Config
from synthetic import CATALOGUE, study, write_synthetic_study

CONTROLS = ["ppo", "random", "iif_p50", "ppo_noclip", "iif_p50_noclip", "ppo_matched_updates", "iif_matched_updates"]


def test_rows_are_averaged_within_a_seed():
    table = pd.DataFrame(
        {
            "method": ["a", "a", "a", "a", "b", "b", "b"],
            "round": [1, 2, 1, 2, 1, 1, 1],
            "seed": [0, 0, 1, 1, 0, 1, 2],
            "x": [1.0, 3.0, 5.0, 7.0, 1.0, 3.0, 100.0],
            "y": [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, np.nan],
        }
    )
    own = contrasts.per_seed(contrasts.rows_where(table, {"method": "a"}), "x")
    other = contrasts.per_seed(contrasts.rows_where(table, {"method": "b"}), "x")
    assert own.to_dict() == {0: 2.0, 1: 6.0} and other.to_dict() == {0: 1.0, 1: 3.0, 2: 100.0}
    ratio = contrasts.per_seed(contrasts.rows_where(table, {"method": "b", "round": 1.0}), "x", over="y")
    assert ratio.to_dict() == {0: 0.5, 1: 1.5}  # the undefined one is left out
    table["y"] = [2.0, 0.0, 0.0, 0.0, 1, 1, 1]  # a ratio to 0 is undefined: a row of seed 0, all of seed 1
    assert contrasts.per_seed(contrasts.rows_where(table, {"method": "a"}), "x", over="y").to_dict() == {0: 0.5}


def test_rows_are_found_by_one_value_or_several():
    table = pd.DataFrame({"round": [2, 5, 10, 20], "arm": ["a", "b", "a", "c"]})
    assert contrasts.rows_where(table, {"round": [2, 10]}).index.tolist() == [0, 2]
    assert contrasts.rows_where(table, {"round": 5, "arm": ("a", "b")}).index.tolist() == [1]
    assert contrasts.rows_where(table, {"arm": "d"}).empty


def test_every_role_is_one_method_and_roles_differ():
    config = study({"environments": ["frozenlake", "minigrid"], "methods": CONTROLS, "seeds": [0]})
    roles = {role for _, _, *pair in contrasts.CONTRASTS for role in pair}
    for environment, percent in (("frozenlake", 50), ("minigrid", 12.5)):
        found = {role: contrasts.method_of(config, environment, role) for role in roles}
        assert len(set(found.values())) == len(roles)
        assert found[contrasts.PPO] == reference_method(config)
        for role, name in found.items():
            spec = config.resolve(environment, name, 0)
            assert spec.selection.kind == role.kind and spec.selection.updates == role.updates
            assert (spec.ppo.max_grad_norm is not None) == role.clipped
            if role.kind != "all":
                assert spec.selection.drop_percent == percent


def test_each_contrast_changes_what_its_effect_says():
    for effect, _, method, minus in contrasts.CONTRASTS:
        filters = method.kind != minus.kind
        # random and difficulty drop as many records as IIF: the same number of updates
        counts = {"all": "as_all", "influence": "as_influence", "random": "as_influence", "difficulty": "as_influence"}
        updates = len({counts[role.kind] if role.updates == "own" else role.updates for role in (method, minus)}) > 1
        clipping = method.clipped != minus.clipped
        changed = [name for name, on in (("filter", filters), ("updates", updates), ("clipping", clipping)) if on]
        assert effect == ("all three" if len(changed) == 3 else " and ".join(changed))


def test_catalogue_has_the_unclipped_iif_of_every_environment():
    config = Config(CATALOGUE / "config.yaml")
    for environment in config.environments:
        assert contrasts.method_of(config, environment, contrasts.IIF_UNCLIPPED), environment


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    config = study({"environments": ["frozenlake"], "methods": CONTROLS, "seeds": [0, 1, 2], "rounds": 12})
    root = tmp_path_factory.mktemp("controls")
    write_synthetic_study(root, config, skip=lambda run: run.method == "random" and run.seed == 1)
    return load_study(config, root)


def test_controls_compare_two_methods_directly(loaded):
    controls = make_tables(loaded, ("controls",), load_reported(CATALOGUE))["controls"]
    curves = returns_by_run(loaded)

    def pairs(method, minus, seeds=(0, 1, 2)):
        return [(curves["frozenlake", method, seed], curves["frozenlake", minus, seed]) for seed in seeds]

    def row(contrast, quantity):
        found = controls[(controls["contrast"] == contrast) & (controls["quantity"] == quantity)]
        return found.iloc[0]

    def check(found, values):
        half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
        expected = (np.mean(values), np.mean(values) - half, np.mean(values) + half)
        assert (found["value"], found["low"], found["high"]) == pytest.approx(expected)

    both = pairs("iif_p50", "ppo_matched_updates")
    label = "IIF − PPO with IIF's updates"
    check(row(label, "mean_training_return"), [np.trapezoid(a) / 12 - np.trapezoid(b) / 12 for a, b in both])
    check(row(label, "final_return"), [a[-2:].mean() - b[-2:].mean() for a, b in both])
    found = [sample_efficiency(b, a) for a, b in both]
    check(row(label, "se_ave"), [result.se_ave for result in found])
    assert row(label, "se_ave")["unreached"] == sum(result.unreached for result in found)
    mean = np.mean([curves["frozenlake", "ppo", seed] for seed in range(3)], axis=0)
    levels = [mean[0] + part * (mean.max() - mean[0]) for part in (0.5, 0.75, 0.9)]
    saved, never = [], 0
    for pair in both:
        rounds = [[next((k for k, x in enumerate(curve) if x >= level), None) for level in levels] for curve in pair]
        never += sum(None in level for level in zip(*rounds, strict=True))
        a, b = (np.array([12 if k is None else k for k in side]) for side in rounds)
        saved.append(np.mean((b - a) / np.maximum(a, b)))
    check(row(label, "rounds_saved"), saved)
    assert row(label, "rounds_saved")["unreached"] == never
    assert row("IIF − random", "final_return")[["n", "expected"]].tolist() == [2, 3]
    check(
        row("IIF − random", "final_return"),
        [a[-2:].mean() - b[-2:].mean() for a, b in pairs("iif_p50", "random", (0, 2))],
    )


def test_differences_of_returns_add_up(loaded):
    table = make_tables(loaded, ("controls",), load_reported(CATALOGUE))["controls"]
    rows = table[table["quantity"] == "mean_training_return"].set_index("contrast")["value"]
    whole = rows["IIF − PPO"]
    assert whole == pytest.approx(rows["IIF − PPO with IIF's updates"] + rows["PPO with IIF's updates − PPO"])
    assert whole == pytest.approx(rows["IIF with PPO's updates − PPO"] + rows["IIF − IIF with PPO's updates"])
    public = rows["IIF unclipped − PPO (public code)"]
    assert public == pytest.approx(whole + rows["IIF unclipped − IIF"])
    assert public == pytest.approx(rows["IIF unclipped − PPO unclipped"] + rows["PPO unclipped − PPO"])


def test_heuristics_are_compared_with_their_exact_selves_and_with_iif(tmp_path):
    methods = ["ppo", "iif_p50", "advantage_h1", "advantage_h1_exact"]
    config = study({"environments": ["frozenlake"], "methods": methods, "seeds": [0, 1], "rounds": 6})
    write_synthetic_study(tmp_path, config)
    table = make_tables(load_study(config, tmp_path), ("heuristics",), load_reported(CATALOGUE))["heuristics"]
    assert list(dict.fromkeys(table["contrast"])) == ["H1 exact − H1", "H1 exact − IIF", "H1 − IIF"]
    assert len(table) == 3 * 4


def test_study_without_controls_has_only_what_it_can_compare(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo", "td_error"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    table = make_tables(load_study(config, tmp_path), ("controls",), load_reported(CATALOGUE))["controls"]
    assert table.empty and list(table) == contrasts.COLUMNS
