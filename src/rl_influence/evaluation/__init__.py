"""What a policy is worth: its test return, and true advantages of its records."""

from rl_influence import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "returns": ("COPIES", "ReturnEstimate", "evaluate", "exact_model", "play"),
        "true_advantages": (
            "exact_advantages",
            "exact_record_advantages",
            "exact_values",
            "monte_carlo_advantages",
            "record_states",
            "replay",
            "rollout_advantages",
        ),
    },
)
