"""Diagnosis: states by replaying the environment, measures by loops, the sign convention by planted cases."""

import base64
import io
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats

from rl_influence import seeding
from rl_influence.analysis import diagnosis
from rl_influence.analysis.diagnosis import (
    advantage_errors,
    analyse,
    bottom_on_grid,
    by_rank,
    extreme_records,
    model_and_states,
    replay,
    summary,
    true_advantages,
)
from rl_influence.analysis.registry import ANALYSES
from rl_influence.analysis.statistics import t_interval
from rl_influence.config import ConfigError, EnvironmentConfig, RunSpec
from rl_influence.environments import make_env, tabular
from rl_influence.evaluation.true_advantages import exact_advantages
from rl_influence.runs import snapshots, training

ENVIRONMENTS = {
    "frozenlake": {"gym_id": "FrozenLake-v1", "kwargs": {"map_name": "4x4", "is_slippery": False}},
    "minigrid": {
        "gym_id": "MiniGrid-Empty-8x8-v0",
        "package": "minigrid",
        "wrappers": ["image_only"],
        "network": "minigrid_cnn",
    },
    "acrobot": {"gym_id": "Acrobot-v1", "evaluation": {"kind": "batched"}},
}


def make_snapshot(folder, name, k=1):
    environment = {"id": name, "label": name, "rounds": 2, "drop_percent": 50, "evaluation": {"kind": "exact"}}
    environment |= ENVIRONMENTS[name]
    spec = RunSpec(
        environment=environment,
        selection={"kind": "all"},
        ppo={"n_steps": 300, "batch_size": 50, "n_epochs": 1},
        rounds=2,
        evaluation=environment["evaluation"],
        seed=6,
    )
    training.take_snapshots(spec, [0, 1], folder, log=lambda line: None)
    return snapshots.load(folder, k)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: tmp_path_factory.mktemp(name) for name in ENVIRONMENTS}


@pytest.fixture(scope="module")
def frozenlake(folders):
    return make_snapshot(folders["frozenlake"], "frozenlake")


@pytest.mark.parametrize("name", ["frozenlake", "minigrid"])
def test_states_equal_those_of_the_environment_itself(folders, name, monkeypatch):
    second = make_snapshot(folders[name], name)
    first = snapshots.load(folders[name], 0)
    assert len(second.episode_actions) > 0  # the buffer begins within an episode
    env = make_env(second.spec.environment)
    env.reset(seed=seeding.integer(seeding.seed_sequence(6, "environment")))
    places, steps, step = [], [], 0
    for records in (first.records, second.records):
        for i, action in enumerate(records.actions.tolist()):
            inner = env.unwrapped
            if name == "minigrid":
                places.append((*map(int, inner.agent_pos), int(inner.agent_dir)))
            else:
                places.append(divmod(int(inner.s), 4))
            steps.append(step)
            env.step(action)
            step += 1
            if records.terminated[i] or records.truncated[i]:
                env.reset()
                step = 0
    model, (states, found_steps, *_) = model_and_states(second)
    np.testing.assert_array_equal(model.labels[states], places[300:])
    np.testing.assert_array_equal(found_steps, steps[300:])

    exact = true_advantages(second, "exact")
    probabilities = tabular.policy_probabilities(second.policy(), model)
    expected = exact_advantages(model, probabilities, states, second.records.actions, found_steps, gamma=0.99)
    np.testing.assert_array_equal(exact, expected)
    number = {"frozenlake": 400, "minigrid": 4}[name]
    monkeypatch.setattr(diagnosis, "TOTAL_ROLLOUTS", 10**9)
    monkeypatch.setattr(diagnosis, "MOST_ROLLOUTS", number)
    rollouts = true_advantages(second, "rollouts")
    assert np.abs(rollouts - exact).mean() < 0.5 / number**0.5  # returns lie between 0 and 1
    np.testing.assert_array_equal(rollouts, true_advantages(second, "rollouts"))


