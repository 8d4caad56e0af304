"""Plain data out of pickled files that packages ship, without running anything in them.

Some detectors store their vocabulary and weights as pickles, which may call any function when they are loaded the usual
way. Here their opcodes are read one by one; names of classes stay text, objects become dictionaries of their state, and
an opcode that is not needed for plain data is refused. Arrays that joblib appends to the stream are read in place.
"""

from __future__ import annotations

import pickletools
from pathlib import Path
from typing import Any

import numpy as np

MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CALLS = {"NEWOBJ", "REDUCE", "NEWOBJ_EX"}
STRUCTURE = {"PROTO", "FRAME"}
SCALARS = {"INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "BININT", "BININT1", "BININT2"} | {
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}


class PlainDataError(ValueError):
    """A file that holds more than plain data, or is damaged."""


class Instance(dict):
    """State of an object whose class is only a name: attributes as keys, arguments under `args`."""

    def __init__(self, name: str, args: tuple):
        super().__init__()
        self.name, self.args, self.items_set = name, args, {}


def read_plain(path: str | Path) -> Any:
    """The object in a pickle or an uncompressed joblib file, as dictionaries, lists, numbers, text and arrays.

    Raises:
        PlainDataError: naming the file, for an opcode or array that is no plain data.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    with open(path, "rb") as file:
        try:
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "STOP":
                    return stack.pop()
                _step(opcode.name, argument, stack, memo)
                top = stack[-1] if stack else None
                if opcode.name == "BUILD" and isinstance(top, Instance) and top.name.endswith(".NumpyArrayWrapper"):
                    stack[-1] = _array(file, top)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise PlainDataError(f"{path}: not the plain data that was expected ({error})") from None
    raise PlainDataError(f"{path}: ends early")


def _step(name: str, argument: Any, stack: list, memo: dict[int, Any]) -> None:
    """One opcode on the stack."""
    if name in SCALARS:
        stack.append(argument)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name in CONSTANTS:
        stack.append(CONSTANTS[name])
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name in SHORT_TUPLES:
        stack[-SHORT_TUPLES[name] :] = [tuple(stack[-SHORT_TUPLES[name] :])]
    elif name == "MARK":
        stack.append(MARK)
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name == "GLOBAL":
        stack.append(argument.replace(" ", "."))
    elif name == "STACK_GLOBAL":
        stack[-2:] = [f"{stack[-2]}.{stack[-1]}"]
    elif name in CALLS:
        arguments = stack.pop()
        stack[-1] = Instance(stack[-1], arguments)
    elif name == "BUILD":
        state = stack.pop()
        stack[-1].update(state if isinstance(state, dict) else {"state": state})
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _items(stack[-1])[key] = value
    elif name == "SETITEMS":
        values = _since_mark(stack)
        _items(stack[-1]).update(zip(values[::2], values[1::2], strict=True))
    elif name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif name == "APPENDS":
        values = _since_mark(stack)
        stack[-1].extend(values)
    elif name not in STRUCTURE:
        raise ValueError(f"opcode {name}")


def _items(target: Any) -> dict:
    return target.items_set if isinstance(target, Instance) else target


def _since_mark(stack: list) -> list:
    at = max(i for i, value in enumerate(stack) if value is MARK)
    values = stack[at + 1 :]
    del stack[at:]
    return values


def _array(file: Any, wrapper: Instance) -> np.ndarray:
    """The array that joblib writes behind its wrapper: padding, its length first, then the numbers."""
    kind = wrapper["dtype"].args[0]
    if not isinstance(kind, str) or kind[0] not in "fiu":
        raise ValueError(f"array of {kind!r}")
    if wrapper.get("numpy_array_alignment_bytes"):
        file.read(file.read(1)[0])
    dtype, shape = np.dtype(kind), tuple(wrapper["shape"])
    data = file.read(dtype.itemsize * int(np.prod(shape)))
    return np.frombuffer(data, dtype).reshape(shape, order=wrapper["order"])
