"""Packages whose public names are imported when they are first used: scoring a torch module loads no trainer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def attach(
    package: str, modules: dict[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        modules: module of the package -> its names that the package shows.
    """
    place = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in place:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{place[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(place), sorted(place)
