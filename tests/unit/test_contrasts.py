"""Paired comparisons and the controls' decomposition, against hand values."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rl_influence.analysis import contrasts
from rl_influence.analysis.curves import load_study, reference_method
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import make_tables
from rl_influence.config import Config
from synthetic import CATALOGUE, study, write_synthetic_study

CONTROLS = ["ppo", "random", "iif_p50", "ppo_noclip", "iif_p50_noclip", "ppo_matched_updates", "iif_matched_updates"]


def test_rows_are_averaged_within_a_seed_and_seeds_are_paired():
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
    difference = contrasts.contrast(own, other)  # differences 1 and 3; seed 2 has no partner
    half = stats.t.ppf(0.975, 1) * np.sqrt(2) / np.sqrt(2)
    assert difference == pytest.approx((2.0, 2.0 - half, 2.0 + half, 2))
    assert contrasts.contrast(own).mean == 4.0
    ratio = contrasts.per_seed(contrasts.rows_where(table, {"method": "b", "round": 1.0}), "x", over="y")
    assert ratio.to_dict() == {0: 0.5, 1: 1.5}  # the undefined one is left out


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
def tables(tmp_path_factory):
    config = study({"environments": ["frozenlake"], "methods": CONTROLS, "seeds": [0, 1, 2], "rounds": 12})
    root = tmp_path_factory.mktemp("controls")
    write_synthetic_study(root, config, skip=lambda run: run.method == "random" and run.seed == 1)
    names = ("controls", "returns_per_seed", "efficiency_per_seed")
    return make_tables(load_study(config, root), names, load_reported(CATALOGUE))


def test_controls_table_by_hand(tables):
    controls, returns, efficiency = (tables[x] for x in ("controls", "returns_per_seed", "efficiency_per_seed"))

    def values(table, method, quantity):
        return table[table["method"] == method].set_index("seed")[quantity]

    def row(contrast, quantity):
        found = controls[(controls["contrast"] == contrast) & (controls["quantity"] == quantity)]
        return found.iloc[0]

    auc = values(returns, "iif_p50", "mean_training_return") - values(
        returns, "ppo_matched_updates", "mean_training_return"
    )
    found = row("IIF − PPO with IIF's updates", "mean_training_return")
    assert (found["value"], found["n"], found["expected"]) == (pytest.approx(auc.mean()), 3, 3)
    half = stats.t.ppf(0.975, 2) * auc.std(ddof=1) / np.sqrt(3)
    assert (found["low"], found["high"]) == pytest.approx((auc.mean() - half, auc.mean() + half))
    se = values(efficiency, "iif_p50", "se_ave")
    assert row("IIF − PPO", "se_ave")["value"] == pytest.approx(se.mean())  # PPO saves nothing against itself
    against = values(efficiency, "ppo_matched_updates", "se_ave")
    assert row("IIF − PPO with IIF's updates", "se_ave")["value"] == pytest.approx((se - against).mean())
    unreached = (
        values(efficiency, "iif_p50", "unreached").sum() + values(efficiency, "ppo_matched_updates", "unreached").sum()
    )
    assert row("IIF − PPO with IIF's updates", "se_ave")["unreached"] == unreached
    assert row("IIF − random", "mean_training_return")[["n", "expected"]].tolist() == [2, 3]


@pytest.mark.parametrize("quantity", ["se_ave", "mean_training_return"])
def test_effects_add_up(tables, quantity):
    rows = tables["controls"][tables["controls"]["quantity"] == quantity].set_index("contrast")["value"]
    whole = rows["IIF − PPO"]
    assert whole == pytest.approx(rows["IIF − PPO with IIF's updates"] + rows["PPO with IIF's updates − PPO"])
    assert whole == pytest.approx(rows["IIF with PPO's updates − PPO"] + rows["IIF − IIF with PPO's updates"])
    public = rows["IIF unclipped − PPO (public code)"]
    assert public == pytest.approx(whole + rows["IIF unclipped − IIF"])
    assert public == pytest.approx(rows["IIF unclipped − PPO unclipped"] + rows["PPO unclipped − PPO"])


def test_study_without_controls_has_only_what_it_can_compare(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo", "td_error"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    table = make_tables(load_study(config, tmp_path), ("controls",), load_reported(CATALOGUE))["controls"]
    assert table.empty and list(table) == contrasts.COLUMNS
