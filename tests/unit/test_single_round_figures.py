"""What the figures of behaviours, interventions and faithfulness show, read back from their artists."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from pictures import assert_legible
from rl_influence import figures
from rl_influence.config import Config
from rl_influence.figures import behaviours, fig04_highway, fig05_interventions, fig10_acrobot, style
from rl_influence.figures import fig_faithfulness as faithfulness
from synthetic import (
    CATALOGUE,
    behaviour_tables,
    faithfulness_tables,
    interventions_tables,
    no_missing_analyses,
)

SEEDS = (0, 1, 2)
NAMES = ("fig04_highway", "fig05_interventions", "fig10_acrobot", "fig_faithfulness")


@pytest.fixture(scope="module")
def made():
    """Config and tables: figure -> its tables; the interventions lack a run."""
    config = Config(CATALOGUE / "paper.yaml")
    behaviour = behaviour_tables(config, [("acrobot", "ppo", 0), ("acrobot", "ppo", 1), ("highway", "ppo", 0)])
    runs = [("frozenlake", "ppo", seed) for seed in SEEDS] + [("acrobot", "ppo", 0)]
    interventions = interventions_tables(config, runs)
    lost = ("interventions", "acrobot", "ppo", 1, "no folder")
    interventions["missing_analyses"].loc[0] = lost
    return config, {
        "fig04_highway": behaviour,
        "fig05_interventions": interventions,
        "fig10_acrobot": behaviour,
        "fig_faithfulness": faithfulness_tables(config, runs[:3]),
    }


@pytest.fixture(scope="module")
def drawn(made):
    config, tables = made
    return {name: figures.make(name, tables[name], config) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_off_or_covered_or_too_small(drawn, name):
    assert_legible(drawn[name])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_draw_is_said_in_the_figure(made, name):
    config, tables = made
    empty = {key: table.iloc[:0] for key, table in tables[name].items()}
    columns = ["environment", "method", "seed"]
    bare = {key: pd.DataFrame(columns=columns) for key in tables[name]} | {"missing_analyses": no_missing_analyses()}
    for nothing in (empty, bare):  # the latter is what no analysis at all leaves
        (text,) = figures.make(name, nothing, config).texts
        assert text.get_text().startswith(f"{name}: nothing to draw: no run")
        assert "-v" not in text.get_text()  # an environment's label, not its id


# Interventions

PAIRS = {"negative": 2.5, "negative_p": 4.8}  # where the points of a removal end


def test_boxes_are_quartiles_of_the_rounds_in_which_a_seed_still_learns(made):
    config, tables = made
    table = tables["fig05_interventions"]["interventions"].copy()
    table["return_before"] = table["round"] / 10  # of rounds 0 to 7 the last begins with more than 0.9 of the way
    figure = figures.make("fig05_interventions", tables["fig05_interventions"] | {"interventions": table}, config)
    for axis, environment in zip(figure.axes[:2], ("frozenlake", "acrobot"), strict=True):
        assert axis.get_title() == {"frozenlake": "FrozenLake", "acrobot": "Acrobot"}[environment]
        assert len(axis.patches) == len(fig05_interventions.ARMS)
        for patch, (arm, (place, color)) in zip(axis.patches, fig05_interventions.ARMS.items(), strict=True):
            rows = table[(table["environment"] == environment) & (table["arm"] == arm) & (table["round"] < 7)]
            vertices = patch.get_path().vertices
            found = vertices[:, 1].min(), vertices[:, 1].max()
            assert found == pytest.approx(tuple(np.quantile(rows["delta"], [0.25, 0.75])))
            assert vertices[:, 0].mean() == pytest.approx(place, abs=0.2) and to_hex(patch.get_facecolor()) == color


def test_differences_are_paired_by_round_with_the_seed_as_the_unit(made, drawn):
    table = made[1]["fig05_interventions"]["interventions"]
    table = table[table["environment"] == "frozenlake"].set_index(["seed", "round", "arm"])["delta"]
    axis = drawn["fig05_interventions"].axes[2]
    for arm, minus, marker in (("negative", "all", "o"), ("negative", "random", "X"), ("negative_p", "random_p", "X")):
        by_hand = [np.mean([table[seed, k, arm] - table[seed, k, minus] for k in range(8)]) for seed in SEEDS]
        lines = [x for x in axis.lines if fig05_interventions.ARMS[arm][0] < x.get_xdata()[0] <= PAIRS[arm]]
        (mean,) = [line for line in lines if line.get_marker() == marker]
        assert mean.get_ydata() == pytest.approx([np.mean(by_hand)])
        (place,) = mean.get_xdata()
        (bar,) = [line.get_ydata() for line in lines if line.get_linewidth() == 1.1 and line.get_xdata()[0] == place]
        half = 4.302653 * np.std(by_hand, ddof=1) / np.sqrt(3)  # t(0.975, 2)
        assert bar == pytest.approx([np.mean(by_hand) - half, np.mean(by_hand) + half], rel=1e-5)
        (dots,) = [x for x in lines if x.get_marker() == "." and 0 < x.get_xdata()[0] - place < 0.2]
        assert sorted(dots.get_ydata()) == pytest.approx(sorted(by_hand))
    single = drawn["fig05_interventions"].axes[3]  # one seed of Acrobot: no bars
    assert not [line for line in single.lines if line.get_linewidth() == 1.1]


def test_panels_say_how_many_and_how_exact(drawn):
    figure = drawn["fig05_interventions"]
    small = [" ".join(text.get_text().split()) for axis in figure.axes[:2] for text in axis.texts]
    assert small == ["p = 50 %, n = 3, 8 rounds", "p = 50 %, n = 1, 8 rounds; sampling \u00b1 0.042"]
    assert "Missing analyses: 1 of Acrobot, PPO (missing_analyses.csv)." in figure.notes


# Faithfulness


def test_scores_stand_in_their_rows(made, drawn):
    table = made[1]["fig_faithfulness"]["faithfulness"]
    figure = drawn["fig_faithfulness"]
    assert [axis.get_title() for axis in figure.axes] == ["round 2", "round 5"] * 2
    for axis, (removal, k) in zip(
        figure.axes, [("subsets", 2), ("subsets", 5), ("groups", 2), ("groups", 5)], strict=True
    ):
        rows = table[(table["removal"] == removal) & (table["round"] == k)]
        scorings = list(rows["scoring"].unique())
        if k == 2:
            assert [label.get_text() for label in axis.get_yticklabels()] == scorings
        for outcome, (color, marker, _) in faithfulness.OUTCOMES.items():
            mine = [line for line in axis.lines if to_hex(line.get_color()) == color]
            own = rows[rows["outcome"] == outcome].dropna(subset="spearman")  # without the undefined one
            seeds = {round(x.get_ydata()[0]): x.get_xdata().tolist() for x in mine if x.get_marker() == marker}
            means = {round(x.get_ydata()[0]): x.get_xdata()[0] for x in mine if x.get_marker() == "|"}
            expected = {scorings.index(name): part.tolist() for name, part in own.groupby("scoring")["spearman"]}
            assert seeds == expected and means == {k: pytest.approx(np.mean(v)) for k, v in expected.items()}
    texts = [text.get_text().strip() for text in figure.axes[0].texts]
    assert texts == ["FrozenLake", "random halves, n = 3"] and "random halves: 50" in figure.notes


# Behaviours


def test_behaviour_panels_by_value(made, drawn):
    tables = made[1]["fig10_acrobot"]
    table = tables["behaviour"]
    first = table[(table["environment"] == "acrobot") & (table["seed"] == 0)]
    target, left, middle, *pictures = drawn["fig10_acrobot"].axes
    black = [line for line in left.lines if line.get_linewidth() == 1.3 and line.get_marker() == "None"]
    np.testing.assert_allclose(black[0].get_ydata(), first[first["neighbours"] == 20]["probability"])
    (shown,) = [line for line in left.lines if line.get_marker() == "v"]
    np.testing.assert_array_equal(shown.get_xdata(), [1, 5, 10])
    breaks = [line.get_xdata()[0] for line in left.lines if line.get_linestyle() == ":"]
    assert breaks == [3.5, 7.5]
    for place, u in enumerate((20, 50, 100)):
        (line,) = [
            x for x in middle.lines if to_hex(x.get_color()) == behaviours.RAMP[place] and x.get_linewidth() == 1.0
        ]
        np.testing.assert_allclose(line.get_ydata(), first[first["neighbours"] == u]["roughness"])
    few = first[first["neighbours"] == 20]
    levels = [x.get_ydata() for x in middle.lines if to_hex(x.get_color()) == behaviours.THIRD]
    assert len(levels) == 3
    for found, third in zip(levels, ("first", "middle", "last"), strict=True):
        assert found == pytest.approx([few[few["third"] == third]["roughness"].mean()] * 2)
    faint = [x for x in middle.lines if x.get_linewidth() == 0.6 and x.get_linestyle() == "-"]
    assert len(faint) == 1  # the other seed
    assert target.get_title() == "target state" and target.get_xlabel() == "pushing with the swing:\ntorque +1"
    assert len(pictures) == 3 * 2
    records = tables["behaviour_records"]
    own = records[(records["environment"] == "acrobot") & (records["seed"] == 0)]
    for phase in (1, 2, 3):
        best = own[own["phase"] == phase].head(2)
        labels = [axis.get_xlabel() for axis in pictures[2 * (phase - 1) : 2 * phase]]
        assert labels == [fig10_acrobot.ACTIONS[action] for action in best["action"]]
    notes = drawn["fig10_acrobot"].notes
    assert "Acrobot, PPO, seed 0. Target state: record 77 of round 11 (a rule; median)." in notes
    assert (
        "Faint: 1 other seeds, each with a target state of its own." in notes and "round: 1000 in the median" in notes
    )


def test_a_behaviour_that_is_not_learned_is_said_not_to_be(made):
    config, tables = made
    flat = tables["fig10_acrobot"]["behaviour"].assign(probability=0.35)
    words = {}
    for name, table in (("risen", tables["fig10_acrobot"]["behaviour"]), ("flat", flat)):
        figure = figures.make("fig10_acrobot", tables["fig10_acrobot"] | {"behaviour": table}, config)
        words[name] = [text.get_text() for text in figure.axes[1].texts]
    assert any(text.startswith("learned: 0.1") for text in words["risen"])
    assert "not learned: 0.35 \u2192 0.35" in words["flat"]


def axes_for_a_picture():
    return style.new_figure(2, 1).subplots()


def test_the_road_has_the_vehicles_where_they_are():
    axis = axes_for_a_picture()
    observation = [1, 1, 0.25, 0.3, 0, 1, 0.1, 0, -0.05, 0, 1, 0.2, 0.25, 0.05, 0, 1, 0.9, 0, 0, 0, 0, 0, 0, 0, 0]
    fig04_highway.road(axis, observation, 4, "#0b55a5")
    cars = {
        to_hex(patch.get_facecolor()): []
        for patch in axis.patches
        if isinstance(patch, Rectangle) and patch.get_width() == 5
    }
    for patch in axis.patches:
        if isinstance(patch, Rectangle) and patch.get_width() == 5:
            cars[to_hex(patch.get_facecolor())].append((patch.get_x() + 2.5, patch.get_y() + 1))
    assert cars["#000000"] == [(0, pytest.approx(4))]  # second lane from the left
    np.testing.assert_allclose(cars[fig04_highway.OTHERS], [(20, 4), (40, 8)])  # the third is beyond the picture
    arrows = [(text.xyann, text.xy, to_hex(text.arrow_patch.get_edgecolor())) for text in axis.texts]
    slower, faster, action = arrows
    np.testing.assert_allclose([*slower[0], *slower[1]], [17.5, 4, 17.5 - 8, 4])  # 4 m/s slower, 2 s
    np.testing.assert_allclose([*faster[0], *faster[1]], [42.5, 8, 42.5 + 8, 8])
    assert action[1][0] < action[0][0] < 0 and action[2] == "#0b55a5"  # slower points back
    assert axis.get_ylim()[0] > axis.get_ylim()[1]  # the leftmost lane is the uppermost


@pytest.mark.parametrize(
    ("angles", "tip"), [((0, 0), (0, -2)), ((np.pi / 2, 0), (2, 0)), ((np.pi, 0), (0, 2)), ((0, np.pi / 2), (1, -1))]
)
def test_the_arm_has_its_links_where_they_are(angles, tip):
    axis = axes_for_a_picture()
    first, second = angles
    fig10_acrobot.arm(axis, [np.cos(first), np.sin(first), np.cos(second), np.sin(second), 0, 0], 1, "#000000")
    (arm,) = [line for line in axis.lines if to_hex(line.get_color()) == fig10_acrobot.LINKS]
    x, y = arm.get_data()
    np.testing.assert_allclose([x[0], y[0]], 0)
    np.testing.assert_allclose(np.hypot(np.diff(x), np.diff(y)), 1)
    np.testing.assert_allclose([x[-1], y[-1]], tip, atol=1e-12)
    assert not axis.texts  # no motion, no torque


def test_a_positive_torque_turns_counterclockwise():
    for action, sign in ((2, 1), (0, -1)):
        axis = axes_for_a_picture()
        fig10_acrobot.arm(axis, [1, 0, 1, 0, 0, 0], action, "#d55e00")
        (arc,) = [line for line in axis.lines if to_hex(line.get_color()) == "#d55e00"]
        x, y = np.array(arc.get_data()) - np.array([[0], [-1]])  # around the middle joint
        np.testing.assert_allclose(np.hypot(x, y), 0.45)
        turning = x[:-1] * np.diff(y) - y[:-1] * np.diff(x)
        assert (sign * turning > 0).all()


def test_observations_in_tables_are_json(made):
    for text in made[1]["fig04_highway"]["behaviour_records"]["observation"]:
        assert all(isinstance(x, (int, float)) for x in json.loads(text))
