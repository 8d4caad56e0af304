"""The numbers that the paper prints, to stand beside ours. Nothing that is computed reads them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from rl_influence.config import CATALOGUE, Closed, parse, read_yaml

Pair = tuple[float, float]


class ReportedEfficiency(Closed):
    se_ave: Pair
    se_peak: Pair
    rt_peak: Pair | None = None


class ReportedRuntimes(Closed):
    influence_s: Pair
    optimise_iif_s: Pair
    optimise_ppo_s: Pair
    total_iif_s: Pair
    total_ppo_s: Pair
    matching_peak_s: Pair
    rt_peak: Pair


class Reported(Closed):
    """`config/paper_reported.yaml`: environment -> method -> numbers as printed ([mean, spread]; percent, seconds)."""

    seeds: dict[str, int]
    figure_6b: dict[str, dict[str, ReportedEfficiency]]
    table_2: dict[str, dict[str, ReportedEfficiency]]
    table_3: dict[str, dict[str, ReportedEfficiency]]
    table_4: dict[str, dict[str, Pair]]
    table_5: dict[str, ReportedRuntimes]
    table_6: dict[str, dict[str, Pair | None] | float] = Field(description="RLHF, seconds per round")
    rlhf: dict[str, dict[str, Pair]]

    def efficiency(self, environment: str, method: str) -> tuple[str, ReportedEfficiency | None]:
        """Where the paper gives this pair's sample efficiency, and the numbers; Figure 6b before Table 2."""
        for source in ("figure_6b", "table_2", "table_3"):
            if found := getattr(self, source).get(environment, {}).get(method):
                return source, found
        return "", None


def load_reported(folder: str | Path = CATALOGUE) -> Reported:
    """The paper's numbers; `folder` is the catalogue's."""
    path = Path(folder) / "paper_reported.yaml"
    return parse(Reported, read_yaml(path), path)
