"""`config/claims.yaml`: what the paper claims, and the rules by which a study's tables confirm it or not."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from rl_influence.analysis.first_passage import FRACTIONS
from rl_influence.config import CATALOGUE, Closed, Identifier, Text, parse, read_yaml

FEWEST_SEEDS = 3  # a check with fewer in its design decides nothing
AGAINST_PPO = ("se_ave", "se_peak", "rt_peak")  # the paper's metrics, against PPO of the same seed
Scalar = str | float
Filter = dict[Identifier, Scalar | tuple[Scalar, ...]]


class PairConfig(Closed):
    """The other pair of a comparison of comparisons."""

    environment: Identifier | None = Field(None, description="default the check's own")
    method: Identifier = Field(description="instead of the method of `where`")
    against: Identifier = Field(description="instead of the method of `against`")


class CheckConfig(Closed):
    """One number, a mean over seeds with its t interval, against a threshold; made in each environment of the claim."""

    seeds: dict[Identifier, int] = Field({}, description="environment -> planned seeds; default the claim's")
    case: str = Field("", description="one of several cases that the claim has in an environment")
    role: Literal["decides", "vetoes", "completes", "beside"] = Field("decides", description="see the file's head")
    table: Identifier = Field(description="a table of the study with a row or more per seed")
    where: Filter = Field({}, description="column -> value, or values, of the rows that count")
    any_of: tuple[Filter, ...] = Field((), description="alternatives to `where`: one of them must hold")
    against: Filter | None = Field(None, description="the rows of the other side, paired by seed; method as in `where`")
    compare: Literal["difference", "ratio"] = Field("difference", description="how both sides are compared")
    than: PairConfig | None = Field(None, description="minus the same number of this pair")
    quantity: Identifier = Field(description="column that is averaged within each seed; rounds_saved: of rounds_to")
    over: Identifier | None = Field(None, description="column that `quantity` is divided by, row by row")
    above: float | None = Field(None, description="the claim says that the number is above this")
    below: float | None = Field(None, description="the claim says that the number is below this")
    range: Literal["one", "ppo_rise", "ppo_rise_per_round"] = Field("one", description="the margin is a share of it")
    percent: bool = Field(False, description="print the number in percent")
    reported: tuple[Text, ...] = Field(
        (), description="the paper's numbers: places in paper_reported.yaml; {environment} and {method} are filled in"
    )

    @model_validator(mode="after")
    def _can_be_decided(self) -> CheckConfig:
        if (self.above is None) == (self.below is None):
            raise ValueError("a check needs one of above and below")
        if self.role == "decides" and self.quantity in AGAINST_PPO:
            raise ValueError(
                f"{self.quantity} is not 0 between equal methods and cannot decide; choices: vetoes, completes, beside"
            )
        if (self.quantity == "rounds_saved") != (self.table == "rounds_to"):
            raise ValueError("rounds_saved is the quantity of table rounds_to, and its only one")
        if self.table == "rounds_to" and not self.against:
            raise ValueError("rounds_saved needs against")
        if bool(self.where) == bool(self.any_of):
            raise ValueError("a check needs one of where and any_of")
        if self.than and not self.against:
            raise ValueError("than needs against")
        _enough(self.seeds)
        return self

    @property
    def sign(self) -> int:
        """1 if the claim says `above`, -1 if `below`."""
        return 1 if self.above is not None else -1

    @property
    def threshold(self) -> float:
        return self.above if self.above is not None else self.below

    @property
    def has_margin(self) -> bool:
        """Whether the threshold says `no effect`; any other one is a size of its own."""
        if not self.against:
            return self.threshold == 0
        return self.threshold == (1 if self.compare == "ratio" else 0)

    @property
    def sides(self) -> tuple[Filter, ...]:
        """What `where` says, or each of its alternatives."""
        return self.any_of or (self.where,)


class ClaimConfig(Closed):
    """A claim, its checks, and in how many environments they must hold."""

    claim: int = Field(ge=1, description="number")
    control_of: int | None = Field(None, description="the claim that this one is a control of")
    title: str = Field(min_length=1, max_length=60, description="the statement in ten words at most")
    statement: Text = Field(description="what the paper says, in our own words")
    source: Text = Field(description="where in the paper")
    seeds: dict[Identifier, int] = Field(min_length=1, description="environment -> planned seeds")
    requires: tuple[CheckConfig, ...] = Field((), description="means without which the claim does not apply")
    checks: tuple[CheckConfig, ...] = Field(min_length=1, description="what is measured")
    replicated: int = Field(ge=1, description="in so many cases every check holds")
    partly: int = Field(ge=1, description="in so many cases the deciding checks hold and no veto fails")

    @model_validator(mode="after")
    def _rule_fits(self) -> ClaimConfig:
        _enough(self.seeds)
        for check in (*self.requires, *self.checks):
            if unknown := set(check.seeds) - set(self.seeds):
                raise ValueError(f"claim {self.claim}: a check is made in {min(unknown)}, which its seeds do not list")
        cases = self.cases
        if not self.partly <= self.replicated <= len(cases):
            raise ValueError(
                f"claim {self.claim}: partly {self.partly} and replicated {self.replicated} do not rise to at most "
                f"{len(cases)}, its number of cases"
            )
        for case in cases:
            if not any(check.role == "decides" for check in self.checks_of(case)):
                raise ValueError(f"claim {self.claim}: nothing decides in {' '.join(case).strip()}")
        return self

    def seeds_of(self, check: CheckConfig) -> dict[str, int]:
        """Environment -> planned seeds of a check."""
        return check.seeds or self.seeds

    @property
    def cases(self) -> list[tuple[str, str]]:
        """(environment, case) pairs, of which the claim counts how many hold."""
        counting = [check for check in self.checks if check.role != "beside"]
        return list(dict.fromkeys((e, check.case) for check in counting for e in self.seeds_of(check)))

    def checks_of(self, case: tuple[str, str]) -> list[CheckConfig]:
        return [check for check in self.checks if check.case == case[1] and case[0] in self.seeds_of(check)]

    @property
    def rule(self) -> str:
        """The rule in words."""
        n, what = len(self.cases), "environments" if len(self.cases) == len(self.seeds) else "cases"
        return (
            f"replicated: everything holds in at least {self.replicated} of {n} {what}; partly: what decides holds in "
            f"at least {self.partly} and nothing vetoes; not replicated: fewer than {self.partly} still can"
        )


class SequentialConfig(Closed):
    """When seeds may be added, and what that costs every interval."""

    studies: tuple[Identifier, ...] = Field(description="studies that are looked at more than once")
    looks: tuple[float, ...] = Field(min_length=1, description="multiples of the planned seeds, rising from 1")
    alpha: float = Field(0.05, gt=0, lt=1, description="chance of a false alarm over all looks together")

    @model_validator(mode="after")
    def _rising(self) -> SequentialConfig:
        if self.looks[0] != 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError("looks must rise from 1")
        return self


class Claims(Closed):
    """What the paper claims, and when our results confirm it; the file's head says how a verdict comes about."""

    version: int = Field(ge=2, description="of the rules")
    written: Text = Field(description="day on which they were written")
    margin: float = Field(gt=0, lt=1, description="share of an outcome's range that counts as no effect")
    companion: tuple[float, ...] = Field(description="parts of PPO's rise that rounds_saved is the mean over")
    sequential: SequentialConfig = Field(description="the rule for more seeds")
    tuned: dict[Identifier, tuple[Identifier, ...]] = Field({}, description="name -> methods of which the best counts")
    claims: tuple[ClaimConfig, ...] = Field(min_length=1, description="each number once")

    @model_validator(mode="after")
    def _fits(self) -> Claims:
        numbers = [claim.claim for claim in self.claims]
        if repeated := {number for number in numbers if numbers.count(number) > 1}:
            raise ValueError(f"claim {min(repeated)} is repeated")
        if unknown := {claim.control_of for claim in self.claims} - {None, *numbers}:
            raise ValueError(f"claim {min(unknown)} has a control and is not there")
        if self.companion != FRACTIONS:
            raise ValueError(f"companion {list(self.companion)}: the table rounds_to has {list(FRACTIONS)}")
        return self

    @property
    def tables(self) -> list[str]:
        """Tables that the rules read."""
        checks = [check for claim in self.claims for check in (*claim.requires, *claim.checks)]
        found = [check.table for check in checks]
        return list(dict.fromkeys([*found, "returns_per_seed", "null_values"]))  # ranges, and what no effect looks like


def _enough(seeds: dict[str, int]) -> None:
    for environment, number in seeds.items():
        if number < FEWEST_SEEDS:
            raise ValueError(f"{number} planned seeds of {environment} decide nothing; at least {FEWEST_SEEDS}")


def load_claims(folder: str | Path = CATALOGUE) -> Claims:
    """The claims; `folder` is the catalogue's. `ConfigError` for anything wrong in the file."""
    path = Path(folder) / "claims.yaml"
    return parse(Claims, read_yaml(path), path)
