"""Strict YAML and errors of one line: what is wrong names the file, the key, the value and the choices."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rl_influence.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
EXPECTED = {  # kinds of pydantic's errors whose own words speak of Python
    "identifier": "expected a-z, 0-9 and _, a letter first, at most 64 of them",
    "model_type": "expected a mapping of keys",
    "dict_type": "expected a mapping of keys",
    "tuple_type": "expected a list",
    "too_short": "expected at least one entry",
    "string_too_short": "expected text that is not empty",
}
IDENTIFIER = r"^[a-z][a-z0-9_]{0,63}$"
NO_NAMES = ("nan", "null", "inf", "infinity", "true", "false")  # in a CSV these are values


def usable(identifier: str) -> str:
    """An identifier that a table can hold as text.

    Raises:
        ValueError: for one that reads as a value.
    """
    if identifier in NO_NAMES:
        raise ValueError("is a value and no name, to whoever reads a table; choose another")
    return identifier


def identifier(value: str, where: str) -> str:
    """`value`, if it can be an id; else a `ConfigError`."""
    if not re.fullmatch(IDENTIFIER, value):
        raise ConfigError(f"{where} {shown(value)}: {EXPECTED['identifier']}")
    try:
        return usable(value)
    except ValueError as error:
        raise ConfigError(f"{where} {shown(value)}: {error}") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping without repeated keys (PyYAML's safe loader keeps the last one silently)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        there = [file.name for file in Path(path).parent.glob("*.yaml")]
        raise ConfigError(f"{path}: no such file{_did_you_mean(Path(path).name, there)}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({_first_line(error)})") from None
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except Exception as error:  # PyYAML also lets IndexError, KeyError, AttributeError and more out of malformed tags
        raise ConfigError(f"{path}: not valid YAML ({_first_line(error)})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    return data


def parse(model: type[Model], data: Any, where: str | Path) -> Model:
    """`data` as `model`, or a `ConfigError` of one line for the first thing that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        kind, value = first["type"], first["input"]
        if kind == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            message = f"unknown key {shown(key)}{_did_you_mean(str(first['loc'][-1]), known)}"
        elif kind == "missing":
            message = f"key {key!r} is missing"
        else:
            text = EXPECTED.get(kind, first["msg"].removeprefix("Value error, "))
            if first.get("ctx", {}).get("pattern") == IDENTIFIER:
                text = EXPECTED["identifier"]
            about_a_model = kind == "value_error" and isinstance(value, dict)  # the text names the keys that do not fit
            place = key if about_a_model else f"{key or 'value'} = {shown(value)}"
            message = f"{place}: {text[0].lower() + text[1:]}".removeprefix(": ")
        raise ConfigError(f"{where}: {message}") from None


def choose(kind: str, value: str, choices: Any, where: str = "") -> str:
    """`value`, if it is one of `choices`; else a `ConfigError` that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{where}unknown {kind} {shown(value)}{_did_you_mean(str(value), list(choices))}")
    return value


def shown(value: Any) -> str:
    """A value in an error message: one line, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def _did_you_mean(value: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(value, choices, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ";"
    return f"{hint} choices: {', '.join(sorted(choices))}" if choices else ""


def _fields_at(model: Any, location: tuple) -> list[str]:
    """Names of the fields at a place inside a model, for the choices of an error message."""
    for part in location:
        if isinstance(part, int) or not hasattr(model, "model_fields") or part not in model.model_fields:
            continue
        annotation = model.model_fields[part].annotation
        while not hasattr(annotation, "model_fields"):
            arguments = [a for a in getattr(annotation, "__args__", ()) if a not in (type(None), Ellipsis)]
            if not arguments:
                return []
            annotation = arguments[0]
        model = annotation
    return list(getattr(model, "model_fields", {}))


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses repeated keys, and aliases, with which a file of ten lines can mean gigabytes."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise _refusal(f"alias *{event.anchor}: write it out", event)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node):
        text = self.construct_scalar(node)
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", text):  # YAML reads 010 as 8 and 1:30 as 90
            raise _refusal(f"number {shown(text)}: write whole numbers with decimal digits only", node)
        return super().construct_yaml_int(node)

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key in [self.construct_object(key, deep=True) for key, _ in node.value]:
            if not isinstance(key, str):
                raise _refusal(f"key {shown(key)} is not text", node)
            if key in seen:
                raise _refusal(f"key {shown(key)} is repeated", node)
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


def _refusal(text: str, place: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, place.start_mark)
