"""The committed studies' figures as people see them: no words upon each other, none cut off."""

from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.text import Text

from rl_influence import figures
from rl_influence.config import Config
from rl_influence.figures import style

ROOT = Path(__file__).parents[2]
STUDIES = {name: Config(ROOT / f"config/{name}.yaml") for name in ("paper", "confirm")}
SLACK = 1.0  # pixels


def undrawn(axis) -> list[Text]:
    """Labels of ticks beyond the axis' ends and of axes switched off, which matplotlib keeps and does not draw."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-6 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    if axis.axes.axison:
        ticks = [tick for tick in ticks if not low - room <= tick.get_loc() <= high + room]
    return [label for tick in ticks for label in (tick.label1, tick.label2)]


def clashes(figure) -> list[str]:
    """Pairs of words that lie upon each other, and words that leave the picture."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    width, height = figure.canvas.get_width_height()
    found = []
    hidden = {label for panel in figure.axes for axis in (panel.xaxis, panel.yaxis) for label in undrawn(axis)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    texts = [text for text in texts if text not in hidden]
    boxes = {text: text.get_window_extent(renderer) for text in texts}
    for text, box in boxes.items():
        if min(box.x0, box.y0) < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK:
            found.append(f"cut off: {text.get_text()!r}")
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK:
            found.append(f"{one.get_text()!r} upon {other.get_text()!r}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("study, name", [(s, name) for s, c in STUDIES.items() for name in c.study_config.figures])
def test_no_words_of_a_committed_figure_clash(study, name):
    tables = {
        table: pd.read_csv(ROOT / f"results/{study}/tables/{table}.csv", keep_default_na=False, na_values=[""])
        for table in figures.FIGURES[name].reads
    }
    figure = figures.make(name, tables, STUDIES[study])
    try:
        with style.context():
            assert clashes(figure) == []
    finally:
        plt.close(figure)


def test_clashes_are_noticed():
    figure = plt.figure(figsize=(2, 1))
    for x in (0.1, 0.15, 0.9):
        figure.text(x, 0.5, "some words")
    assert clashes(figure) == ["cut off: 'some words'", "'some words' upon 'some words'"]
    plt.close(figure)
