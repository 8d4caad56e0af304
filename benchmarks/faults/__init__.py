"""Faults on purpose: `python -m benchmarks.faults [names]` (`make faults`), from the repository root.

Runs are killed, disks filled, clocks turned, files damaged and configurations spoilt, from fixed seeds, and what must
never happen is counted: a byte that differs from an undisturbed run's, a damaged file that is taken for a whole one, an
error that is not one line. Figures are printed as the benchmarks' are, and replace their rows in `results/faults.csv`.
The tests call the same functions with smaller numbers.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import yaml

CATALOGUE = Path(__file__).parents[2] / "config"
METHODS = ("ppo", "iif_p50", "random", "td_error")


@dataclass
class Tally:
    """What a series of faults has come to.

    Attributes:
        faults: how many were made.
        wrong: bytes, files or runs that are not what they should be.
        unclear: errors that are not one line that names what is wrong, tracebacks included.
        kinds: how many of each kind.
    """

    faults: int = 0
    wrong: int = 0
    unclear: int = 0
    kinds: Counter = field(default_factory=Counter)

    def complain(self, message: str, name: str = "") -> None:
        """Looks at an error's text, and shows it if it is unclear: several lines, too long, or without the name."""
        if "\n" in message or len(message) > 1000 or name not in message:
            self.unclear += 1
            print(f"unclear: {message!r}", file=sys.stderr)


def small_study(folder: Path) -> Path:
    """Writes a catalogue of two environments, with runs of some tenths of a second; returns the study's file."""
    methods = yaml.safe_load((CATALOGUE / "methods.yaml").read_text())
    files = {"methods.yaml": {name: methods[name] for name in METHODS}}
    for name in ("frozenlake", "acrobot"):
        data = yaml.safe_load((CATALOGUE / f"environments/{name}.yaml").read_text())
        data["ppo"] = data.get("ppo", {}) | {"n_steps": 128, "n_epochs": 2}
        data["evaluation"] |= {"episodes": 4, "every": 4}
        data["engine"] = {"acrobot": "envpool"}.get(name, "gymnasium")
        files[f"environments/{name}.yaml"] = data
    block = {"environments": ["frozenlake", "acrobot"], "methods": list(METHODS), "seeds": [0, 1], "rounds": 12}
    files["study.yaml"] = {"study": "faults", "grid": [block], "figures": ["fig06_returns"], "tables": ["table_2"]}
    (folder / "environments").mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_text(yaml.safe_dump(data))
    return folder / "study.yaml"
