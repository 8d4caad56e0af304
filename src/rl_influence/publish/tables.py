"""Tables for people: which of a study's tables the report shows, what they say, and their cells in words."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from rl_influence.analysis.numbers import REMOVALS, count, interval, number
from rl_influence.config import Config

SHOWN = {  # table -> title, what it says
    "efficiency": (
        "Sample efficiency",
        "Share of PPO's rounds that a method saves: SE_ave over all levels that PPO reaches, SE_peak at PPO's best "
        "(empty where most seeds never get there); PPO against PPO of another seed shows chance. "
        "Paired by seed. Levels are counted over all seeds; where one is never reached, "
        "the number is an upper bound, ≤.",
    ),
    "rounds_saved": (
        "Rounds saved along PPO's rise",
        "(m_PPO \u2212 m) / max(m, m_PPO) with m the first round at 50, 75 and 90 % of the way from PPO's untrained "
        "return to the top of its mean curve, and the mean of the three. SE_ave hangs on the last, small rises of one "
        "curve.",
    ),
    "final_returns": (
        "Final returns",
        "Final return: mean over the last tenth of the rounds; and the mean training return.",
    ),
    "final_gains": (
        "Final gain over PPO",
        "Final return minus that of PPO with the same seed. The detectable gain is the smallest true one that so many "
        "seeds find with a power of 80 %.",
    ),
    "controls": (
        "The gain taken apart",
        "Two methods of the same seeds, compared directly; rows of one effect change the same thing. SE_ave: with the "
        "second method in PPO's place. ≈: some returns were never reached, by either of the two.",
    ),
    "heuristics": ("Advantage heuristics", "The same for the heuristics, with estimated and with exact advantages."),
    "table_2": ("Table 2: sweep of p", "SE of IIF for every p, with the paper's Table 2 beside it."),
    "table_3": ("Table 3: Adam", "SE of IIF with the Adam optimiser, with the paper's Table 3 beside it."),
    "table_4": ("Table 4: final gain", "Final return of IIF minus PPO's, with the paper's interval (95 %) beside it."),
    "table_5": (
        "Table 5: runtimes",
        "CPU seconds on one thread, per round and in total, and RT_peak. The paper's seconds are of its own machine "
        "and of Stable-Baselines3: compare the shares, not the seconds. "
        "Where a seed never reaches PPO's best, the time to it is a lower bound, ≥, and RT_peak an upper one, ≤.",
    ),
    "diagnosis_summary": (
        "Advantages of the bottom records",
        "Per round and source of the true advantage: Spearman of influence with true \u00d7 estimated advantage "
        "(positive: helpful records have the right sign; the paper correlates with the rank, which turns the sign) and "
        "with the error |true \u2212 estimated|; error and sign agreement of all records and of the bottom 100.",
    ),
    "agreement_summary": (
        "Start-of-round scores against full TracIn",
        "Spearman of both scorings of a buffer; overlap: share of the records that IIF drops at its p which the full "
        "sum drops as well, beside what a random set of that size would share.",
    ),
    "interventions_summary": (
        "Single rounds without their negative records",
        "Change of the test return in a round without some of its records, minus that in the same round without "
        "others; ahead: share of the rounds, of all seeds together, in which the first gives the higher return.",
    ),
    "faithfulness_summary": (
        "Do scores predict what removals do?",
        "Linear datamodelling score: Spearman, over removed sets of records (random halves, or the largest groups one "
        "at a time), of the summed scores with the outcome of the redone round; reliability: of the outcome between "
        "mini-batch orders.",
    ),
    "runtimes": ("Runtimes of every method", "CPU seconds per round by phase, totals of all rounds, and RT_peak."),
}
PERCENT = ("se_ave", "se_peak", "rt_peak", "rounds_saved", "se_ave_null", "sign_agreement", "sign_agreement_bottom")
PERCENT += ("drop_fraction", "overlap", "overlap_by_chance", "jaccard", "ahead")
WORDS = {  # column -> its head
    "n": "seeds",
    "se_ave": "SE_ave",
    "se_peak": "SE_peak",
    "se_ave_null": "SE_ave, PPO against PPO",
    "rt_peak": "RT_peak",
    "rt_peak_with_sampling": "RT_peak, sampling included",
    "paper_se_ave": "SE_ave, paper",
    "paper_se_peak": "SE_peak, paper",
    "paper_rt_peak": "RT_peak, paper",
    "minus": "against",
    "arm": "removed",
    "ahead": "rounds ahead",
    "at": "level of PPO's rise",
    "levels": "PPO's levels",
    "source": "true advantage",
    "sets": "removed sets",
    "orders": "mini-batch orders",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "jaccard": "Jaccard",
    "iqm": "interquartile mean",
    "drop_percent": "p (%)",
    "drop_fraction": "p",
    "unreached": "levels never reached",
    "peak_unreached": "seeds below PPO's best",
    "spearman_product": "Spearman, influence with true × estimated",
    "spearman_product_by_rank": "the same by rank",
    "spearman_error": "Spearman, influence with error",
    "error_bottom": "error, bottom 100",
    "sign_agreement": "signs agree",
    "sign_agreement_bottom": "signs agree, bottom 100",
}
ARMS = {
    "all": "none",
    "negative": "all negative",
    "negative_p": "most negative p",
    "random": "as many at random",
    "random_p": "as many at random",
}
CELLS = {  # column -> its values in words
    "arm": ARMS,
    "removal": REMOVALS,
    "outcome": {"test_return": "test return"},
    "at": {"0.5": "50 %", "0.75": "75 %", "0.9": "90 %"},
    "paper_source": {"table_2": "Table 2", "table_3": "Table 3", "figure_6b": "Figure 6b"},
}


def words(name: str) -> str:
    """A column or quantity for people: `total_iif_with_sampling_s` is `total IIF with sampling (s)`."""
    text, unit = (name[:-2], " (s)") if name.endswith("_s") else (name, "")
    text = re.sub(r"\b(iif|ppo)\b", lambda match: match[0].upper(), text.replace("_", " "))
    return WORDS.get(name, f"{text}{unit}")


def readable(frame: pd.DataFrame, config: Config) -> pd.DataFrame:
    """A table for people: labels, `value [low, high]`, `mean ± spread`, percent, `4 of 5`; the paper's beside ours."""
    groups: dict[str, dict[str, str]] = {}  # shown column -> part -> column; standard deviations stay in the CSV
    for name in frame.columns.drop([c for c in frame if c in ("expected", "unit") or c.endswith("_sd")]):
        match = re.fullmatch(r"(?:(.+)_)?(low|high|spread)", name)
        base, part = (match[1] or "value", match[2]) if match else (name, "value")
        groups.setdefault(base, {})[part] = name
    rows = frame.to_dict("records")
    shown = {}
    names = list(groups)
    ours = {name: name.removeprefix("paper_") for name in names}
    for base in sorted(names, key=lambda name: names.index(ours[name] if ours[name] in names else name)):
        shown[base] = [_cell(row, base, groups[base], config) for row in rows]
    return pd.DataFrame(shown)


