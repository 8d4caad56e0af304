"""The blocks of docs/results.md: every number behind README.md, from the committed tables of the studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import gymnasium
import numpy as np
import pandas as pd

from rl_influence.analysis.claims import samples
from rl_influence.analysis.claims.models import FEWEST_SEEDS
from rl_influence.analysis.curves import chosen_iif
from rl_influence.analysis.numbers import UNDEFINED, interval, number
from rl_influence.config import Config
from rl_influence.publish.ledger import STUDIES, Ledger, read_table

OUTCOMES = {"f_return": "f_return", "test_return": "test return"}
COMMITTED = (*STUDIES, "rlhf_fast", "rlhf_study")  # other results of a folder are its user's own


def claims_in_full(ledger: Ledger) -> str:
    """Every claim with its rule, its verdicts and its checks."""
    return "\n".join(_claim(ledger, number) for number in _numbers(ledger))


def _numbers(ledger: Ledger) -> list[int]:
    return list(ledger.verdicts[ledger.studies[-1]].index)


def _claim(ledger: Ledger, claim: int) -> str:
    """A claim with the verdict of each study, its rule and its checks."""
    first = ledger.verdicts[ledger.studies[-1]].loc[claim]
    lines = [f"### {claim}. {first['statement']}\n", f"*{first['source']}*; {first['rule']}.\n"]
    lines.append(f"* By the checks below: **{ledger.verdict(claim).verdict}**.")
    for study in ledger.studies:
        row = ledger.verdicts[study].loc[claim]
        lines.append(f"* `{study}`: **{row['verdict']}** ({row['reason']})")
    rows = []
    for row in ledger.of(claim):
        if row["role"] == "requires" or not row["n"]:
            continue
        percent = row["unit"] == "fraction"
        rows.append(
            {
                "environment": row["label"],
                "check": row["check"],
                "role": row["role"],
                "ours": row["text"],
                "seeds": row["study"],
                "null": "" if pd.isna(row["null"]) else number(row["null"], percent=percent),
                "margin": number(row["margin"], percent=percent) if row["margin"] else "",
                "paper": row["paper"] if pd.notna(row["paper"]) else "",
                "inside?": row["paper_inside"] if pd.notna(row["paper_inside"]) else "",
                "outcome": row["outcome"],
            }
        )
    return "\n".join(lines) + "\n" + (f"\n{table(rows)}\n" if rows else "")


def table(rows: list[dict]) -> str:
    """A Markdown table; `|` in a cell is text."""
    frame = pd.DataFrame(rows).astype(object).fillna(UNDEFINED).astype(str).replace(r"\|", r"\\|", regex=True)
    return frame.to_markdown(index=False, disable_numparse=True, tablefmt="github")


def _each(ledger: Ledger, name: str):
    """(study, its table) where there are rows with numbers."""
    for study in ledger.studies:
        path = ledger.tables(study) / f"{name}.csv"
        frame = read_table(path) if path.exists() else pd.DataFrame()
        frame = frame[frame["n"] > 0] if "n" in frame else frame
        if len(frame):
            yield study, frame


def _by_study(made: Iterable[tuple[str, list[dict]]]) -> str:
    """A table for each study that has rows."""
    return "\n".join(f"Study `{study}`:\n\n{table(rows)}\n" for study, rows in made if rows)


def _wide(cells: Iterable[tuple[dict, dict]]) -> list[dict]:
    """A row for each head, with all of its cells beside it."""
    rows: dict[tuple, dict] = {}
    for head, cell in cells:
        rows.setdefault(tuple(head.values()), dict(head)).update(cell)
    return [*rows.values()]


def _spread(row: dict, name: str, *, percent: bool = False, bound: str = "") -> str:
    """value [low, high]; the columns are name, name_low, name_high (or low, high)."""
    few = row.get("n", FEWEST_SEEDS) < FEWEST_SEEDS
    low, high = (np.nan if few else row.get(f"{name}_{end}", row.get(end)) for end in ("low", "high"))
    return interval(row[name], low, high, percent=percent, bound=bound)


def controls(ledger: Ledger) -> str:
    """Two methods of the same seeds that differ in one thing, or in all of them."""
    return _contrasts(ledger, "controls")


def heuristics(ledger: Ledger) -> str:
    """The advantage heuristics with exact and with estimated advantages, and IIF."""
    return _contrasts(ledger, "heuristics")


QUANTITIES = {"rounds_saved": "rounds saved", "se_ave": "SE_ave", "mean_training_return": "mean training return"}


def _contrasts(ledger: Ledger, name: str) -> str:
    def cells(row: dict) -> tuple[dict, dict]:
        head = {"environment": ledger.config.labels[row["environment"]], "changes": row["effect"]}
        head |= {"contrast": row["contrast"], "n": row["n"]}
        percent, bound = row["quantity"] != "mean_training_return", "either way" if row["unreached"] else ""
        return head, {QUANTITIES[row["quantity"]]: _spread(row, "value", percent=percent, bound=bound)}

    shown = ((study, frame[frame["quantity"].isin(QUANTITIES)]) for study, frame in _each(ledger, name))
    return _by_study((study, _wide(map(cells, frame.to_dict("records")))) for study, frame in shown)


def levels(ledger: Ledger) -> str:
    """Where along PPO's rise rounds are saved."""

    def cells(row: dict) -> tuple[dict, dict]:
        at = "mean" if str(row["at"]) == "mean" else f"at {100 * float(row['at']):g} %"
        bound = "either way" if row.get("unreached") else ""
        head = {"environment": ledger.config.labels[row["environment"]], "n": row["n"]}
        return head, {at: _spread(row, "rounds_saved", percent=True, bound=bound)}

    def rows(frame: pd.DataFrame) -> list[dict]:
        records = frame.to_dict("records")
        return _wide(cells(r) for r in records if r["method"] == chosen_iif(ledger.config, r["environment"]))

    return _by_study((study, rows(frame)) for study, frame in _each(ledger, "rounds_saved"))


