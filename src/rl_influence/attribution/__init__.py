"""Influence of rollout records on a target: `influence_scores` at a round's start, `tracin_scores` over its steps."""

from rl_influence.attribution.backends import BACKENDS
from rl_influence.attribution.policies import ScoringError
from rl_influence.attribution.targets import FAction, FReturn, Target, target_gradient
from rl_influence.attribution.tracin import influence_scores, tracin_scores
from rl_influence.ppo.objective import Step

__all__ = [
    "BACKENDS",
    "ScoringError",
    "FAction",
    "FReturn",
    "Step",
    "Target",
    "influence_scores",
    "target_gradient",
    "tracin_scores",
]
