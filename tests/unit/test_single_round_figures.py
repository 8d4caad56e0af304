"""What the figures of behaviours, interventions and faithfulness show, read back from their artists."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Rectangle

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


def notes_of(figure):
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_off_or_covered(drawn, name):
    figure = drawn[name]
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    (legend,) = figure.legends
    below = [legend.get_window_extent(renderer), *(t.get_window_extent(renderer) for t in figure.texts if t.get_text())]
    panels = [axis.get_tightbbox(renderer) for axis in figure.axes]
    for box in [*below, *panels]:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, box
    for i, box in enumerate(below):
        for other in [*below[i + 1 :], *panels]:
            assert min(box.y1, other.y1) - max(box.y0, other.y0) < 2, f"{i}: {box} and {other}"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_draw_is_said_in_the_figure(made, name):
    config, tables = made
    empty = {key: table.iloc[:0] for key, table in tables[name].items()}
    columns = ["environment", "method", "seed"]
    bare = {key: pd.DataFrame(columns=columns) for key in tables[name]} | {"missing_analyses": no_missing_analyses()}
    for nothing in (empty, bare):  # the latter is what no analysis at all leaves
        (text,) = figures.make(name, nothing, config).texts
        assert text.get_text().startswith(f"{name}: no run") and text.get_text().endswith("has been analysed.")


# Interventions


def boxes_of(axis):
    """Arm -> (lower quartile, upper quartile) of the boxes of a panel."""
    arms = {color: arm for arm, (color, _) in fig05_interventions.ARMS.items()}
    found = {}
    for patch in axis.patches:
        assert isinstance(patch, PathPatch)
        vertices = patch.get_path().vertices
        found[arms[to_hex(patch.get_facecolor())]] = vertices[:, 1].min(), vertices[:, 1].max()
    return found


def test_boxes_are_quartiles_of_every_round_and_seed(made, drawn):
    table = made[1]["fig05_interventions"]["interventions"]
    figure = drawn["fig05_interventions"]
    for axis, environment in zip(figure.axes[:2], ("frozenlake", "acrobot"), strict=True):
        assert axis.get_title() == {"frozenlake": "FrozenLake", "acrobot": "Acrobot"}[environment]
        boxes = boxes_of(axis)
        assert set(boxes) == set(fig05_interventions.ARMS)
        for arm, found in boxes.items():
            deltas = table[(table["environment"] == environment) & (table["arm"] == arm)]["delta"]
            assert found == pytest.approx(tuple(np.quantile(deltas, [0.25, 0.75])))


def test_differences_are_paired_by_round_with_the_seed_as_the_unit(made, drawn):
    table = made[1]["fig05_interventions"]["interventions"]
    table = table[table["environment"] == "frozenlake"].set_index(["seed", "round", "arm"])["delta"]
    axis = drawn["fig05_interventions"].axes[2]
    colors = {arm: color for arm, (color, _) in fig05_interventions.ARMS.items()}
    for arm, minus, marker in (("negative", "all", "o"), ("negative", "random", "X"), ("negative_p", "random_p", "X")):
        by_hand = [np.mean([table[seed, k, arm] - table[seed, k, minus] for k in range(8)]) for seed in SEEDS]
        lines = [line for line in axis.lines if to_hex(line.get_color()) == colors[arm]]
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
    assert small == [
        "PPO, p = 50 %; n = 3 seeds, 8 rounds each; exact returns",
        "PPO, p = 50 %; n = 1 seed, 8 rounds each; sampling adds about \u00b1 0.042 to a change",
    ]
    assert "Missing analyses: Acrobot PPO seed 1." in notes_of(figure)


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
            points = [x for x in axis.lines if x.get_marker() == marker and to_hex(x.get_color()) == color]
            found = {round(line.get_ydata()[0]): line.get_xdata()[0] for line in points}
            means = rows[rows["outcome"] == outcome].groupby("scoring")["spearman"].mean()  # without the undefined one
            assert found == {scorings.index(name): pytest.approx(mean) for name, mean in means.items()}
            (dots,) = {
                round(x.get_ydata()[0]): len(x.get_xdata())
                for x in axis.lines
                if x.get_marker() == "." and to_hex(x.get_color()) == color and round(x.get_ydata()[0]) == 0
            }.values()
            assert dots == (2 if (removal, k, outcome) == ("subsets", 2, "f_return") else 3)
    texts = [text.get_text().strip() for text in figure.axes[0].texts]
    assert texts == ["FrozenLake", "random halves, n = 3, 50 sets"]


# Behaviours


def test_behaviour_panels_by_value(made, drawn):
    tables = made[1]["fig10_acrobot"]
    table = tables["behaviour"]
    first = table[(table["environment"] == "acrobot") & (table["seed"] == 0)]
    left, middle, target, *pictures = drawn["fig10_acrobot"].axes
    black = [line for line in left.lines if line.get_linewidth() == 1.3 and line.get_marker() == "None"]
    np.testing.assert_allclose(black[0].get_ydata(), first[first["neighbours"] == 20]["probability"])
    (shown,) = [line for line in left.lines if line.get_marker() == "v"]
    np.testing.assert_array_equal(shown.get_xdata(), [1, 5, 10])
    breaks = [line.get_xdata()[0] for line in left.lines if line.get_linestyle() == ":"]
    assert breaks == [3.5, 7.5]
    for place, u in enumerate((20, 50, 100)):
        (line,) = [
            x for x in middle.lines if to_hex(x.get_color()) == behaviours.RAMP[place] and x.get_linewidth() == 1.3
        ]
        np.testing.assert_allclose(line.get_ydata(), first[first["neighbours"] == u]["roughness"])
    few = first[first["neighbours"] == 20]
    levels = [x.get_ydata() for x in middle.lines if x.get_linestyle() == "--"]
    for found, third in zip(levels, ("first", "middle", "last"), strict=True):
        assert found == pytest.approx([few[few["third"] == third]["roughness"].mean()] * 2)
    faint = [x for x in middle.lines if x.get_linewidth() == 0.5]
    assert len(faint) == 1  # the other seed
    assert target.get_title() == "target state" and target.get_xlabel() == "pushing with the swing:\ntorque +1"
    assert len(pictures) == 3 * 4
    records = tables["behaviour_records"]
    own = records[(records["environment"] == "acrobot") & (records["seed"] == 0)]
    for phase in (1, 2, 3):
        best = own[own["phase"] == phase].head(4)
        labels = [axis.get_xlabel() for axis in pictures[4 * (phase - 1) : 4 * phase]]
        assert labels == [fig10_acrobot.ACTIONS[action] for action in best["action"]]
    notes = notes_of(drawn["fig10_acrobot"])
    assert "Acrobot, PPO, seed 0. Target state: record 77 of round 11 (a rule; median)." in notes
    assert "Faint: other seeds (1), each with a target state of its own." in notes and "(median 1000 records)" in notes


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
