"""Data attribution for online reinforcement learning (arXiv 2505.19281): scores, filters, the paper's experiments.

Any torch policy: `influence_scores`, `tracin_scores`, `FReturn`, `FAction`, `drop_most_negative`. Stable-Baselines3:
`InfluenceCallback`, `InfluenceFilteredPPO`, `score_rollout`, `train_and_score`. docs/library.md has every name.
"""

from typing import TYPE_CHECKING, Any

from rl_influence import lazy

if TYPE_CHECKING:  # what `attach` finds when a name is first used, for readers and type checkers
    from rl_influence.attribution import FAction as FAction
    from rl_influence.attribution import FReturn as FReturn
    from rl_influence.attribution import ScoringError as ScoringError
    from rl_influence.attribution import Step as Step
    from rl_influence.attribution import Target as Target
    from rl_influence.attribution import influence_scores as influence_scores
    from rl_influence.attribution import target_gradient as target_gradient
    from rl_influence.attribution import tracin_scores as tracin_scores
    from rl_influence.integrations.records import RolloutRecords as RolloutRecords
    from rl_influence.integrations.records import plot_scores as plot_scores
    from rl_influence.integrations.sb3 import InfluenceCallback as InfluenceCallback
    from rl_influence.integrations.sb3 import InfluenceFilteredA2C as InfluenceFilteredA2C
    from rl_influence.integrations.sb3 import InfluenceFilteredPPO as InfluenceFilteredPPO
    from rl_influence.integrations.sb3 import SB3Policy as SB3Policy
    from rl_influence.integrations.sb3 import rollout_records as rollout_records
    from rl_influence.integrations.sb3 import score_rollout as score_rollout
    from rl_influence.integrations.sb3 import train_and_score as train_and_score
    from rl_influence.ppo.objective import ClippedPPO as ClippedPPO
    from rl_influence.ppo.objective import Objective as Objective
    from rl_influence.ppo.objective import PolicyGradient as PolicyGradient
    from rl_influence.selection import drop_most_negative as drop_most_negative

    __version__: str

_get, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "attribution": (
            *("ScoringError", "FAction", "FReturn", "Step", "Target"),
            *("influence_scores", "target_gradient", "tracin_scores"),
        ),
        "ppo.objective": ("ClippedPPO", "Objective", "PolicyGradient"),
        "selection": ("drop_most_negative",),
        "integrations.records": ("RolloutRecords", "plot_scores"),
        "integrations.sb3": (
            *("InfluenceCallback", "InfluenceFilteredA2C", "InfluenceFilteredPPO", "SB3Policy"),
            *("rollout_records", "score_rollout", "train_and_score"),
        ),
    },
)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _get(name)
    from importlib.metadata import version

    return version("rl-influence")
