"""Acting with a policy: numpy in, numpy out, without autograd.

Actions are drawn by inverting the distribution at given noise, so that a step costs no generator call and the draws do
not depend on the network. While a buffer is collected only actions are needed: their log-probabilities and the values
are computed for the whole buffer at once. Small integer observations (grids) repeat within a round, and the policy does
not change within it: their probabilities are computed once and remembered.
"""

from __future__ import annotations

import numpy as np
import torch

from rl_influence.ppo.kernels import Network, is_supported, log_prob_gradient
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.records import is_repeatable

CHUNK = 256  # observations that pass the network together: activations for 84x84 pixels then stay near 15 MB


class Inference:
    """A policy frozen for the length of a rollout or an evaluation; make a new one after each update."""

    def __init__(self, policy: ActorCritic):
        self.policy = policy
        self.network = Network(policy) if is_supported(policy) else None
        self.log_std = None if policy.discrete else policy.log_std.weight.detach().numpy()
        self.std = None if policy.discrete else np.exp(self.log_std)
        self._remembered: dict[bytes, np.ndarray] = {}

    def noise(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Noise for n actions: (n,) uniform for discrete ones, else (n, dims) normal."""
        return generator.random(n) if self.policy.discrete else generator.standard_normal((n, len(self.std)))

    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """Distribution parameters, (n, k)."""
        if self.network:
            return self.network.outputs(self.network.encode(observations))
        return self._by_torch(self.policy.distribution_parameters, observations)

    def values(self, observations: np.ndarray) -> np.ndarray:
        """V(s), (n,)."""
        if self.network:
            return self.network.values(self.network.encode(observations))
        return self._by_torch(self.policy.values, observations)

    @torch.no_grad()
    def _by_torch(self, function, observations: np.ndarray) -> np.ndarray:
        chunks = torch.from_numpy(np.ascontiguousarray(observations)).split(CHUNK)
        return np.concatenate([function(chunk).numpy() for chunk in chunks])

    def log_probs(self, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """log pi(a|s) of raw actions given the distribution's parameters, (n,)."""
        return log_prob_gradient(outputs, actions, self.log_std)[0]

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Sampled raw actions for a batch of observations: (n,) integers or (n, dims)."""
        observations = np.asarray(observations)
        outputs, noise = self.outputs(observations), self.noise(len(observations), generator)
        if not self.policy.discrete:
            return (outputs + self.std * noise).astype(outputs.dtype)
        cumulative = _cumulative(outputs)
        return (noise[:, None] * cumulative[:, -1:] >= cumulative[:, :-1]).sum(-1)

    def step(self, observation: np.ndarray, noise: np.ndarray) -> np.ndarray | int:
        """One sampled raw action; the same as `act`'s, at less overhead.

        Args:
            observation: one observation, without a batch axis.
            noise: one row of `noise`.
        """
        if not self.policy.discrete:
            mean = self.outputs(observation[None])[0]
            return (mean + self.std * noise).astype(mean.dtype)
        if is_repeatable(observation):
            key = observation.tobytes()
            cumulative = self._remembered.get(key)
            if cumulative is None:
                cumulative = self._remembered[key] = _cumulative(self.outputs(observation[None])[0])
        else:
            cumulative = _cumulative(self.outputs(observation[None])[0])
        return int(cumulative[:-1].searchsorted(noise * cumulative[-1], side="right"))


def _cumulative(logits: np.ndarray) -> np.ndarray:
    """Cumulative sums of the actions' probabilities, up to a factor, in float64."""
    return np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64).cumsum(-1)
