"""PPO as the paper runs it (section 3.1 and appendix B): records, networks, rollout, update."""

from rl_influence import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "records": ("Records", "TrainingError", "distinct_observations", "is_repeatable"),
        "rollout": ("collect", "gae"),
        "learner": ("Learner", "Optimizer", "minibatches"),
        "objective": ("Batch", "ClippedPPO", "Objective", "PolicyGradient", "Step", "log_prob", "normalize"),
        "networks": ("ActorCritic", "make_policy"),
        "inference": ("Inference",),
    },
)