def faithfulness(ledger: Ledger) -> str:
    """By round and group, as it is."""

    def cells(row: dict) -> tuple[dict, dict]:
        head = {"environment": ledger.config.labels[row["environment"]], "left out": row["removal"]}
        head |= {"scores": row["scoring"], "predicts": OUTCOMES.get(row["outcome"], row["outcome"]), "n": row["n"]}
        low, high = (min(1.0, max(-1.0, row[f"spearman_{end}"])) for end in ("low", "high"))
        ends = f" [{low:.2f}, {high:.2f}]" if row["n"] >= FEWEST_SEEDS else ""
        return head, {f"round {row['round']}": f"{row['spearman']:.2f}{ends}"}

    tables = _each(ledger, "faithfulness_summary")
    return _by_study((study, _wide(map(cells, frame.to_dict("records")))) for study, frame in tables)


def null_values(ledger: Ledger) -> str:
    """PPO against PPO."""

    def cells(row: dict) -> dict:
        spread = {"mean": f"{row['mean']:.3g}", "2.5 to 97.5 %": f"{row['low']:.3g} to {row['high']:.3g}"}
        head = {"environment": ledger.config.labels[row["environment"]], "metric": row["metric"]}
        return head | spread | {"pairs": row["pairs"]}

    return _by_study((study, [*map(cells, f.to_dict("records"))]) for study, f in _each(ledger, "null_values"))


def power(ledger: Ledger) -> str:
    """What each check can show."""
    names = {"holds_if_paper": "holds, if paper", "fails_if_none": "fails, if none", "holds_if_none": "holds, if none"}
    rows = []
    for row in read_table(ledger.tables(ledger.studies[-1]) / "claims_power.csv").to_dict("records"):
        if pd.isna(row["sd"]) or row["role"] == "beside":
            continue
        cells = {"claim": row["claim"], "environment": ledger.config.labels.get(row["environment"], row["environment"])}
        cells |= {"check": row["check"], "planned": row["planned"]}
        cells |= {words: "" if pd.isna(row[name]) else f"{row[name]:.0%}" for name, words in names.items()}
        cells |= {"detectable": f"{row['detectable']:.3g}"}
        cells |= {w: "" if pd.isna(row[c]) else f"{row[c]:g}" for c, w in SEEDS.items()}
        rows.append(cells)
    return table(rows)


SEEDS = {"seeds_to_hold": "seeds to hold", "seeds_to_fail": "seeds to fail"}


def multiplicity(ledger: Ledger) -> str:
    """What counting many checks does."""
    frame = read_table(ledger.tables(ledger.studies[-1]) / "claims_multiplicity.csv")
    alpha = ledger.rules.sequential.alpha
    rows = [
        {
            "claim": row["claim"],
            "checks": row["checks"],
            "false holds": f"{row['false_holds']:.2f}",
            "replicated, if true": f"{row['replicated_if_true']:.0%}",
            "if all had to hold": f"{row['all_if_true']:.0%}",
        }
        for row in frame.to_dict("records")
    ]
    checks, false = frame["checks"].sum(), frame["false_holds"].sum()
    twice = checks * alpha / 2
    text = f"Over all claims: {checks} checks, of which {false:.1f} hold by chance at one look if nothing is true; "
    text += f"{twice:.1f} at either of two looks, or in a study that is looked at once, at 95 %."
    return f"{table(rows)}\n\n{text}"


