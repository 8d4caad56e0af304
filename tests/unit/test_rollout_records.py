"""Records of a rollout as a table and as a picture; progress of long calls."""

import sys

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt

from rl_influence.integrations.buffers import progress
from rl_influence.integrations.records import RolloutRecords, plot_scores
from rl_influence.integrations.sb3 import rollout_records, train_and_score
from sb3_models import DICTIONARY, Toy, collected

plt.switch_backend("Agg")


def records(observations, actions):
    n = len(actions)
    columns = {
        name: np.arange(n) + 10.0 * k
        for k, name in enumerate(("values", "log_probs", "advantages", "returns", "rewards"))
    }
    return RolloutRecords(
        observations=observations,
        actions=actions,
        **columns,
        episode_starts=np.array([1.0] + [0.0] * (n - 1)),
        environments=np.zeros(n, int),
        steps=np.arange(n),
    )


def test_a_table_by_value():
    some = records(np.array([[0.5, 1.5], [2.5, 3.5]]), np.array([1, 0]))
    frame = some.to_frame(np.array([-1.0, 2.0]))
    assert frame.to_dict("list") == {
        "environment": [0, 0],
        "step": [0, 1],
        "episode_start": [True, False],
        "observation_0": [0.5, 2.5],
        "observation_1": [1.5, 3.5],
        "action": [1, 0],
        "reward": [40, 41],
        "value": [0, 1],
        "return": [30, 31],
        "advantage": [20, 21],
        "log_prob": [10, 11],
        "influence": [-1, 2],
    }
    assert "influence" not in some.to_frame()
    with pytest.raises(ValueError, match=r"scores have shape \(3,\), but there are 2 records"):
        some.to_frame(np.zeros(3))


def test_columns_of_vectors_dictionaries_and_images():
    frame = records(np.zeros((3, 36, 36, 1), np.uint8), np.zeros((3, 2))).to_frame()
    assert [name for name in frame if "observation" in name] == []
    assert [name for name in frame if "action" in name] == ["action_0", "action_1"]
    model = collected(env=lambda: Toy(DICTIONARY), policy="MultiInputPolicy", n_steps=8, batch_size=8)
    of_keys = rollout_records(model.rollout_buffer)
    frame = of_keys.to_frame()
    names = ["observation_place", *(f"observation_vector_{i}" for i in range(3))]
    assert [name for name in frame if "observation" in name] == names
    assert frame["observation_place"].tolist() == of_keys.observations["place"][:, 0].tolist()
    assert len(of_keys[np.array([1, 5])].to_frame()) == 2


def test_a_picture_shows_each_record_once_in_each_panel():
    some = records(np.zeros((4, 1)), np.zeros(4, int))
    scores = np.array([3.0, -1.0, 0.0, -2.0])
    figure = plot_scores(some, scores, kept=np.array([0, 1, 2]))
    along, against = figure.axes
    points, dropped = (collection.get_offsets() for collection in along.collections[1:])
    np.testing.assert_array_equal(points, np.stack([np.arange(4), scores], axis=1))
    np.testing.assert_array_equal(dropped, [[3, -2.0]])
    np.testing.assert_array_equal(against.collections[0].get_offsets()[:, 0], some.advantages)
    assert along.get_title() == "4 records: 25% help (blue), 50% harm (orange)"
    with pytest.raises(ValueError, match=r"scores have shape \(2,\), but there are 4 records"):
        plot_scores(some, np.zeros(2))
    plt.close("all")


def test_a_long_call_shows_how_far_it_is(capsys):
    model = collected(n_steps=32, batch_size=16, n_epochs=2)
    train_and_score(model, progress_bar=True)
    assert "TracIn" in capsys.readouterr().err
    model = collected(n_steps=32, batch_size=16, n_epochs=2)
    train_and_score(model)
    assert capsys.readouterr().err == ""


def test_without_rich_a_line_for_every_tenth(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress("TracIn", 25, True) as advance:
        for _ in range(25):
            advance()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10 and lines[0] == "TracIn: 3 of 25 steps" and lines[-1] == "TracIn: 25 of 25 steps"
