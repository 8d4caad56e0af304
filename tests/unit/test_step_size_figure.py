"""What the figure of step sizes shows, read back from its artists."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pictures import assert_legible, legend_of
from rl_influence import figures
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import make_tables
from synthetic import CATALOGUE, study, write_synthetic_study

STEPS = {
    "ppo": 1,
    "ppo_lr3": 3,
    "ppo_lr10": 10,
    "iif_p50": 2,
    "iif_lr3": 6,
    "ppo_matched_displacement": 2,
    "random": 0.5,
}
STEPS |= {"ppo_noclip": 1.5, "iif_matched_updates": 2}  # the latter is no method of this figure
BLOCK = {"environments": ["frozenlake"], "methods": [*STEPS], "seeds": [0, 1, 2], "rounds": 20}
OTHER = {"environments": ["minigrid"], "methods": ["ppo"], "seeds": [0, 1, 2], "rounds": 20}


def curve(run):
    """Faster with larger steps; at ten times the rate one seed collapses, without clipping one never learns."""
    rise = np.minimum(np.linspace(0, 1, 21) * (1 + STEPS[run.method] / 4), 1)
    if (run.method, run.seed) == ("ppo_noclip", 1):
        return np.zeros(21)
    return np.where((run.method == "ppo_lr10") & (run.seed == 2) & (np.arange(21) > 15), 0.0, rise)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root, config = tmp_path_factory.mktemp("steps"), study(BLOCK, OTHER)
    write_synthetic_study(root, config, curve=curve, step=lambda run: np.full(20, 0.1 * STEPS[run.method]))
    tables = make_tables(load_study(config, root), reported=load_reported(CATALOGUE))
    return figures.make("fig_step_size", tables, config), tables["step_size"].set_index(["environment", "method"])


def test_nothing_is_cut_off_or_covered_or_too_small(made):
    assert_legible(made[0])


def test_points_are_means_at_their_step(made):
    figure, table = made
    assert [axis.get_title() for axis in figure.axes] == ["FrozenLake", ""]  # of MiniGrid there is PPO alone
    saved, final = figure.axes
    for axis, quantity, scale in ((saved, "rounds_saved", 100), (final, "rise_kept", 1)):
        points = {round(x.get_xdata()[0], 6): x for x in axis.lines if x.get_zorder() == 4}
        drawn = [name for name in STEPS if name != "iif_matched_updates"]
        assert set(points) == {float(STEPS[name]) for name in drawn}
        for name in ("ppo_lr3", "ppo_lr10", "random", "ppo_noclip"):
            row = table.loc[("frozenlake", name)]
            assert points[STEPS[name]].get_ydata()[0] == pytest.approx(scale * row[quantity])
            hollow = to_hex(points[STEPS[name]].get_markerfacecolor()) == "#ffffff"
            assert hollow == (name in ("ppo_lr10", "ppo_noclip"))
    assert [x.get_ydata()[0] for x in saved.lines if x.get_zorder() == 4 and x.get_xdata()[0] == 1] == [0]  # PPO itself


def test_markers_say_what_sets_the_step(made):
    saved = made[0].axes[0]
    looks = {(round(x.get_xdata()[0], 6), x.get_marker()): x for x in saved.lines if x.get_zorder() == 4}
    assert looks[10, "o"].get_markersize() > looks[3, "o"].get_markersize() > looks[1, "o"].get_markersize()
    assert {marker for step, marker in looks if step == 2} == {"o", "D"} and (1.5, "^") in looks
    lines = [np.round(x.get_xdata(), 6).tolist() for x in saved.lines if x.get_linewidth() == 0.8]
    assert lines == [[1, 3, 10], [2, 6]]  # PPO's and IIF's learning rates
    assert list(legend_of(made[0])) == [
        "PPO",
        "IIF",
        "Random",
        "the other's step",
        "no clipping",
        "learning rate × 1",
        "learning rate × 3",
        "learning rate × 10",
        "some seeds collapse or never learn",
    ]
    (legend,) = made[0].legends
    sizes = {t.get_text(): h.get_markersize() for t, h in zip(legend.texts, legend.legend_handles, strict=True)}
    for factor in (1, 3, 10):
        assert sizes[f"learning rate × {factor}"] == looks[factor, "o"].get_markersize()


def test_two_seeds_have_no_interval(tmp_path):
    """It would be many times as wide as the panel."""
    config = study(BLOCK)
    arguments = {"curve": curve, "step": lambda run: np.full(20, 0.1 * STEPS[run.method])}
    write_synthetic_study(tmp_path, config, skip=lambda run: (run.method, run.seed) == ("random", 2), **arguments)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    saved = figures.make("fig_step_size", tables, config).axes[0]
    bars = {to_hex(line.get_color()) for line in saved.lines if line.get_linewidth() == 0.9}
    assert bars == {"#000000", "#0b55a5"}  # of PPO's and IIF's three, none of random's two


def test_single_seeds_are_not_drawn_beside_means(tmp_path):
    lone = {"environments": ["minigrid"], "methods": ["ppo", "iif_p12_5"], "seeds": [0], "rounds": 20}
    arguments = {"curve": lambda run: np.linspace(0, 1, 21), "step": lambda run: np.full(20, 0.1)}
    for blocks, drawn in (((BLOCK, lone), ["FrozenLake", ""]), ((lone,), ["MiniGrid", ""])):
        config, root = study(*blocks), tmp_path / drawn[0]
        write_synthetic_study(root, config, **arguments)
        tables = make_tables(load_study(config, root), reported=load_reported(CATALOGUE))
        assert [axis.get_title() for axis in figures.make("fig_step_size", tables, config).axes] == drawn


def test_seeds_without_ppos_step_count_for_nothing(tmp_path):
    """Of MiniGrid one seed has the diagnostics of PPO, by whose step the others' are measured."""
    few = {
        "environments": ["minigrid"],
        "methods": ["ppo", "iif_p12_5", "ppo_noclip"],
        "seeds": [0, 1, 2],
        "rounds": 20,
    }
    config = study(BLOCK, few)

    def step(run):
        return None if (run.environment, run.method) == ("minigrid", "ppo") and run.seed else np.full(20, 0.1)

    write_synthetic_study(tmp_path, config, curve=lambda run: np.linspace(0, 1, 21), step=step)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    assert [axis.get_title() for axis in figures.make("fig_step_size", tables, config).axes] == ["FrozenLake", ""]


def test_without_diagnostics_there_is_nothing_to_draw(tmp_path):
    config = study(BLOCK)
    write_synthetic_study(tmp_path, config, curve=curve)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    (text,) = figures.make("fig_step_size", tables, config).texts
    assert text.get_text() == "fig_step_size: nothing to draw: no environment has the diagnostics of two methods"