def _cell(row: dict, base: str, parts: dict[str, str], config: Config) -> str:
    value, low, high, spread = (row.get(parts.get(part)) for part in ("value", "low", "high", "spread"))
    if value in CELLS.get(column := "arm" if base == "minus" and "arm" in row else base, {}):
        return CELLS[column][value]
    if base in ("environment", "method", "minus"):
        labels = config.environments if base == "environment" else config.methods
        return labels[value].label if value in labels else value
    if base == "n" and "expected" in row:
        return count(row)
    if isinstance(value, str):
        return words(value) if base == "quantity" else value
    stem = base.removeprefix("paper_").replace("_with_sampling", "")
    kind = row.get("unit") or ("fraction" if row.get("quantity") in PERCENT else "") if stem == "value" else ""
    percent = stem in PERCENT or kind == "fraction"
    if value is None:  # an interval alone, as the paper prints some
        return "" if pd.isna(low) else f"[{number(low, percent=percent)}, {number(high, percent=percent)}]"
    if pd.isna(value):
        return ""
    if spread is not None and not pd.isna(spread):
        shown = f"{number(value, percent=percent)} ± {number(spread, percent=percent)}"
        return f"{shown} %" if percent else shown
    low, high = (np.nan if x is None else x for x in (low, high))
    return interval(value, low, high, percent=percent, bound=_bound(row, base))


def _bound(row: dict, base: str) -> str:
    """Whether a saving is only a bound: some returns were never reached, and the last round stands in for theirs."""
    quantity = row.get("quantity") or base if base == "value" else base
    if quantity.startswith(("se_peak", "rt_peak", "matching_peak")):
        return ("at least" if quantity.startswith("matching") else "at most") if row.get("peak_unreached") else ""
    if base in ("se_ave", "rounds_saved"):
        return "at most" if row.get("unreached") else ""
    return "either way" if base == "value" and row.get("unreached") else ""
