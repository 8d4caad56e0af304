"""What every figure must be, read back from its artists."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from rl_influence.figures import style


def texts_of(figure: Figure) -> list[Text]:
    """Everything that is written when a figure is drawn."""
    found, draw = [], Text.draw

    def record(text, *arguments):
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        draw(text, *arguments)

    with style.context(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", record)
        figure.draw(figure.canvas.get_renderer())
    return found


def assert_legible(figure: Figure) -> None:
    """Nothing is cut off, no two texts lie on each other, nothing is written smaller than `style.SMALL`."""
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    texts = texts_of(figure)
    assert texts
    with style.context():
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
        panels = [("axes", axis.get_tightbbox(renderer)) for axis in figure.axes]
    for text in texts:
        assert text.get_fontsize() >= style.SMALL, f"{text.get_text()!r} is written in {text.get_fontsize()} points"
    for what, box in [*boxes, *panels]:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, f"{what!r} is cut off"
    for i, (what, box) in enumerate(boxes):
        for other_what, other in boxes[i + 1 :]:
            width, height = min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)
            assert width < 2 or height < 3, f"{what!r} lies on {other_what!r}"


def legend_of(figure: Figure) -> dict[str, str]:
    """Label -> colour."""
    (legend,) = figure.legends
    return {text.get_text(): to_hex(h.get_color()) for text, h in zip(legend.texts, legend.legend_handles, strict=True)}
