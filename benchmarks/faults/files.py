"""Files and configurations that are damaged at random, and read: refused in one line, or what they were."""

from __future__ import annotations

import contextlib
import copy
import math
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.faults import Tally, small_study
from rl_influence.config import Config, ConfigError, load_run_spec
from rl_influence.runs import snapshots, training
from rl_influence.runs.checkpoints import Checkpoints
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import ResultError, load, run_directory

DAMAGES = ("bit flipped", "truncated", "emptied", "zeros inside", "line lost", "bytes appended")


def damaged(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A kind of damage, and the content after it, which is never what it was."""
    kind, changed, position = str(rng.choice(DAMAGES)), bytearray(content), int(rng.integers(len(content)))
    if kind == "bit flipped":
        changed[position] ^= 1 << int(rng.integers(8))
    elif kind == "truncated":
        del changed[position:]
    elif kind == "emptied":
        changed.clear()
    elif kind == "zeros inside":
        changed[position : position + 64] = bytes(len(changed[position : position + 64]))
    elif kind == "line lost":
        lines = content.splitlines(keepends=True)
        del lines[rng.integers(len(lines))]
        changed[:] = b"".join(lines)
    else:
        changed += rng.bytes(int(rng.integers(1, 64)))
    return (kind, bytes(changed)) if changed != content else damaged(content, rng)


def plain(value: Any) -> Any:
    """What a reader returns, as something that `==` compares to the bit, nan included."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, list):
        return repr(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return plain(vars(value))
    return value


def finished_run(folder: Path) -> dict[Path, Callable[[], Any]]:
    """A run with all the files that one can have: file -> what reads it."""
    study = small_study(folder / "config")
    spec = load_run_spec(environment="frozenlake", method="iif_p50", seed=0, config=study)
    spec = spec.model_copy(update={"rounds": 4})
    run, silent = folder / "run", lambda line: None
    training.run(spec, run, snapshot_rounds=[1, 3], log=silent)

    def with_states(use: Callable[[Checkpoints], Any]) -> Any:
        with contextlib.closing(Checkpoints(run / "state", fingerprint(spec))) as states:
            return use(states)

    with_states(lambda states: states.save(states.load(silent)))  # a second one, to fall back to

    def curve() -> Any:
        return load(run, spec).columns

    def state() -> Any:
        return with_states(lambda states: states.load(silent))

    return {
        run / "curve.csv": curve,
        run / "timing.csv": curve,
        run / "diagnostics.csv": lambda: load(run, spec).diagnostics(),
        run / "manifest.json": curve,
        run / "state/a.npz": state,
        run / "state/b.npz": state,
        run / "snapshots/round_1.npz": lambda: snapshots.load(run, 1),
        run / "snapshots/round_3.npz": lambda: snapshots.load(run, 3),
        run / "snapshots/final.npz": lambda: snapshots.load_final(run),
    }


def damage_files(number: int, seed: int) -> Tally:
    """Damages one file at a time. `wrong` counts contents that were taken though they are not what was written."""
    rng, tally = np.random.default_rng(seed), Tally()
    with tempfile.TemporaryDirectory() as folder:
        readers = finished_run(Path(folder))
        whole = {path: (path.read_bytes(), plain(read())) for path, read in readers.items()}
        for _ in range(number):
            path = list(readers)[rng.integers(len(readers))]
            content, expected = whole[path]
            kind, spoilt = damaged(content, rng)
            path.write_bytes(spoilt)
            tally.faults += 1
            tally.kinds[kind] += 1
            try:
                tally.wrong += plain(readers[path]()) != expected
            except ResultError as error:
                tally.complain(str(error), path.name)
            except Exception:
                traceback.print_exc()
                tally.unclear += 1
            path.write_bytes(content)
    return tally


VALUES = [None, True, -1, 0, 1, 2, 0.5, 1e9, 1e300, -1e-300, math.nan, math.inf, 2**63, 10**100, "", " ", "ppo", "all"]
VALUES += ["frozenlake", "chosen", "td_error", "../x", "/etc/x", "a/b", "25", "1e9", "nan", "no", "ä", "\0", "x" * 5000]
VALUES += [[], {}, [[]], [None], [0, 0], {"a": 1}, {"": {}}, [{"kind": "all"}], b"\xff\0"]
SYNTAX = ["*a ", "&a ", "!!int ", "!!set ", "!!python/name:os.getcwd ", "<<: ", "{", "[", "? ", "- ", "\n", "\t", "\0"]
SYNTAX += [
    "%",
    ": ",
    "---\n",
    "...\n",
    '"',
    "'",
    "#",
    "|\n",
    ">\n",
    "!",
    "@",
    "`",
    "9" * 5000,
    "[" * 3000,
    "2001-01-01",
]


def places(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every place inside nested mappings and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def spoilt_values(content: Any, rng: np.random.Generator) -> bytes:
    """YAML with one to three of its values replaced, removed, renamed, repeated or added."""
    content = copy.deepcopy(content)
    for _ in range(rng.integers(1, 4)):
        found = list(places(content))
        *parents, last = found[rng.integers(len(found))]
        node = content
        for key in parents:
            node = node[key]
        kind, value = (
            rng.choice(["replaced", "replaced", "removed", "renamed", "repeated", "added"]),
            copy.deepcopy(VALUES[rng.integers(len(VALUES))]),
        )
        if kind == "replaced":
            node[last] = value
        elif kind == "removed" and len(found) > 1:
            del node[last]
        elif kind == "renamed" and isinstance(node, dict):
            node[f"{last}"[:-1] + rng.choice(["", "s", "_", "é"])] = node.pop(last)
        elif kind == "added" and isinstance(node, dict):
            node[str(rng.choice(["rounds", "seed", "x", "kind", "study"]))] = value
        else:
            node[last] = [node[last]] * int(rng.integers(1, 3))
    return yaml.safe_dump(content, allow_unicode=True).encode()


def spoilt_text(content: Any, rng: np.random.Generator) -> bytes:
    """YAML with one to three pieces of its text replaced."""
    text = yaml.safe_dump(content, allow_unicode=True).encode()
    for _ in range(rng.integers(1, 4)):
        start = int(rng.integers(len(text) + 1))
        end = start + int(rng.choice([0, 0, 1, 8, 200]))
        syntax = SYNTAX[rng.integers(len(SYNTAX))].encode()
        text = text[:start] + (syntax if rng.integers(3) else rng.bytes(int(rng.integers(1, 8)))) + text[end:]
    return text


def spoil_configurations(number: int, seed: int) -> Tally:
    """Spoils one of a study's files at a time. `wrong` counts runs that would leave the study's folder."""
    rng, tally = np.random.default_rng(seed), Tally()
    with tempfile.TemporaryDirectory() as folder:
        study = small_study(Path(folder) / "config")
        files = [(path, path.read_bytes()) for path in sorted(study.parent.rglob("*.yaml"))]
        for _ in range(number):
            path, original = files[rng.integers(len(files))]
            spoil = (spoilt_values, spoilt_text)[rng.integers(2)]
            path.write_bytes(spoil(yaml.safe_load(original), rng))
            tally.faults += 1
            try:
                config = Config(study)
            except ConfigError as error:
                tally.kinds["refused"] += 1
                tally.complain(str(error))
            except Exception:
                traceback.print_exc()
                tally.unclear += 1
            else:
                tally.kinds["accepted"] += 1
                for run in config.runs[:100]:
                    directory = run_directory(config.study, run)
                    tally.wrong += ".." in directory.parts or directory.parts[:2] != ("results", config.study)
            path.write_bytes(original)
    return tally
