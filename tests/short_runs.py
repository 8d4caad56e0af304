"""Runs of some tenths of a second."""

from __future__ import annotations

from pathlib import Path

from rl_influence.config import RunSpec, load_run_spec, parse

CONFIG = Path(__file__).parents[1] / "config/config.yaml"
STEPS = {"frozenlake": 256, "acrobot": 128, "minigrid": 128, "highway": 64, "lunarlander": 128, "bipedalwalker": 128}
BASES = {name: load_run_spec(environment=name, method="ppo", seed=0, config=CONFIG) for name in STEPS}


def spec(environment: str = "frozenlake", *, rounds=3, seed=0, every=1, selection=None, **ppo) -> RunSpec:
    """A run of some tenths of a second."""
    data = BASES[environment].model_dump() | {"rounds": rounds, "seed": seed}
    data["ppo"] |= {"n_steps": STEPS[environment], "n_epochs": 2} | ppo
    data["evaluation"] |= {"every": every, "episodes": 4}
    data["selection"] = selection or data["selection"]
    return parse(RunSpec, data, "test")


def influence(percent: float) -> dict:
    return {"kind": "influence", "drop_percent": percent}


def silent(line: str) -> None:
    pass
