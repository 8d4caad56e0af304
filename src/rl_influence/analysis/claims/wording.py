"""Claims in words: checks, reasons, the paper's numbers as it prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from rl_influence.analysis.numbers import count, interval
from rl_influence.analysis.reported import Reported
from rl_influence.config import ConfigError

from .models import FEWEST_SEEDS, CheckConfig, ClaimConfig, Filter
from .samples import Context, located
from .verdicts import Verdict

QUANTITIES = {  # as readers know them
    "rounds_saved": "rounds saved",
    "se_ave": "SE_ave",
    "se_peak": "SE_peak",
    "rt_peak": "RT_peak",
    "mean_training_return": "mean training return",
    "final_return": "final return",
    "influence_s": "influence",
    "optimise_s": "optimisation",
    "round_s": "influence + optimisation of a round",
    "round_with_sampling_s": "sampling + influence + optimisation of a round",
    "spearman_product": "Spearman of influence with true × estimated advantage",
    "error": "advantage error",
    "sign_agreement": "sign agreement of true and estimated advantage",
    "delta": "change of the return in a round",
    "dropped_share": "share of sequences dropped",
    "rounds_to_best": "rounds to PPO's best reward",
    "time_to_best_s": "time to PPO's best reward",
    "reward_at_equal_kl": "reward at equal KL",
}
FILTERS = {  # (column, value) -> words; columns that say nothing to a reader are left out
    ("last_rank", "2048"): "bottom 64 records",
    ("first_rank", "1"): "top 64 records",
    ("arm", "negative_p"): "without the negative records that IIF drops",
    ("arm", "random_p"): "without as many random ones",
    ("arm", "negative"): "without all negative records",
    ("arm", "all"): "all records",
    **{("third", third): f"{third} third of the rounds" for third in ("first", "middle", "last")},
}
MARKS = {"holds": "\u2713", "fails": "\u2717", "undecided": "?", "incomplete": "\u2026", "not applicable": "n/a"}
SILENT = ("environment", "source", "round", "neighbours")
TUNED = {"ppo_tuned": "PPO, tuned rate", "iif_tuned": "IIF, tuned rate", "random_tuned": "Random, tuned rate"}


def check_text(check: CheckConfig, environment: str, side: Filter | None, context: Context) -> str:
    """A check in words: `IIF, p = 50 % against PPO: difference in final return > 0`."""

    def who(where: Mapping) -> str:
        return ", ".join(_words(located(where, environment, context.config), context)) or "all records"

    scale = 100 if check.percent else 1
    sign = ">" if check.above is not None else "<"
    what = QUANTITIES.get(check.quantity, check.quantity.replace("_", " "))
    what += f" / {QUANTITIES.get(check.over, check.over)}" if check.over else ""
    subject = who(side or check.sides[0])
    subject = f"best of {len(check.sides)}: {subject}" if check.any_of else subject
    if check.against:
        subject += f" against {who(check.against)}"
        what = what if check.quantity == "rounds_saved" else f"{check.compare} in {what}"
    if check.than:
        place = check.than.environment
        pair = [who({"method": check.than.method}), who({"method": check.than.against})]
        subject += f", minus {' against '.join(pair)}{f' in {place}' if place else ''}"
    return f"{subject}: {what} {sign} {scale * check.threshold:g}{' %' if check.percent else ''}"


def _words(where: Mapping, context: Context) -> Iterator[str]:
    for name, value in where.items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if name == "method":
            method = context.config.methods.get(shown)
            yield method.label if method else TUNED.get(shown, "IIF" if shown == "chosen" else shown)
        elif name not in SILENT:
            yield FILTERS.get((name, shown), f"{name} {shown}")


def reason(claim: ClaimConfig, verdict: Verdict, missing: Sequence) -> str:
    """How the verdict comes about: what counts, what is settled already, what is missing."""
    n, found = len(claim.cases), verdict.cases
    parts = [f"{found['full']} of {n} in full"]
    parts += [f"{found[kind]} {words}" for kind, words in (("part", "in part"), ("fails", "fail")) if found[kind]]
    parts += [f"{found[kind]} {kind}" for kind in ("undecided", "open", "not applicable") if found[kind]]
    text = ", ".join(parts)
    if not verdict.settled:
        text += f"; so far {so_far(verdict)}"
    elif missing or found["open"]:
        text += "; nothing that is missing can change it"
    return text + (f"; {runs_missing(missing)}" if missing else "")


def so_far(verdict: Verdict) -> str:
    """What is settled although runs are missing."""
    known = {"partly": ["at least partly"], "undecided": ["it can no longer fail"]}.get(verdict.floor, [])
    known += {"partly": ["no longer replicated"], "undecided": ["no longer even partly"]}.get(verdict.ceiling, [])
    return ", ".join(known) or "nothing is settled"


def runs_missing(missing: Sequence) -> str:
    return f"{len(missing)} run{'s are' if len(missing) > 1 else ' is'} missing"


def named(missing: Sequence[tuple[str, str, int]]) -> str:
    """`highway ppo seeds 1, 2; highway random seed 1`."""
    seeds: dict[str, list[str]] = {}
    for environment, method, seed in missing:
        seeds.setdefault(f"{environment} {method}", []).append(str(seed))
    return "; ".join(f"{run} seed{'s' if len(x) > 1 else ''} {', '.join(x)}" for run, x in seeds.items())


# The paper


def paper_number(
    check: CheckConfig, environment: str, method: str | None, reported: Reported
) -> tuple[str, float, int]:
    """The paper's number as printed, its value on our scale (nan: none), and its number of seeds. Two places: their
    ratio where ours is one, else their difference. `ConfigError` for a place that paper_reported.yaml does not have."""
    paths = [place.format(environment=environment, method=method) for place in check.reported]
    pairs = [reported_pair(reported, p, optional="{" in q) for p, q in zip(paths, check.reported, strict=True)]
    if not pairs or None in pairs:
        return "", np.nan, 0
    found = list(zip(paths, pairs, strict=True))
    shown = [f"[{a:g}, {b:g}]" if path.startswith("table_4.") else f"{a:g} ± {b:g}" for path, (a, b) in found]
    means = [sum(pair) / 2 if path.startswith("table_4.") else pair[0] for path, pair in found]
    percent = found[0][0].rsplit(".", 1)[-1] in ("se_ave", "se_peak", "rt_peak", "rounds", "runtime")
    scale = 0.01 if percent else 1.0
    if len(means) == 1:
        value = scale * means[0]
    else:
        value = means[0] / means[1] if check.over or check.compare == "ratio" else scale * (means[0] - means[1])
    main = found[0][0].split(".")[0] in ("figure_6b", "table_4", "table_5")
    return " against ".join(shown), value, reported.seeds["main" if main else "ablations"]


def reported_pair(reported: Reported, path: str, optional: bool = False) -> tuple[float, float] | None:
    """A pair of numbers of the paper by its place in paper_reported.yaml (`ConfigError` if it is none); None if an
    `optional` place, which depends on environment or method, is one of which the paper prints nothing."""
    value: object = reported
    for depth, part in enumerate(path.split(".")):
        if optional and depth in (1, 2) and isinstance(value, dict) and part not in value:
            return None
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    if not (isinstance(value, tuple) and len(value) == 2):
        raise ConfigError(f"claims.yaml: reported {path!r} is no number of paper_reported.yaml")
    return value


def number_text(row: Mapping) -> str:
    """A check's number as people read it: value [low, high] (none for fewer than three seeds), n; ≤, ≥ or ≈ where
    returns were never reached."""
    ends = (row["low"], row["high"]) if row["n"] >= FEWEST_SEEDS else (np.nan, np.nan)
    shown = interval(row["value"], *ends, percent=row["unit"] == "fraction", bound=row["bound"])
    return f"{shown}, n = {count(row)}"


def texts(verdicts: pd.DataFrame) -> Iterator[str]:
    """One line per claim, for the terminal."""
    for row in verdicts.to_dict("records"):
        yield f"claim {row['claim']:>2}  {row['verdict']:<15} {row['statement']} ({row['reason']})"
