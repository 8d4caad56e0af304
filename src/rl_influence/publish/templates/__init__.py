"""Pages as Jinja2 templates."""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup

FOLDER = Path(__file__).parent


def environment() -> jinja2.Environment:
    """Templates that escape whatever comes from files, and fail on a name that is not there; they know `style`."""
    loader = jinja2.FileSystemLoader(FOLDER)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    made.globals["style"] = Markup((FOLDER / "page.css").read_text())
    return made
