"""Acting with a policy: numpy in, numpy out, without autograd.

Actions are drawn by inverting the distribution at given noise, so that a step costs no generator call and the draws do not
depend on the network. Small integer observations (grids) repeat within a round, and the policy does not change within it:
their outputs are computed once and remembered.
"""

from __future__ import annotations

import numpy as np
import torch

from rl_influence.fast_mlp import MLPKernel, log_softmax
from rl_influence.networks import LOG_2PI, ActorCritic

REPEATABLE_BYTES = 1024  # integer observations up to this size are worth looking up; frames of Pong (28 kB) never repeat


def is_repeatable(observation: np.ndarray) -> bool:
    """Whether an observation belongs to a space so small that it is likely to occur again."""
    return observation.dtype.kind in "iu" and observation.nbytes <= REPEATABLE_BYTES


class Inference:
    """A policy frozen for the length of a rollout or an evaluation; make a new one after each update."""

    def __init__(self, policy: ActorCritic):
        self.policy = policy
        self.kernel = MLPKernel(policy) if policy.is_mlp else None
        self.std = None if policy.discrete else np.exp(policy.log_std.weight.detach().numpy())
        self._remembered: dict[bytes, tuple[np.ndarray, np.ndarray, float]] = {}

    def noise(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Noise for n actions: (n,) uniform for discrete ones, else (n, dims) normal."""
        return generator.random(n) if self.policy.discrete else generator.standard_normal((n, len(self.std)))

    def heads(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution parameters (n, k) and values (n,)."""
        if self.kernel:
            inputs = self.kernel.encode(observations)
            return self.kernel.outputs(inputs), self.kernel.values(inputs)
        with torch.no_grad():
            outputs, values = self.policy.heads(torch.from_numpy(np.ascontiguousarray(observations)))
        return outputs.numpy(), values.numpy()

    def values(self, observations: np.ndarray) -> np.ndarray:
        """V(s), (n,)."""
        return self.heads(observations)[1]

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Sampled raw actions for a batch of observations: (n,) integers or (n, dims)."""
        observations = np.asarray(observations)
        noise = self.noise(len(observations), generator)
        if self.kernel:
            outputs = self.kernel.outputs(self.kernel.encode(observations))
        else:
            with torch.no_grad():
                outputs = self.policy.distribution_parameters(
                    torch.from_numpy(np.ascontiguousarray(observations))
                ).numpy()
        if self.policy.discrete:
            cumulative = np.exp(log_softmax(outputs.astype(np.float64))).cumsum(-1)
            return (noise[:, None] * cumulative[:, -1:] >= cumulative[:, :-1]).sum(-1)
        return (outputs + self.std * noise).astype(outputs.dtype)

    def step(self, observation: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float, float]:
        """One sampled raw action with its log-probability and the state's value.

        Args:
            observation: one observation, without a batch axis.
            noise: one row of `noise`.
        """
        if not self.policy.discrete:
            outputs, values = self.heads(observation[None])
            action = (outputs[0] + self.std * noise).astype(outputs.dtype)
            # of the action as stored, after rounding, so that the ratio before the first update is 1
            scaled = (action - outputs[0]) / self.std
            return action, float((-0.5 * scaled**2 - np.log(self.std) - 0.5 * LOG_2PI).sum()), float(values[0])
        if is_repeatable(observation):
            key = observation.tobytes()
            entry = self._remembered.get(key)
            if entry is None:
                entry = self._remembered[key] = self._discrete(observation)
        else:
            entry = self._discrete(observation)
        cumulative, log_probs, value = entry
        action = int(cumulative[:-1].searchsorted(noise * cumulative[-1], side="right"))
        return action, float(log_probs[action]), value

    def _discrete(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        outputs, values = self.heads(observation[None])
        log_probs = log_softmax(outputs[0])
        return np.exp(log_probs.astype(np.float64)).cumsum(), log_probs, float(values[0])