def test_replay_of_random_outcomes_is_undecided():
    slippery = {"gym_id": "FrozenLake-v1", "kwargs": {"is_slippery": True}}
    spec = {"id": "lake", "label": "lake", "rounds": 1, "drop_percent": 50, "evaluation": {"kind": "exact"}}
    model = tabular.tabular_model(make_env(EnvironmentConfig(**spec | slippery)))
    assert replay(model, []) == 0
    assert replay(model, [2]) is None


def test_errors_record_by_record():
    generator = np.random.default_rng(0)
    influence, estimated, true = generator.standard_normal((3, 30))
    true[3] = 0.0
    influence[7] = influence[9]
    errors = advantage_errors(influence, estimated, true)
    ranked = sorted(range(30), key=lambda i: (-influence[i], i))
    assert errors.record.tolist() == ranked
    for row, i in zip(errors.itertuples(), ranked, strict=True):
        assert (row.rank, row.influence) == (ranked.index(i) + 1, influence[i])
        assert row.error == abs(true[i] - estimated[i]) and row.product == true[i] * estimated[i]
        if i == 3:
            assert np.isnan(row.sign_agrees)
        else:
            assert row.sign_agrees == ((true[i] > 0) == (estimated[i] > 0))

    binned = by_rank(errors, bins=4)  # 8, 8, 7 and 7 records
    assert binned.records.tolist() == [8, 8, 7, 7]
    assert (binned.first_rank[0], binned.last_rank[3], binned.first_rank[2]) == (1, 30, 17)
    third = ranked[16:23]
    assert binned.error[2] == pytest.approx(np.mean([abs(true[i] - estimated[i]) for i in third]))
    assert binned["product"][2] == pytest.approx(np.mean([true[i] * estimated[i] for i in third]))
    agree = [true[i] * estimated[i] > 0 for i in third if true[i] != 0]
    assert binned.sign_agreement[2] == pytest.approx(np.mean(agree))

    found = summary(errors, bottom=5)
    rho = stats.spearmanr(influence, true * estimated).statistic
    assert found["spearman_product"] == pytest.approx(rho)
    by_decreasing_influence = stats.spearmanr(errors["rank"], errors["product"])
    # ties of influence share a rank in the one and not in the other
    assert found["spearman_product_by_rank"] == pytest.approx(by_decreasing_influence.statistic, abs=0.01)
    assert found["error_bottom"] == pytest.approx(np.mean([abs(true[i] - estimated[i]) for i in ranked[-5:]]))


def test_sign_convention():
    # the paper's picture: helpful records have the right sign, harmful ones the wrong one
    estimated = np.array([2.0, 1.0, 0.5, -0.5, 1.0, -2.0])
    true = np.array([2.0, 1.0, 0.4, 0.1, -0.6, 1.0])
    influence = np.array([3.0, 2.0, 1.0, -1.0, -2.0, -3.0])
    found = summary(advantage_errors(influence, estimated, true), bottom=3)
    assert found["spearman_product"] == 1 and found["spearman_product_by_rank"] == -1
    assert found["sign_agreement"] == 0.5 and found["sign_agreement_bottom"] == 0


def test_undefined_is_nan():
    found = summary(advantage_errors(np.ones(5), np.arange(5.0), np.zeros(5)))
    undefined = ("spearman_product", "spearman_product_by_rank", "spearman_error", "sign_agreement")
    assert all(np.isnan(found[key]) for key in undefined)


