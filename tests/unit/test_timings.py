"""Timings: which rounds are timed in which order, and what the table says."""

import pandas as pd
import pytest

from rl_influence.analysis.runtimes import timed
from rl_influence.config import Config, ConfigError, load_run_spec
from rl_influence.runs import timings
from synthetic import CATALOGUE


@pytest.fixture(scope="module")
def specs():
    names = ("ppo", "iif_p50")
    return {name: load_run_spec(environment="frozenlake", method=name, seed=9) for name in names}


class Counted:
    """Stands in for a trainer: a round takes as many seconds in each phase as its number."""

    rounds: list[tuple[str, int, int]] = []

    def __init__(self, spec):
        self.kind, self.seed, self.round = spec.selection.kind, spec.seed, 0

    def train_round(self, clock):
        self.round += 1
        Counted.rounds.append((self.kind, self.seed, self.round))
        for number, phase in enumerate(timings.PHASES):
            clock.seconds[phase] += 10**number * self.round


def test_methods_take_turns_and_the_first_round_is_not_counted(specs):
    Counted.rounds.clear()
    rows = list(timings.time_methods(specs, Counted))
    assert len(Counted.rounds) == 2 * timings.REPEATS * (timings.ROUNDS + 1)
    pairs = list(zip(Counted.rounds[::2], Counted.rounds[1::2], strict=True))
    for first, second in pairs:  # the same round of the same repeat
        assert first[1:] == second[1:] and {first[0], second[0]} == {"all", "influence"}
    firsts = [first[0] for first, _ in pairs[: timings.ROUNDS + 1]]
    assert firsts[::2] != firsts[1::2] and len(set(firsts)) == 2
    assert len(rows) == 2 * timings.REPEATS * timings.ROUNDS
    for row in rows:
        k = row["round"] + 1  # its second round is the first that counts
        assert [row[phase] for phase in timings.PHASES] == [k, 10 * k, 100 * k]
        assert row["round_s"] == 110 * k and row["round_with_sampling_s"] == 111 * k
    assert {row["repeat"] for row in rows} == set(range(timings.REPEATS))


def test_the_table(specs, tmp_path, monkeypatch):
    monkeypatch.setattr(timings, "REPEATS", 2)
    monkeypatch.setattr(timings, "ROUNDS", 1)
    lines = []
    timings.write_timings({"frozenlake": specs}, tmp_path / "timings.csv", log=lines.append)
    table = pd.read_csv(tmp_path / "timings.csv")
    key = ["environment", "method", "repeat", "round"]
    assert table.columns.tolist() == [*key, *timings.PHASES, "round_s", "round_with_sampling_s", "code", "processor"]
    rows = sorted(table[key].itertuples(index=False, name=None))
    assert rows == [("frozenlake", name, repeat, 1) for name in ("iif_p50", "ppo") for repeat in range(2)]
    assert (table["round_s"] - table["influence_s"] - table["optimise_s"]).abs().max() < 2e-6
    assert (table["round_with_sampling_s"] - table["round_s"] - table["sampling_s"]).abs().max() < 2e-6
    assert (table[list(timings.PHASES)] >= 0).all(axis=None) and (table["sampling_s"] > 0).all()
    assert (
        table["code"].nunique() == 1
        and 11 <= len(table["code"][0]) <= 12
        and lines == ["frozenlake: 2 x 1 rounds of ppo, iif_p50"]
    )


def study(*names: str) -> Config:
    grid = [{"environments": ["acrobot"], "methods": ["ppo"], "seeds": [0]}]
    return Config({"study": "s", "grid": grid, "timings": list(names)}, CATALOGUE)


def test_ppo_and_iif_at_the_environments_own_p_are_timed():
    """In environments that need not be in the grid."""
    specs = timed(study("minigrid", "frozenlake"))
    kinds = {name: {s.selection.kind: s.selection.drop_percent for s in specs[name].values()} for name in specs}
    assert kinds == {"minigrid": {"all": None, "influence": 12.5}, "frozenlake": {"all": None, "influence": 50}}
    assert list(specs["frozenlake"])[0] == "ppo" and timed(study()) == {}


def test_an_unknown_environment_is_named():
    with pytest.raises(
        ConfigError, match="config: timings: unknown environment 'frozenlke', did you mean 'frozenlake'"
    ):
        timed(study("frozenlke"))
