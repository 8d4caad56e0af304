"""What the figures of the diagnosis show, read back from their artists."""

import base64
import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrow, Polygon
from PIL import Image

from pictures import assert_legible
from rl_influence import figures
from rl_influence.analysis import diagnosis
from rl_influence.analysis.curves import KEY
from rl_influence.analysis.registry import ANALYSES
from rl_influence.config import Config, RunSpec
from rl_influence.figures import diagnoses, fig09_records
from rl_influence.publish.latex import latex
from rl_influence.runs import training
from synthetic import CATALOGUE

NAMES = ("fig03_diagnosis", "fig08_minigrid", "fig09_records")
RUNS = (("frozenlake", 0), ("frozenlake", 1), ("minigrid", 0), ("acrobot", 0))
MISSING = ["analysis", *KEY, "reason"]


@pytest.fixture(scope="module")
def config():
    return Config(CATALOGUE / "paper.yaml")


@pytest.fixture(scope="module")
def tables(config, tmp_path_factory):
    """Of two rounds of tiny runs, as the workflow puts them together."""
    parts = {name: [] for name in ANALYSES["diagnosis"].tables}
    for environment, seed in RUNS:
        data = config.resolve(environment, "ppo", seed).model_dump() | {"rounds": 2}
        data["ppo"] |= {"n_steps": 300, "batch_size": 50, "n_epochs": 1}
        folder = tmp_path_factory.mktemp(environment)
        training.take_snapshots(RunSpec(**data), [0, 1], folder, log=lambda line: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(diagnosis, "TOTAL_ROLLOUTS", 0)
            made = diagnosis.analyse(RunSpec(**data), folder, (0, 1))
        for name, table in made.items():
            key = pd.DataFrame({"environment": environment, "method": "ppo", "seed": seed}, index=table.index)
            parts[name] += [pd.concat([key, table], axis=1)] if len(table) else []
    tables = {name: pd.concat(rows, ignore_index=True) for name, rows in parts.items()}
    tables |= {name: make(tables).assign(expected=2) for name, make in diagnosis.SUMMARIES.items()}
    return tables | {"missing_analyses": pd.DataFrame(columns=MISSING)}


@pytest.fixture(scope="module")
def drawn(config, tables):
    return {name: figures.make(name, tables, config) for name in NAMES}


@pytest.mark.parametrize("name", ["fig03_diagnosis", "fig08_minigrid"])
def test_nothing_is_cut_off_or_covered_or_too_small(drawn, name):
    assert_legible(drawn[name])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_said(config, tables, name):
    """Without any analysis the tables have no columns but the key's."""
    bare = {table: pd.DataFrame(columns=KEY) for table in tables} | {"missing_analyses": tables["missing_analyses"]}
    (text,) = figures.make(name, bare, config).texts
    assert text.get_text().startswith(f"{name}: nothing to draw: no run of")


def test_every_bottom_state_and_action_is_an_arrow(drawn, tables):
    grid = tables["diagnosis_grid"]
    grid = grid[(grid["environment"] == "frozenlake") & (grid["seed"] == 0)]
    maps = drawn["fig03_diagnosis"].axes[:2]
    for k, axis in enumerate(maps):
        rows = grid[grid["round"] == k]
        arrows = [patch for patch in axis.patches if isinstance(patch, FancyArrow)]
        assert len(arrows) == len(rows) > 3
        for arrow, row in zip(arrows, rows.itertuples(), strict=True):
            x, y = arrow.get_xy().mean(0)
            assert (round(x), round(y)) == (row.column, row.row)
            towards = arrow.get_xy()[0] - (row.column, row.row)  # its tip
            assert np.argmax([-towards[0], towards[1], towards[0], -towards[1]]) == row.action
            fill, line = to_hex(arrow.get_facecolor()), to_hex(arrow.get_edgecolor())
            assert fill == diagnoses.SIGNS[row.positive >= 0.5][0] and line == diagnoses.SIGNS[row.true >= 0][0]
        assert axis.get_title() == f"round {k}, bottom {rows['records'].sum():g}"
        assert sorted(text.get_text() for text in axis.texts) == ["G", "H", "H", "H", "H", "S"]


def test_errors_are_means_over_seeds_coloured_by_agreement(drawn, tables):
    table = tables["diagnosis_by_rank"]
    table = table[(table["environment"] == "frozenlake") & (table["round"] == 1)]
    errors, products = drawn["fig03_diagnosis"].axes[3], drawn["fig03_diagnosis"].axes[5]
    for source, line in zip(("buffer", "exact"), errors.lines, strict=True):
        rows = table[table["source"] == source].groupby("first_rank")
        np.testing.assert_allclose(line.get_ydata(), rows["error"].mean())
        np.testing.assert_allclose(line.get_xdata(), (rows["first_rank"].mean() + rows["last_rank"].mean()) / 2)
    (dots,) = [c for c in errors.collections if isinstance(c, PathCollection)]
    agreement = table[table["source"] == "exact"].groupby("first_rank")["sign_agreement"].mean()
    np.testing.assert_allclose(np.ma.filled(dots.get_array(), np.nan), agreement)
    summary = tables["diagnosis_summary"].set_index(["environment", "round", "source"])
    rho = f"ρ = {summary.loc[('frozenlake', 1, 'exact'), 'spearman_product']:.2f} ["
    assert products.get_title().startswith(rho.replace("-", "\u2212"))
    exact = table[table["source"] == "exact"].groupby("first_rank")["error"].mean()
    assert errors.get_title() == f"bottom / top = {exact.iloc[-1] / exact.iloc[0]:.2f}"
    assert {axis.get_ylabel() for axis in drawn["fig03_diagnosis"].axes} == {
        "", "|true \u2212 estimated|\n(root scale)", "true \u00d7 estimated\n(root scale)",
    }  # fmt: skip
    small = " ".join(text.get_text() for text in drawn["fig03_diagnosis"].texts).replace("\n", " ")
    assert "bottom / top: the error in the last bin" in small
    text = drawn["fig03_diagnosis"].notes
    assert "n = 2 seeds" in text and "Pictures: seed 0" in text
    for axis in (errors, products):  # bands lie in their panels
        inside = axis.get_ylim()
        for band in [c for c in axis.collections if isinstance(c, PolyCollection)]:
            values = band.get_paths()[0].vertices[:, 1]
            assert inside[0] <= values.min() and values.max() <= inside[1]


def test_minigrids_worst_poses_are_drawn(drawn, tables):
    figure = drawn["fig08_minigrid"]
    for k, column in enumerate(((0, 2), (1, 3))):  # a column per round, two pictures above each other
        grid = tables["diagnosis_grid"]
        grid = grid[(grid["environment"] == "minigrid") & (grid["round"] == k)].sort_values("influence", kind="stable")
        for place, row in zip(column, grid.itertuples(), strict=False):
            axis = figure.axes[place]
            (agent,) = [patch for patch in axis.patches if type(patch) is Polygon]
            tip = agent.get_xy()[0] - (row.x, row.y)
            assert np.argmax([tip[0], tip[1], -tip[0], -tip[1]]) == row.direction
            action = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")[int(row.action)]
            assert axis.get_title() == f"{action}, {row.records:g}×"
            text = f"est. {row.estimated:+.2g}, true {row.true:+.2g}".replace("-", "\u2212")
            assert text in [text.get_text() for text in axis.texts]
    assert "n = 1 of 2 seeds" in figure.notes


def test_a_correlation_of_the_wrong_sign_is_marked(config, tables):
    summary = tables["diagnosis_summary"].copy()
    for low, high, color in ((-0.3, -0.1, diagnoses.SIGNS[False][0]), (-0.3, 0.1, "#000000")):
        summary[["spearman_product_low", "spearman_product_high"]] = low, high
        figure = figures.make("fig08_minigrid", tables | {"diagnosis_summary": summary}, config)
        titles = [axis.title for axis in figure.axes if axis.get_title().startswith("ρ")]
        assert len(titles) == 2 and {to_hex(title.get_color()) for title in titles} == {color}


def records(**columns) -> pd.DataFrame:
    """Six bottom records of one run, the worst one last."""
    rows = {"method": "ppo", "seed": 0, "round": 2, "record": range(6), "place": [6, 5, 4, 3, 2, 1], "end": "bottom"}
    return pd.DataFrame(rows | {"advantage": [0.1, -0.2, 0.3, 0.4, 0.5, -0.6], "action": range(6)} | columns)


def test_the_walker_is_drawn_in_its_state(config, tables):
    state = {name: np.zeros(6) for name in fig09_records.STATE} | {"contact2": np.ones(6), "lidar0": np.full(6, 0.2)}
    state |= {"knee1_angle": np.ones(6), "knee2_angle": np.ones(6), "hull_angle": np.radians([0, 1, 2, 3, 4, 5])}
    table = pd.concat([records(environment="bipedalwalker", **state), tables["diagnosis_records"]], ignore_index=True)
    figure = figures.make(
        "fig09_records", {"diagnosis_records": table, "missing_analyses": tables["missing_analyses"]}, config
    )
    assert_legible(figure)
    assert len(figure.axes) == 5 and figure.axes[0].get_title(loc="left") == "BipedalWalker, round 2, seed 0"
    texts = [axis.texts[0].get_text() for axis in figure.axes]
    assert texts[:2] == ["hull 5°\n\u22120.60", "hull 4°\n+0.50"]
    feet = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [to_hex(foot.get_markerfacecolor()) == "#ffffff" for foot in feet] == [True, False]


def test_frames_are_shown(config, tables):
    """Pong's, made up."""
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (6, 84, 84), dtype=np.uint8)
    pictures = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG")
        pictures.append(base64.b64encode(buffer.getvalue()).decode())
    mixed = pd.concat([tables["diagnosis_records"], records(environment="pong", frame=pictures)], ignore_index=True)
    figure = figures.make("fig09_records", tables | {"diagnosis_records": mixed}, config)
    assert_legible(figure)
    assert len(figure.axes) == 5 and figure.axes[0].get_title(loc="left") == "Pong, round 2, seed 0"
    for axis, frame in zip(figure.axes, frames[::-1], strict=False):
        np.testing.assert_allclose(axis.images[0].get_array(), frame / 255, atol=1e-6)
    assert figure.axes[2].texts[0].get_text() == "down\n+0.40"


def test_printed_tables(config, tables):
    text = latex("diagnosis_summary", tables["diagnosis_summary"], config)
    assert text.count(r"\midrule") == 3  # environments
    rows = [line.split(" & ") for line in text.splitlines() if " & " in line]
    order = [(row[1], row[2]) for row in rows[1:7]]
    assert order == [(source, k) for source in ("the buffer", "rollouts", "the model") for k in ("0", "1")]
    row = tables["diagnosis_summary"].set_index(["environment", "source", "round"]).loc[("frozenlake", "exact", 1)]
    assert rows[6][4:6] == [
        f"${row.spearman_product:.2f}$",
        f"$[{row.spearman_product_low:.2f}, {row.spearman_product_high:.2f}]$",
    ]
