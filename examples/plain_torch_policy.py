"""No framework: a policy, a rollout and a policy-gradient step in plain torch, with harmful records left out.

In the clone:
    pip install '.[figures]'
    python examples/plain_torch_policy.py

All that attribution asks for is a torch module with `log_prob(observations, actions) -> (n,)`.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rl_influence import FReturn, drop_most_negative, influence_scores, plot_scores

GAMMA, STEPS = 0.98, 1000


class Policy(nn.Module):
    """Two actions; layer norm and GELU, of which the scores need to know nothing."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 2))

    def distribution(self, observations: torch.Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.logits(observations))

    def log_prob(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return self.distribution(observations).log_prob(actions)


@dataclass
class Records:
    """Any object with these three attributes will do."""

    observations: torch.Tensor  # (n, 4)
    actions: torch.Tensor  # (n,)
    advantages: np.ndarray  # (n,)
    episode_starts: np.ndarray  # (n,), for the picture only


def rollout(env: gym.Env, policy: Policy) -> tuple[Records, float]:
    """STEPS records with Monte-Carlo advantages, and the mean return of their episodes."""
    observations, actions, rewards, starts, (observation, _) = [], [], [], [], env.reset()
    start = True
    for _ in range(STEPS):
        tensor = torch.as_tensor(observation)
        with torch.no_grad():
            action = policy.distribution(tensor).sample()
        observations.append(tensor)
        actions.append(action)
        starts.append(start)
        observation, reward, terminated, truncated, _ = env.step(int(action))
        rewards.append(float(reward))
        start = terminated or truncated
        if start:
            observation, _ = env.reset()
    returns, following = np.zeros(STEPS, np.float32), 0.0
    for t in reversed(range(STEPS)):
        returns[t] = following = rewards[t] + GAMMA * following * (t + 1 < STEPS and not starts[t + 1])
    advantages = (returns - returns.mean()) / returns.std()
    records = Records(torch.stack(observations), torch.stack(actions), advantages, np.array(starts))
    return records, STEPS / sum(starts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output" / "plain_torch_policy.png")
    options = parser.parse_args()
    torch.set_num_threads(1)  # of networks this small several only wait for one another
    torch.manual_seed(0)
    env, policy = gym.make("CartPole-v1"), Policy()
    env.reset(seed=0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for number in range(options.rounds):
        records, episode_return = rollout(env, policy)
        scores = influence_scores(policy, records, FReturn(records)).numpy()
        kept = drop_most_negative(scores, 0.5)
        log_probs = policy.log_prob(records.observations[kept], records.actions[kept])
        loss = -(log_probs * torch.as_tensor(records.advantages[kept])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"round {number + 1}: return {episode_return:.0f}, {len(kept)} of {STEPS} records trained", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    plot_scores(records, scores, kept=kept).savefig(options.output, dpi=120)
    print(options.output)


if __name__ == "__main__":
    main()
