"""Runs on disk: the training loop, its saved states and snapshots, the folders of results and who may read them."""

from rl_influence import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "training": ("Trainer", "run", "take_snapshots"),
        "store": ("ResultError", "check_run", "run_directory", "snapshot_directory"),
    },
)