def test_tables_of_a_run(folders, frozenlake):
    tables = analyse(frozenlake.spec, folders["frozenlake"], (0, 1))
    assert tuple(tables) == ANALYSES["diagnosis"].tables
    rows = tables["diagnosis"]
    assert rows[["round", "source"]].values.tolist() == [[k, source] for k in (0, 1) for source in diagnosis.SOURCES]
    true = true_advantages(frozenlake, "exact")
    errors = advantage_errors(frozenlake.influence(), frozenlake.records.advantages, true)
    assert rows.iloc[-1].to_dict().items() >= summary(errors).items()
    ranked = tables["diagnosis_by_rank"]
    ranked = ranked[(ranked["round"] == 1) & (ranked.source == "exact")].drop(columns=["round", "source"])
    pd.testing.assert_frame_equal(ranked.reset_index(drop=True), by_rank(errors))
    grid = tables["diagnosis_grid"]
    grid = grid[grid["round"] == 1].drop(columns="round").reset_index(drop=True)
    pd.testing.assert_frame_equal(grid, bottom_on_grid(frozenlake, frozenlake.influence(), true))
    records = tables["diagnosis_records"]
    assert records[["round", "end", "place"]].values.tolist() == [
        [k, end, place] for k in (0, 1) for end in ("top", "bottom") for place in range(1, 11)
    ]
    assert {"row", "column", "influence", "advantage"} <= set(records) and "observation" not in records


def test_without_a_model_there_is_only_the_buffers_own_estimate(folders):
    acrobot = make_snapshot(folders["acrobot"], "acrobot")
    tables = analyse(acrobot.spec, folders["acrobot"], (1,))
    assert tables["diagnosis"].source.tolist() == ["buffer"]
    assert tables["diagnosis_grid"].empty and tables["diagnosis_map"].empty
    records = tables["diagnosis_records"]
    assert records.end.value_counts().to_dict() == {"top": 10, "bottom": 10, "mean": 1, "std": 1}
    velocity = acrobot.records.observations[:, 4].astype(np.float64)
    assert records.loc[records.end == "mean", "velocity1"].item() == pytest.approx(velocity.mean(), rel=1e-5)
    assert records.loc[records.end == "std", "velocity1"].item() == pytest.approx(velocity.std(ddof=1), rel=1e-5)


def test_continuous_actions_and_frames_are_listed(monkeypatch):
    generator = np.random.default_rng(0)
    actions = generator.normal(size=(30, 2))
    frames = generator.integers(0, 256, (30, *diagnosis.FRAME), dtype=np.uint8)
    table = pd.DataFrame({"record": range(30), "action": actions.tolist(), "advantage": 0.0, "observation": 0})

    def extreme_records(snapshot, influence, *, number):
        order = np.argsort(-influence, kind="stable")
        ends = {"top": order[:number], "bottom": order[::-1][:number]}
        parts = [table.iloc[rows].assign(end=end, place=range(1, number + 1)) for end, rows in ends.items()]
        return pd.concat(parts, ignore_index=True)

    monkeypatch.setattr(diagnosis, "extreme_records", extreme_records)
    environment = SimpleNamespace(gym_id="ALE/Pong-v5")
    records = SimpleNamespace(observations=frames, actions=actions)
    snapshot = SimpleNamespace(records=records, spec=SimpleNamespace(environment=environment))
    listed = diagnosis._listed(snapshot, np.arange(30.0))
    worst = listed[listed.end == "bottom"]
    assert worst.record.tolist() == list(range(10)) and "observation" not in listed and "action" not in listed
    np.testing.assert_array_equal(worst[["action0", "action1"]], actions[:10])
    np.testing.assert_allclose(listed.loc[listed.end == "std", "action1"], actions[:, 1].std(ddof=1))
    picture = Image.open(io.BytesIO(base64.b64decode(worst.frame.iloc[3])))
    np.testing.assert_array_equal(np.asarray(picture), frames[3, -1])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"gym_id": "FrozenLake-v1", "kwargs": {"map_name": "4x4", "is_slippery": False}}, "SFFF FHFH FFFH HFFG"),
        ({"gym_id": "FrozenLake-v1", "kwargs": {"map_name": "4x4", "is_slippery": True}}, "SFFF FHFH FFFH HFFG"),
        ({"gym_id": "MiniGrid-Empty-5x5-v0", "package": "minigrid", "wrappers": ["image_only"]}, "SFF FFF FFG"),
    ],
)
def test_maps(environment, expected):
    spec = {"id": "grid", "label": "grid", "rounds": 1, "drop_percent": 50, "evaluation": {"kind": "exact"}}
    tiles = diagnosis.map_tiles(tabular.tabular_model(make_env(EnvironmentConfig(**spec | environment))))
    rows = tiles.groupby("y", sort=True)["tile"].agg(lambda row: "".join(row.str[0].str.upper()))
    assert " ".join(rows) == expected
    assert (tiles.groupby("y")["x"].diff().dropna() == 1).all()


