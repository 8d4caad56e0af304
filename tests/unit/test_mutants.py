"""Small faults: how they are made and found, and the explanations of those that no test notices."""

import csv

import pytest

from benchmarks import mutants

CODE = """
import functools

LIMIT: int = 3


@functools.cache
def clipped(values, strict=True):
    if not values:
        raise ValueError(f"{1 + 1}")
    values.sort()
    return [x * 2 for x in values if 0 < x <= LIMIT], dict(zip(values, values, strict=True))
"""
FAULTS = [
    "3 -> 4",
    "True -> False",
    "if not values: -> if not not values:",
    "not values -> values",
    "raise ValueError(f'{1 + 1}') -> pass",
    "values.sort() -> pass",
    "x * 2 -> x / 2",
    "2 -> 3",
    "0 < x <= LIMIT -> 0 <= x <= LIMIT",
    "0 -> 1",
]


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "SOURCE", tmp_path)
    path = tmp_path / "sums.py"
    path.write_text(CODE)
    return path


def test_faults_by_hand(module):
    made = list(mutants.mutants(module))
    assert [f"{mutant.before} -> {mutant.after}" for mutant in made] == FAULTS
    assert (made[7].module, made[7].code) == ("sums.py", CODE.splitlines()[11].strip())


def test_functions_of_a_running_process_get_the_fault(module):
    names = {}
    exec(compile(CODE, str(module), "exec"), names)
    clipped, by_fault = names["clipped"].__wrapped__, dict(zip(FAULTS, mutants.mutants(module), strict=True))
    assert clipped([3, 1, 0])[0] == [2, 6]
    assert mutants.exchange(by_fault["3 -> 4"]) == set()  # that takes an import
    assert {name for _, name, _ in mutants.exchange(by_fault["2 -> 3"])} == {"clipped", "clipped.<locals>.<listcomp>"}
    assert clipped([3, 1, 0])[0] == [3, 9]
    mutants.exchange(by_fault["0 < x <= LIMIT -> 0 <= x <= LIMIT"])
    assert clipped([3, 1, 0])[0] == [0, 2, 6]  # and no other


def test_a_fork_answers_or_is_given_up():
    assert mutants.forked(lambda: {"kept": [1, 2]}, 10) == {"kept": [1, 2]}
    assert mutants.forked(lambda: 1 / 0, 10) is None

    def endless():
        while True:
            pass

    assert mutants.forked(endless, 1) is None


def test_the_sample_follows_from_its_seed():
    first, again, other = (mutants.sample(20, seed, "selection") for seed in (0, 0, 1))
    assert first == again != other
    assert sum(map(len, first.values())) == 20


def test_what_is_explained_is_there():
    for module, code, before, after in mutants.explanations():
        places = {(m.code, m.before, m.after) for m in mutants.mutants(mutants.SOURCE / module)}
        assert (code, before, after) in places, f"{module}: {code}"


def test_nine_in_ten_of_the_committed_sample_are_noticed_and_the_others_explained():
    with mutants.TABLE.open(newline="") as file:
        verdicts = [row["verdict"] for row in csv.DictReader(file)]
    assert len(verdicts) >= 200 and set(verdicts) <= {"killed", "explained"}
    assert verdicts.count("killed") >= 0.9 * len(verdicts)
