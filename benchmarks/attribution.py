"""Influence: scoring a buffer, the full sum over a round's updates, and graph roughness, for 2048 records each."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from benchmarks.process import fresh
from benchmarks.registry import Figure, benchmark, side_by_side
from benchmarks.rounds import run_spec
from benchmarks.sb3 import fill_buffer, sb3_ppo
from rl_influence.analysis.roughness import roughness_table
from rl_influence.attribution import FReturn, influence_scores, tracin_scores
from rl_influence.environments import make_env
from rl_influence.ppo.networks import ActorCritic, make_policy
from rl_influence.ppo.records import Records
from rl_influence.ppo.rollout import collect
from rl_influence.runs.training import Trainer
from rl_influence.selection import score

N = 2048
MLPS = ("frozenlake", "acrobot", "highway", "lunarlander", "bipedalwalker")
SCORING_MS = dict.fromkeys(MLPS, 10) | {"minigrid": 60}
UPDATES = 320  # of a round: 10 epochs of mini-batches of 64
IMAGES = {"minigrid_cnn": ((7, 7, 3), 11, 7), "nature_cnn": ((4, 84, 84), 256, 6)}  # shape, values of a pixel, actions
REPEATS = 5


def images(network: str) -> tuple[ActorCritic, Records]:
    """A network for images and a buffer of random ones, all different: in grids that is the slowest case."""
    shape, values, actions = IMAGES[network]
    rng = np.random.default_rng(0)
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    policy = make_policy(network, space, gym.spaces.Discrete(actions), torch.Generator().manual_seed(0))
    floats = {name: np.zeros(N, np.float32) for name in ("rewards", "log_probs", "values", "next_values", "returns")}
    records = Records(
        observations=rng.integers(values, size=(N, *shape), dtype=np.uint8),
        actions=rng.integers(actions, size=N),
        advantages=rng.standard_normal(N).astype(np.float32),
        **dict.fromkeys(("terminated", "truncated"), np.zeros(N, bool)),
        **floats,
    )
    return policy, records


def forward_and_backward(policy: ActorCritic, records: Records) -> None:
    """One pass over the whole buffer at once, and its gradient."""
    log_probs = policy.log_prob(torch.from_numpy(records.observations), torch.from_numpy(records.actions))
    loss = (log_probs * torch.from_numpy(records.advantages)).mean()
    torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)


def score_images(policy: ActorCritic, records: Records) -> None:
    """All that scoring a buffer takes."""
    influence_scores(policy, records, FReturn(records))


MEMORY = """
import re, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from benchmarks import attribution
def now(field):
    return int(re.search(rf"{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
policy, records = attribution.images("nature_cnn")
before = now("VmRSS")
getattr(attribution, sys.argv[1])(policy, records)
print(now("VmHWM") - before)
"""


@benchmark("scoring")
def scoring() -> Iterator[Figure]:
    """Scores of one buffer, as an IIF round computes them: of the untrained policy, whose records repeat least."""
    for environment, target in SCORING_MS.items():
        spec = run_spec(environment, influence=True)
        trainer = Trainer(spec)
        records = collect(trainer.sampler, trainer.policy, N, np.random.default_rng(0), spec.ppo)

        def once(trainer: Trainer = trainer, records: Records = records) -> None:
            score(records, trainer.policy, trainer.spec.ppo, np.random.default_rng(0))

        (seconds,) = side_by_side(once, repeats=20)
        yield Figure(f"scoring_{environment}", 1e3 * seconds, "ms", "<=", target, f"{N} records")
    policy, records = images("minigrid_cnn")
    seconds, one_pass = side_by_side(
        lambda: score_images(policy, records), lambda: forward_and_backward(policy, records), repeats=REPEATS
    )
    detail = f"{N} different images, of which one forward and backward pass takes {1e3 * one_pass:.0f} ms"
    yield Figure("scoring_minigrid_different", 1e3 * seconds, "ms", "<=", 60, detail)


@benchmark("scoring_nature_cnn")
def scoring_nature_cnn() -> Iterator[Figure]:
    """Beside one forward and backward pass over the same frames, in time and in memory."""
    policy, records = images("nature_cnn")
    ours, one_pass = side_by_side(
        lambda: score_images(policy, records), lambda: forward_and_backward(policy, records), repeats=2
    )
    detail = f"{ours:.2f} s against {one_pass:.2f} s of one forward and backward pass over {N} frames"
    yield Figure("scoring_nature_cnn", ours / one_pass, "x", "<=", 2.5, detail)
    peaks = [fresh(MEMORY, name) for name in ("score_images", "forward_and_backward")]
    detail = f"{peaks[0]:.0f} MB above the records against {peaks[1]:.0f} MB"
    yield Figure("scoring_nature_cnn_memory", peaks[0] / peaks[1], "x", "<=", 2, detail)


@benchmark("tracin")
def tracin() -> Iterator[Figure]:
    """The full sum over a round, its updates included, beside the updates alone: ours, and Stable-Baselines3's.

    The sum takes the gradient of f_return over the whole buffer before each of 320 updates on 64 records. The last
    figure is the least that this can come to: only the three large products and two activations of every such gradient.
    """
    arithmetic_s = gradient_arithmetic()
    for environment in MLPS:
        spec = run_spec(environment, influence=True)
        trainer = Trainer(spec)
        records = collect(trainer.sampler, trainer.policy, N, np.random.default_rng(0), spec.ppo)
        orders = [np.random.default_rng(epoch).permutation(N) for epoch in range(spec.ppo.n_epochs)]
        model = sb3_ppo(spec.environment.network, make_env(spec.environment), spec.ppo, seed=0)
        model.set_logger(Logger(None, []))
        learner, start = trainer.learner, trainer.learner.parameters.vector.copy()

        def update(learner=learner, records=records, orders=orders, start=start) -> None:
            learner.parameters.vector[:] = start
            learner.update(records, orders)

        def scored(learner=learner, records=records, orders=orders, start=start) -> None:
            learner.parameters.vector[:] = start
            tracin_scores(learner.policy, records, FReturn(records), learner.steps(records, orders))

        def update_sb3(model=model, records=records) -> None:
            fill_buffer(model, records)
            model.train()

        full, ours, theirs = side_by_side(scored, update, update_sb3, repeats=3)
        for name, alone in ((f"tracin_{environment}", ours), (f"tracin_{environment}_sb3", theirs)):
            yield Figure(name, full / alone, "x", "<=", 3, f"{full:.3f} s against {alone:.3f} s of updates")
        if environment != "frozenlake":  # whose few states are counted, not repeated
            detail = f"{ours:.3f} s of updates and {arithmetic_s:.3f} s of products and activations"
            yield Figure(f"tracin_{environment}_least", (ours + arithmetic_s) / ours, "x", "<=", 3, detail)


def gradient_arithmetic() -> float:
    """CPU seconds of a round's products of (records, 64) with (64, 64), three a gradient, and sigmoids, two of them."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    rows, out = rng.standard_normal((2, N, 64)).astype(np.float32)
    small, activation = np.empty_like(weight), torch.from_numpy(rng.standard_normal((N, 64)).astype(np.float32))

    def once() -> None:
        for _ in range(UPDATES):
            np.matmul(rows, weight.T, out=out)
            np.matmul(rows, weight, out=out)
            np.matmul(rows.T, out, out=small)
            for _ in range(2):
                activation.sigmoid_()

    return side_by_side(once, repeats=3)[0]


@benchmark("roughness")
def roughness() -> Iterator[Figure]:
    """All records of positive influence, three numbers of neighbours."""
    rng = np.random.default_rng(0)
    influence, embedding = np.abs(rng.standard_normal(N)), rng.standard_normal((N, 64))
    (seconds,) = side_by_side(lambda: roughness_table(influence, embedding), repeats=3)
    yield Figure("roughness", seconds, "s", "<=", 1, f"{N} nodes, 3 numbers of neighbours")
