"""Tables as LaTeX tabulars, in percent where the paper prints percent. They need only the package booktabs."""

from __future__ import annotations

import pandas as pd

from rl_influence.analysis.claims import level_of
from rl_influence.analysis.numbers import REMOVALS, count, number
from rl_influence.analysis.registry import check_tables
from rl_influence.config import Config, choose


def check_printed(config: Config) -> None:
    """Refuses tables that have no printed form, and those of analyses that the study does not ask for.

    Raises:
        ConfigError: for the first one.
    """
    for name in config.study_config.tables:
        choose("printed table", name, LATEX, f"{config.name}: ")
    check_tables(config, {f"table {name}": (name,) for name in config.study_config.tables})


INTERVAL = "interval"  # a header, to be completed by the study's level


def latex(name: str, frame: pd.DataFrame, config: Config) -> str:
    """A table as a LaTeX tabular (needs the package booktabs), in percent where the paper prints percent.

    Raises:
        ConfigError: for a table that has no printed form.
    """
    header, rows = LATEX[choose("printed table", name, LATEX)](frame, config)
    header = [f"{100 * level_of(config):.3g}\\% interval" if cell == INTERVAL else cell for cell in header]
    lines = [rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}", r"\toprule", " & ".join(header) + r" \\"]
    previous = None
    for row in rows:
        same = row[0] == previous
        lines += [] if same else [r"\midrule"]
        lines.append(" & ".join(["" if same else row[0], *row[1:]]) + r" \\")
        previous = row[0]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_efficiency(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", "Method", "$n$", r"SE$_\mathrm{ave}$ (\%)", INTERVAL, "paper"]
    header += [r"SE$_\mathrm{peak}$ (\%)", INTERVAL, "paper"]
    rows = []
    for row in frame.to_dict("records"):
        cells = [*_labels(row, config), count(row)]
        for name, bounds in (("se_ave", row["unreached"]), ("se_peak", row["peak_unreached"])):
            cells += [_spread(row, name, 100, 1, r"\le " if bounds else ""), _range(row, name, 100, 1)]
            cells.append(_spread(row, f"paper_{name}", 100, 1))
        rows.append(cells)
    return header, rows


def _latex_table_4(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", "Method", "$n$", "gain", INTERVAL, "paper", "detectable"]
    rows = []
    for row in frame.to_dict("records"):
        cells = [*_labels(row, config), count(row), _number(row["gain"], 2), _range(row, "gain", 1, 2)]
        rows.append([*cells, _range(row, "paper_gain", 1, 2), _number(row["detectable_gain"], 2)])
    return header, rows


def _latex_table_5(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", "Quantity", "$n$", "ours", "paper"]
    rows = []
    for row in frame.to_dict("records"):
        percent = row["unit"] == "fraction"
        scale, digits = (100, 1) if percent else (1, 3)
        label = QUANTITIES[row["quantity"].removesuffix("_s").replace("_with_sampling", "")]
        label += ", with sampling" if "with_sampling" in row["quantity"] else ""
        label += r" (\%)" if percent else " (s)"
        cells = [escape(config.environments[row["environment"]].label), label, count(row)]
        # a peak that is never reached bounds its time from below and the reduction from above
        bound = "" if not row["peak_unreached"] else r"\le " if percent else r"\ge "
        cells += [_spread(row, "value", scale, digits, bound), _spread(row, "paper_value", scale, 1 if percent else 2)]
        rows.append(cells)
    return header, rows


def _latex_final_returns(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", "Method", "$n$", "final return", INTERVAL, "IQM", "mean over training"]
    rows = []
    for row in frame.to_dict("records"):
        cells = [*_labels(row, config), count(row), _spread(row, "final_return", 1, 3)]
        cells += [_range(row, "final_return", 1, 3), _number(row["iqm"], 3), _spread(row, "mean_training_return", 1, 3)]
        rows.append(cells)
    return header, rows


def _latex_faithfulness(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Removed", "Scoring", "$n$", r"$f_\mathrm{return}$", INTERVAL, "test return", INTERVAL]
    rows = []
    if frame.empty:  # then it has no columns either
        return header, rows
    for key, part in frame.groupby(["environment", "method", "round", "removal"], sort=False):
        environment, method, k, removal = key
        labels = config.environments[environment].label, config.methods[method].label
        place = escape(f"{', '.join(labels)}, round {k}, {REMOVALS[removal]}")
        outcomes = [part[part["outcome"] == name].set_index("scoring") for name in ("f_return", "test_return")]
        for scoring in outcomes[0].index:
            pair = [outcome.loc[scoring].to_dict() for outcome in outcomes]
            cells = [cell for row in pair for cell in (_number(row["spearman"], 2), _range(row, "spearman", 1, 2))]
            rows.append([place, escape(scoring), count(pair[0]), *cells])
        ceiling = [_number(outcome["reliability"].iloc[0], 2) for outcome in outcomes]
        rows.append([place, "reliability of the outcome", "", ceiling[0], "", ceiling[1], ""])
    return header, rows


def _latex_diagnosis(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", r"$\bar A$ from", "round", "$n$", r"Spearman of influence with $\bar A\hat A$"]
    header += [INTERVAL, r"$|\bar A-\hat A|$", "of the bottom", "signs agree (\\%)", "of the bottom"]
    sources = {"buffer": "the buffer", "rollouts": "rollouts", "exact": "the model"}
    rows = []
    order = frame["source"].map(list(sources).index)
    for row in frame.assign(order=order).sort_values("order", kind="stable").to_dict("records"):
        cells = [_labels(row, config)[0], sources[row["source"]], f"{row['round']}", count(row)]
        cells += [_number(row["spearman_product"], 2), _range(row, "spearman_product", 1, 2)]
        cells += [_number(row[name], 3) for name in ("error", "error_bottom")]
        rows.append([*cells, *(_number(row[name], 1, 100) for name in ("sign_agreement", "sign_agreement_bottom"))])
    environments = [config.environments[name].label for name in frame["environment"].unique()]
    return header, sorted(rows, key=lambda cells: environments.index(cells[0]))


def _latex_agreement(frame: pd.DataFrame, config: Config) -> tuple[list[str], list[list[str]]]:
    header = ["Environment", "advantages", "round", "$n$", "Spearman", INTERVAL]
    header += ["same drops (\\%)", INTERVAL, "by chance (\\%)"]
    rows = []
    for row in frame.to_dict("records"):
        cells = [_labels(row, config)[0], row["shortcut"], f"{row['round']}", count(row)]
        cells += [_number(row["spearman"], 3), _range(row, "spearman", 1, 3)]
        cells += [_number(row["overlap"], 1, 100), _range(row, "overlap", 100, 1)]
        rows.append([*cells, _number(row["overlap_by_chance"], 1, 100)])
    return header, rows


QUANTITIES = {
    "influence": "Influence, per round",
    "optimise_iif": "Optimisation of IIF, per round",
    "optimise_ppo": "Optimisation of PPO, per round",
    "influence_share": "Influence of the two in IIF",
    "total_iif": "All rounds of IIF",
    "total_ppo": "All rounds of PPO",
    "matching_peak": "IIF until PPO's peak",
    "rt_peak": r"RT$_\mathrm{peak}$",
    "sampling_iif": "Sampling of IIF, per round",
    "sampling_ppo": "Sampling of PPO, per round",
}
LATEX = {
    "efficiency": _latex_efficiency,
    "faithfulness_summary": _latex_faithfulness,
    "final_returns": _latex_final_returns,
    "table_2": _latex_efficiency,
    "table_3": _latex_efficiency,
    "table_4": _latex_table_4,
    "table_5": _latex_table_5,
    "diagnosis_summary": _latex_diagnosis,
    "agreement_summary": _latex_agreement,
}


def escape(text: str) -> str:
    """Plain text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    return "".join(special.get(c, rf"\{c}" if c in "&%$#_{}" else c) for c in text)


def _labels(row: dict, config: Config) -> list[str]:
    return [escape(config.environments[row["environment"]].label), escape(config.methods[row["method"]].label)]


def _number(value: float, digits: int, scale: float = 1) -> str:
    return "--" if pd.isna(value) else f"${number(value * scale, digits)}$"


def _spread(row: dict, name: str, scale: float, digits: int, bound: str = "") -> str:
    """mean ± standard deviation (the paper's spread is of unknown kind), with a relation in front if it is a bound."""
    mean, sd = row[name], row[f"{name}_spread"] if name.startswith("paper_") else row[f"{name}_sd"]
    if pd.isna(mean):
        return "--"
    spread = "" if pd.isna(sd) else rf" \pm {number(sd * scale, digits)}"
    return f"${bound}{number(mean * scale, digits)}{spread}$"


def _range(row: dict, name: str, scale: float, digits: int) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "--" if pd.isna(low) else f"$[{number(low * scale, digits)}, {number(high * scale, digits)}]$"