def episodic(ledger: Ledger) -> str:
    """SE_ave of exact curves, and of the same curves as the paper's test episodes would have shown them."""

    def cells(row: dict) -> dict:
        return {
            "environment": ledger.config.labels[row["environment"]],
            "method": ledger.config.methods[row["method"]].label,
            "n": row["n"],
            "SE_ave, exact": number(row["exact_se_ave"], percent=True),
            f"SE_ave, {row['episodes']:,} episodes": _spread(row, "se_ave", percent=True),
        }

    return _by_study((study, [*map(cells, f.to_dict("records"))]) for study, f in _each(ledger, "episodic_efficiency"))


def failures(ledger: Ledger) -> str:
    """Checks that fail: what was to be seen, and what was."""
    return table([_check(row) for row in _counting(ledger, "fails")])


def lost(ledger: Ledger) -> str:
    """Runs that never learn, or lose half of what they had learned; only methods that have some."""
    rows = []
    for study, frame in _each(ledger, "diagnostics_summary"):
        for (environment, method), runs in frame.groupby(["environment", "method"], sort=False):
            kinds = {words: runs[runs[name] > 0]["seed"] for name, words in LOST.items()}
            if any(map(len, kinds.values())):
                labels = ledger.config.labels[environment], ledger.config.methods[method].label
                row = {"study": study, "environment": labels[0], "method": labels[1], "runs": len(runs)}
                rows.append(row | {words: ", ".join(map(str, seeds)) or UNDEFINED for words, seeds in kinds.items()})
    return table(rows) if rows else "None."


LOST = {"never_rose": "never learn: seeds", "collapsed": "collapse: seeds"}


def slight(ledger: Ledger) -> str:
    """Checks that hold, with an estimate that is smaller than what the rules call no effect."""
    rows = [row for row in _counting(ledger, "holds") if abs(row["value"] - row["threshold"]) < row["margin"]]
    shown = (_check(row) | {"margin": number(row["margin"], percent=row["unit"] == "fraction")} for row in rows)
    return table(list(shown)) if rows else "None."


def tuning(ledger: Ledger) -> str:
    """Mean training return at every learning rate, and what is chosen on the other seeds, for each seed."""

    def rows(study: str, frame: pd.DataFrame) -> list[dict]:
        config = Config(ledger.root / f"config/{study}.yaml")
        context = samples.Context(ledger.rules, config, {"returns_per_seed": frame})
        places = [(e, name) for e in dict.fromkeys(frame["environment"]) for name in ledger.rules.tuned]
        return [row for place in places if (row := _tuned(*place, context))]

    return _by_study((study, rows(study, frame)) for study, frame in _each(ledger, "returns_per_seed"))


def _tuned(environment: str, name: str, context: samples.Context) -> dict | None:
    """A row of `tuning`; None where a study has no other rates."""
    config, frame = context.config, context.tables["returns_per_seed"]
    mine = frame[frame["environment"] == environment]
    there = {(environment, method) for method in mine["method"]}
    chosen = samples.tuned_choice(name, environment, context)
    if not chosen:
        return None
    methods = samples.members(name, environment, context, there)
    rates = [config.resolve(environment, method, seed=0).ppo.learning_rate for method in methods]
    means = mine[mine["seed"].isin([*chosen])].groupby("method")["mean_training_return"].mean()
    heads = {method: f"{rate / rates[0]:g} ×" for method, rate in zip(methods, rates, strict=True)}
    counts = Counter(chosen.values())
    row = {"environment": config.labels[environment], "method": config.methods[methods[0]].label, "n": len(chosen)}
    row |= {head: number(means[method]) for method, head in heads.items()}
    picked = ", ".join(f"{head} ({counts[method]})" for method, head in heads.items() if counts[method])
    return row | {"chosen (seeds)": picked}


def ends(ledger: Ledger) -> str:
    """How far PPO and IIF get."""

    def rows(frame: pd.DataFrame) -> list[dict]:
        made = []
        for environment, methods in frame.groupby("environment", sort=False):
            row = {"environment": ledger.config.labels[environment]}
            for method in ("ppo", chosen_iif(ledger.config, environment)):
                found = methods[methods["method"] == method].to_dict("records")
                label = ledger.config.methods[method].label.partition(",")[0]
                row[label] = f"{_spread(found[0], 'final_return')}, n = {found[0]['n']}" if found else "–"
            made.append(row | {"solved at": solved_at(ledger, environment)})
        return made

    return _by_study((study, rows(frame)) for study, frame in _each(ledger, "final_returns"))


