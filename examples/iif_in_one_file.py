"""IIF, influence-based filtering for PPO (arXiv 2505.19281), on FrozenLake: all of it in one file, from top to bottom.

    python examples/iif_in_one_file.py            # PPO and IIF, 50 rounds of each

Sections are the paper's. The file shares no code with the package rl_influence, and gives the same curves as its
methods `ppo` and `iif_p50` for the same seed. It needs torch, gymnasium and numpy, and matplotlib for the picture.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch import nn

# Section 5 and appendix B: Stable-Baselines3's defaults, but with SGD
STEPS, EPOCHS, BATCH = 2048, 10, 64  # records per round, passes over them, records per mini-batch
GAMMA, LAMBDA, CLIP, VALUE_COEF, MAX_NORM, LEARNING_RATE = 0.99, 0.95, 0.2, 0.5, 0.5, 5e-3
STATES, ACTIONS, LIMIT = 16, 4, 100  # FrozenLake 4x4; episodes are cut after 100 steps


# ---------------------------------------------------------------------------------------------------------------------
# Random streams, one for each purpose and round: PPO and IIF of one seed begin with the same weights and draw the same
# noise, and leaving out one step changes nothing in the others.
def stream(seed: int, name: str, number: int = 0) -> np.random.SeedSequence:
    purposes = ("weights", "environment", "actions", "minibatches", "scoring")
    return np.random.SeedSequence(seed, spawn_key=(purposes.index(name), number))


def integer(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0] >> 1)


# ---------------------------------------------------------------------------------------------------------------------
# Actor and critic: two separate tanh networks, 64-64, on one-hot states.
class ActorCritic(nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(integer(stream(seed, "weights")))
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(STATES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
            for outputs in (ACTIONS, 1)
        )
        root2, (a, c) = 2**0.5, (self.actor, self.critic)
        # orthogonal weights and no biases; a gain of 0.01 makes the first policy almost uniform
        for layer, gain in ((a[0], root2), (a[2], root2), (c[0], root2), (c[2], root2), (a[4], 0.01), (c[4], 1.0)):
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            nn.init.zeros_(layer.bias)
        self.one_hot = torch.eye(STATES)

    def log_probs(self) -> torch.Tensor:
        """log pi(a|s) of every state and action: with 16 states that is cheaper than a batch of records."""
        return self.actor(self.one_hot).log_softmax(-1)

    def values(self) -> torch.Tensor:
        return self.critic(self.one_hot)[:, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Section 3.1: a round's buffer. Episodes go on across rounds.
def collect(env: gym.Env, state: int, model: ActorCritic, noise: np.ndarray) -> tuple[dict, int]:
    with torch.no_grad():
        log_probs, values = model.log_probs().numpy(), model.values().numpy()
    cumulative = np.exp(log_probs, dtype=np.float64).cumsum(-1)
    states, actions, rewards = np.zeros(STEPS, int), np.zeros(STEPS, int), np.zeros(STEPS)
    next_states, terminated, cut = np.zeros(STEPS, int), np.zeros(STEPS, bool), np.zeros(STEPS, bool)
    for t in range(STEPS):
        states[t] = state
        actions[t] = (noise[t] * cumulative[state, -1] >= cumulative[state, :-1]).sum()  # inverse of the distribution
        next_states[t], rewards[t], terminated[t], truncated, _ = env.step(int(actions[t]))
        cut[t] = terminated[t] or truncated
        state = env.reset()[0] if cut[t] else next_states[t]
    # Generalised advantage estimates. A terminated step is followed by nothing; a truncated one, and the round's last,
    # by the value of the state that it really led to.
    delta = rewards + GAMMA * values[next_states].astype(float) * ~terminated - values[states]
    advantages, following = np.zeros(STEPS), 0.0
    for t in reversed(range(STEPS)):
        advantages[t] = following = delta[t] + GAMMA * LAMBDA * (not cut[t]) * following
    returns = (advantages + values[states]).astype(np.float32)
    records = {"states": states, "actions": actions, "log_probs": log_probs[states, actions], "returns": returns}
    return records | {"advantages": advantages.astype(np.float32)}, state


def normalise(advantages: np.ndarray) -> np.ndarray:
    return (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8) if len(advantages) > 1 else advantages


# ---------------------------------------------------------------------------------------------------------------------
# Sections 4 and 5: which records help, and which hurt.
def influence(model: ActorCritic, records: dict, generator: np.random.Generator) -> np.ndarray:
    """I_i = <grad f_return, A_i grad log pi(a_i|s_i)> at the parameters that collected the records (section 4.2).

    f_return is the mean of A log pi over the buffer with raw advantages (section 4.1). The A_i are normalised within
    mini-batches of a random order, as in the first epoch of an update. Actor only: the critic has no part in f_return.
    """
    actor, states, actions = list(model.actor.parameters()), records["states"], records["actions"]
    log_probs = model.log_probs()
    f_return = (log_probs[states, actions] * torch.from_numpy(records["advantages"])).mean()
    direction = torch.autograd.grad(f_return, actor, retain_graph=True)
    slopes = np.zeros((STATES, ACTIONS), np.float32)  # equal records have equal slopes: once per state and action
    for s in np.unique(states):
        for a in range(ACTIONS):
            gradient = torch.autograd.grad(log_probs[s, a], actor, retain_graph=True)
            slopes[s, a] = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True))
    normalised, order = np.zeros(STEPS, np.float32), generator.permutation(STEPS)
    for start in range(0, STEPS, BATCH):
        batch = order[start : start + BATCH]
        normalised[batch] = normalise(records["advantages"][batch])
    return normalised * slopes[states, actions]


def keep(scores: np.ndarray, fraction: float) -> np.ndarray:
    """Algorithm of section 5: drops the given share of the negative records, the most negative first."""
    dropped = np.argsort(scores, kind="stable")[: int(fraction * (scores < 0).sum() + 1e-9)]
    return np.setdiff1d(np.arange(len(scores)), dropped)


# ---------------------------------------------------------------------------------------------------------------------
# PPO's update on the records that are left: fewer records, fewer mini-batches.
def update(model: ActorCritic, records: dict, kept: np.ndarray, generator: np.random.Generator) -> None:
    parameters = list(model.parameters())
    data = {name: torch.from_numpy(array) for name, array in records.items()}
    for _ in range(EPOCHS):
        order = generator.permutation(kept)
        for start in range(0, max(len(order) - BATCH + 1, 1), BATCH):  # a short last mini-batch is left out
            batch = order[start : start + BATCH]
            states, actions = data["states"][batch], data["actions"][batch]
            advantages = torch.from_numpy(normalise(records["advantages"][batch]))
            ratio = (model.log_probs()[states, actions] - data["log_probs"][batch]).exp()
            surrogate = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            value_loss = (model.values()[states] - data["returns"][batch]).square().mean()
            gradients = torch.autograd.grad(VALUE_COEF * value_loss - surrogate, parameters)
            norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
            step = LEARNING_RATE * min(1, MAX_NORM / (norm + 1e-6))  # the gradient's norm is clipped
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.data.sub_(gradient, alpha=step)


def exact_return(env: gym.Env, model: ActorCritic) -> float:
    """Expected undiscounted return of the stochastic policy, by dynamic programming instead of test episodes."""
    with torch.no_grad():
        policy = model.log_probs().double().exp().numpy()
    value = np.zeros(STATES)
    for _ in range(LIMIT):
        later, value = value, np.zeros(STATES)
        for s in range(STATES):
            for a in range(ACTIONS):
                for probability, following, reward, ends in env.unwrapped.P[s][a]:
                    value[s] += policy[s, a] * probability * (reward + (not ends) * later[following])
    return float(value[0])  # episodes start in state 0


def train(seed: int, rounds: int, fraction: float) -> list[float]:
    """Test return after 0, 1, ... rounds. fraction 0 is PPO."""
    env, model = gym.make("FrozenLake-v1", map_name="4x4", is_slippery=False), ActorCritic(seed)
    state, _ = env.reset(seed=integer(stream(seed, "environment")))
    curve = [exact_return(env, model)]
    for k in range(rounds):
        actions, order, scoring = (
            np.random.default_rng(stream(seed, name, k)) for name in ("actions", "minibatches", "scoring")
        )
        records, state = collect(env, state, model, actions.random(STEPS))
        kept = keep(influence(model, records, scoring), fraction) if fraction else np.arange(STEPS)
        update(model, records, kept, order)
        curve.append(exact_return(env, model))
        print(f"round {k + 1}: return {curve[-1]:.4f}, {len(kept)} of {STEPS} records trained", flush=True)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--drop-fraction", type=float, default=0.5, help="p: share of the negative records to drop")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output" / "iif_in_one_file.png")
    options = parser.parse_args()
    if not 0 <= options.drop_fraction <= 1:
        parser.error(f"--drop-fraction {options.drop_fraction:g}: a fraction in [0, 1] is needed")
    import matplotlib.pyplot as plt

    torch.set_num_threads(1)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for label, fraction in (("PPO", 0.0), (f"IIF, p = {options.drop_fraction:.0%}", options.drop_fraction)):
        axes.plot(train(options.seed, options.rounds, fraction), label=label)
    axes.set(xlabel="round (2048 steps)", ylabel="test return (exact)", title=f"FrozenLake, seed {options.seed}")
    axes.legend()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=120)
    print(options.output)


if __name__ == "__main__":
    main()