def test_intervals_over_seeds(folders, frozenlake):
    rows = analyse(frozenlake.spec, folders["frozenlake"], (1,))["diagnosis"]
    rows = rows.assign(environment="frozenlake", method="ppo")
    seeds = pd.concat([rows.assign(seed=s, spearman_product=rows.spearman_product + s / 10) for s in range(4)])
    seeds.loc[(seeds.seed == 2) & (seeds.source == "buffer"), "spearman_product"] = np.nan
    found = diagnosis.SUMMARIES["diagnosis_summary"]({"diagnosis": seeds})
    found = found.set_index(["environment", "method", "round", "source"])
    row = found.loc[("frozenlake", "ppo", 1, "buffer")]
    values = seeds[(seeds.source == "buffer") & (seeds.seed != 2)].spearman_product
    mean, low, high, _ = t_interval(values)
    assert (row.spearman_product, row.spearman_product_low, row.spearman_product_high) == (mean, low, high)
    assert row.n == 4 and "records" not in found


def test_bottom_on_the_grid(frozenlake):
    scores = frozenlake.influence()
    true = true_advantages(frozenlake, "exact")
    grid = bottom_on_grid(frozenlake, scores, true, number=40)
    worst = [i for i in sorted(range(300), key=lambda i: (scores[i], i))[:40] if scores[i] < 0]
    cells = {}
    for i in worst:
        row, column = divmod(int(frozenlake.records.observations[i]), 4)
        cells.setdefault((row, column, int(frozenlake.records.actions[i])), []).append(i)
    assert len(grid) == len(cells) and grid.records.sum() == len(worst)
    for cell in grid.itertuples():
        members = cells[cell.row, cell.column, cell.action]
        estimated = frozenlake.records.advantages[members]
        assert cell.records == len(members)
        assert cell.influence == pytest.approx(scores[members].sum(), rel=1e-5)
        assert cell.estimated == pytest.approx(estimated.mean(), rel=1e-5)
        assert cell.true == pytest.approx(true[members].mean())
        assert cell.positive == np.mean(estimated > 0)


def test_extreme_records_are_readable(folders, frozenlake):
    scores = frozenlake.influence()
    order = np.argsort(-scores, kind="stable")
    table = extreme_records(frozenlake, scores, number=7)
    assert table[table.end == "top"].record.tolist() == order[:7].tolist()
    assert table[table.end == "bottom"].record.tolist() == order[:-8:-1].tolist()
    assert table.place.tolist() == [*range(1, 8)] * 2
    assert (table.row * 4 + table.column == frozenlake.records.observations[table.record]).all()
    minigrid = make_snapshot(folders["minigrid"], "minigrid")
    table = extreme_records(minigrid, minigrid.influence(), number=3)
    assert {"x", "y", "direction", "influence", "advantage"} <= set(table.columns)
    acrobot = make_snapshot(folders["acrobot"], "acrobot")
    table = extreme_records(acrobot, np.arange(300.0), number=2)
    assert table.record.tolist() == [299, 298, 0, 1]
    np.testing.assert_array_equal(table.velocity2, acrobot.records.observations[[299, 298, 0, 1], 5])


def test_state_names_fit_the_observations():
    pytest.importorskip("highway_env")  # registers its ids
    for name, names in diagnosis.STATE_NAMES.items():
        assert len(names) == len(set(names)) == np.prod(gym.make(name).observation_space.shape)


def test_refusals(frozenlake, folders):
    with pytest.raises(ConfigError, match="source 'guess' .* choices: buffer, rollouts, exact"):
        true_advantages(frozenlake, "guess")
    with pytest.raises(ConfigError, match="Acrobot"):
        true_advantages(make_snapshot(folders["acrobot"], "acrobot"), "exact")
