"""Random streams. Each purpose and round has its own, derived from the run's seed with numpy's `SeedSequence`.

No generator lives longer than a round, so that there is no generator state to save: a resumed run draws what the
uninterrupted one would have drawn. Runs of one seed share their streams across methods (initial weights, environment,
action noise): comparisons are paired.
"""

from __future__ import annotations

import numpy as np
import torch

STREAMS = (  # a new one goes at the end: its place in this list is part of its seed
    *("weights", "environment", "actions", "minibatches", "scoring", "selection", "evaluation"),
    *("intervention", "faithfulness", "diagnosis"),
)


def seed_sequence(seed: int, stream: str, k: int = 0) -> np.random.SeedSequence:
    """The seed of one purpose in round k."""
    return np.random.SeedSequence(int(seed), spawn_key=(STREAMS.index(stream), int(k)))


def generator(seed: int, stream: str, k: int = 0) -> np.random.Generator:
    """A numpy generator of one purpose in round k."""
    return np.random.default_rng(seed_sequence(seed, stream, k))


def torch_generator(seed: int, stream: str, k: int = 0) -> torch.Generator:
    """A torch generator of one purpose in round k."""
    return torch.Generator().manual_seed(integer(seed_sequence(seed, stream, k)))


def integer(sequence: np.random.SeedSequence) -> int:
    """A 31-bit seed for libraries that take an integer (gymnasium, envpool)."""
    return int(sequence.generate_state(1)[0] >> 1)