def ppo_ends(ledger: Ledger, environment: str, study: str) -> str:
    """PPO's final return in a study, and the return at which gymnasium calls the environment solved."""
    found = [frame for name, frame in _each(ledger, "final_returns") if name == study]
    rows = [f[(f["environment"] == environment) & (f["method"] == "ppo")] for f in found]
    if not rows or rows[0].empty:
        return UNDEFINED
    level = solved_at(ledger, environment)
    return number(rows[0]["final_return"].iloc[0]) + (f" ({level})" if level != UNDEFINED else "")


def solved_at(ledger: Ledger, environment: str) -> str:
    spec = gymnasium.registry.get(ledger.config.environment(environment).gym_id)
    return UNDEFINED if spec is None or spec.reward_threshold is None else f"{spec.reward_threshold:g}"


def undecided(ledger: Ledger) -> str:
    """Checks that the seeds that are there do not decide, and how many would (see `power`)."""
    power = {
        (study, *row[:4]): row[4:]
        for study in ledger.studies
        for row in read_table(ledger.tables(study) / "claims_power.csv")[[*CHECK, *SEEDS]]
        .fillna({"case": ""})
        .itertuples(index=False, name=None)
    }
    rows = []
    for row in _counting(ledger, "undecided"):
        seeds = power.get((row["study"], *(row[name] for name in CHECK)), (float("nan"),) * len(SEEDS))
        cells = ("–" if pd.isna(n) else f"{n:.0f}" for n in seeds)
        rows.append(_check(row) | dict(zip(SEEDS.values(), cells, strict=True)))
    return table(rows)


CHECK = ["claim", "environment", "case", "check"]


def second_looks(ledger: Ledger) -> str:
    """Which claims were looked at again with more seeds, and which the rule allows to."""
    rule, made, left = ledger.rules.sequential, [], []
    for study in (name for name in ledger.studies if name in rule.studies):
        checks = read_table(ledger.tables(study) / "claims_checks.csv")
        checks = checks[~checks["role"].isin(["beside", "requires"])]
        again = checks["n"] >= rule.looks[-1] * checks["planned"]
        undecided = checks["claim"].map(ledger.verdicts[study]["verdict"]) == "undecided"
        made += _places(ledger, checks[again])
        left += _places(ledger, checks[undecided & (checks["outcome"] == "undecided") & ~again])
    return f"Made: {', '.join(made) or 'none'}. Not made: {', '.join(left) or 'none'}."


def _places(ledger: Ledger, checks: pd.DataFrame) -> list[str]:
    """`claim 2 (LunarLander, BipedalWalker)` of each claim."""
    found = checks.groupby("claim", sort=True)["environment"].unique()
    return [f"claim {n} ({', '.join(ledger.config.labels.get(e, e) for e in names)})" for n, names in found.items()]


def _counting(ledger: Ledger, outcome: str) -> list[dict]:
    rows = [row for claim in _numbers(ledger) for row in ledger.of(claim, outcome=outcome)]
    return [row for row in rows if row["role"] not in ("beside", "requires")]


def _check(row: dict) -> dict:
    return {"claim": row["claim"], "environment": row["label"], "check": row["check"], "ours": row["text"]}


def spent(ledger: Ledger) -> str:
    """CPU hours of the committed studies' runs, all phases, from their own `timing.csv`."""
    rows = []
    folders = sorted((ledger.root / "results").glob("*/runs/*"))
    for folder in (folder for folder in folders if folder.parts[-3] in COMMITTED):
        seconds = [pd.read_csv(path).drop(columns="round").sum(axis=None) for path in folder.rglob("timing.csv")]
        label = ledger.config.labels.get(folder.name, folder.name)
        rows.append(
            {"study": folder.parts[-3], "environment": label, "runs": len(seconds), "hours": sum(seconds) / 3600}
        )
    frame = pd.DataFrame(rows)
    whole = f"In all {len(frame) and frame['runs'].sum()} runs and {frame['hours'].sum():.1f} CPU hours."
    cells = frame.assign(hours=frame["hours"].map("{:.1f}".format)).rename(columns={"hours": "CPU hours"})
    return f"{whole}\n\n{table(cells.to_dict('records'))}"


BLOCKS = {
    make.__name__: make
    for make in (
        *(claims_in_full, failures, lost, slight, undecided, second_looks, ends, controls, tuning, levels, heuristics),
        *(faithfulness, episodic, null_values, power, multiplicity, spent),
    )
}
