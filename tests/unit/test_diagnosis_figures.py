"""What the figures of the diagnosis show, read back from their artists."""

import base64
import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrow, Polygon
from PIL import Image

from rl_influence import figures
from rl_influence.analysis import diagnosis
from rl_influence.analysis.curves import KEY
from rl_influence.config import Config, RunSpec
from rl_influence.figures import diagnoses
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
    parts = {name: [] for name in diagnosis.TABLES}
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


def notes(figure):
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_off_or_covered(drawn, name):
    figure = drawn[name]
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    (legend,) = figure.legends
    below = [legend.get_window_extent(renderer), *(t.get_window_extent(renderer) for t in figure.texts if t.get_text())]
    boxes = [axis.get_tightbbox(renderer) for axis in figure.axes]
    for box in [*below, *boxes]:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, box
    for i, box in enumerate(below):
        for other in [*below[i + 1 :], *boxes]:
            assert min(box.y1, other.y1) - max(box.y0, other.y0) < 2, f"{i}: {box} and {other}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_said(config, tables, name):
    """Without any analysis the tables have no columns but the key's."""
    bare = {table: pd.DataFrame(columns=KEY) for table in tables} | {"missing_analyses": tables["missing_analyses"]}
    assert f"{name}: no run of" in notes(figures.make(name, bare, config))


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
    assert products.get_title().startswith(f"ρ = {summary.loc[('frozenlake', 1, 'exact'), 'spearman_product']:.2f} [")
    text = notes(drawn["fig03_diagnosis"])
    assert "opposite sign" in text and "n = 2 seeds" in text and "Map: seed 0" in text


def test_minigrids_worst_poses_are_drawn(drawn, tables):
    grid = tables["diagnosis_grid"]
    grid = grid[(grid["environment"] == "minigrid") & (grid["round"] == 0)].sort_values("influence")
    pictures = [axis for axis in drawn["fig08_minigrid"].axes if not axis.axison][:6]
    for axis, row in zip(pictures, grid.itertuples(), strict=False):
        (agent,) = [patch for patch in axis.patches if type(patch) is Polygon]
        tip = agent.get_xy()[0] - (row.x, row.y)
        assert np.argmax([tip[0], tip[1], -tip[0], -tip[1]]) == row.direction
        action = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")[int(row.action)]
        assert axis.get_title() == f"{action}, {row.records:g}×"
        assert axis.texts[0].get_text() == f"est. {row.estimated:+.2g}\ntrue {row.true:+.2g}"
    assert "n = 1 of 2 seeds" in notes(drawn["fig08_minigrid"])


def test_states_are_listed_in_numbers(drawn, tables):
    records = tables["diagnosis_records"]
    records = records[(records["environment"] == "acrobot") & (records["round"] == 1)]
    worst = records[records["end"] == "bottom"].iloc[0]
    mean, std = (records[records["end"] == end].iloc[0] for end in ("mean", "std"))
    (axis,) = drawn["fig09_records"].axes  # grid worlds have maps
    assert axis.get_title(loc="left") == "Acrobot, round 1, seed 0"
    texts = {text.get_position(): text for text in axis.texts}
    for row, name in enumerate(("cos1", "sin1", "cos2", "sin2", "velocity1", "velocity2", "action", "advantage")):
        assert texts[0.005, row].get_text() == name
        if name == "action":
            assert texts[0.3, row].get_text() == f"{worst[name]:g}" and (0.99, row) not in texts
            continue
        cell = texts[0.3, row]
        assert cell.get_text() == f"{worst[name]:.2f}"
        assert (cell.get_fontweight() == "bold") == (abs(worst[name] - mean[name]) > 2 * std[name])
        assert texts[0.99, row].get_text() == f"{mean[name]:.2f} ± {std[name]:.2f}"


def test_frames_are_shown(config, tables):
    """Pong's, made up."""
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (10, 84, 84), dtype=np.uint8)
    rows = []
    for place, frame in enumerate(frames, start=1):
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG")
        picture = base64.b64encode(buffer.getvalue()).decode()
        rows.append(("pong", "ppo", 0, 2, place, place, place % 6, 0.1, "bottom", picture))
    columns = [*KEY, "round", "record", "place", "action", "advantage", "end", "frame"]
    mixed = pd.concat([tables["diagnosis_records"], pd.DataFrame(rows, columns=columns)], ignore_index=True)
    figure = figures.make("fig09_records", tables | {"diagnosis_records": mixed}, config)
    pictures = [axis for axis in figure.axes if axis.images]
    assert len(pictures) == 6 and pictures[0].get_title(loc="left") == "Pong, round 2, seed 0"
    for axis, frame in zip(pictures, frames, strict=False):
        np.testing.assert_allclose(axis.images[0].get_array(), frame / 255, atol=1e-6)
    assert pictures[2].texts[0].get_text() == "action 3\n+0.10"


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
