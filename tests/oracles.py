"""Slow, obvious references that the tests compare the library with."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import gymnasium as gym
import numpy as np
import torch

# --- exact models and true advantages --------------------------------------------------------------------------------


def frozen_lake_return(env, pi, horizon):
    """Expected return by pushing the distribution of the unfinished episodes forward, one outcome at a time."""
    env, total = env.unwrapped, 0.0
    alive = dict(enumerate(env.initial_state_distrib))
    for _ in range(horizon):
        following = defaultdict(float)
        for s, mass in alive.items():
            for a in range(4):
                for probability, next_state, reward, ends in env.P[s][a]:
                    total += mass * pi[s, a] * probability * reward
                    if not ends:
                        following[next_state] += mass * pi[s, a] * probability
        alive = following
    return total


def minigrid_return(env, pi_of_pose, starts, horizon):
    """The same from MiniGrid's rules: 0 left, 1 right, 2 forward; the other four do nothing without objects."""
    grid, max_steps, total = env.unwrapped.grid, env.unwrapped.max_steps, 0.0
    alive = dict.fromkeys(starts, 1 / len(starts))
    for t in range(1, horizon + 1):
        following = defaultdict(float)
        for (x, y, d), mass in alive.items():
            dx, dy = [(1, 0), (0, 1), (-1, 0), (0, -1)][d]
            ahead = grid.get(x + dx, y + dy)
            kind = ahead.type if ahead else "empty"
            for a, probability in enumerate(pi_of_pose[x, y, d]):
                flow = mass * probability
                if a == 0:
                    following[x, y, (d + 3) % 4] += flow
                elif a == 1:
                    following[x, y, (d + 1) % 4] += flow
                elif a > 2 or kind == "wall":
                    following[x, y, d] += flow
                elif kind == "goal":
                    total += flow * (1 - 0.9 * t / max_steps)
                elif kind == "empty":
                    following[x + dx, y + dy, d] += flow
                else:
                    assert kind == "lava"
        alive = following
    return total


def frozen_lake_values(env, pi, gamma):
    """Q and V of the task without a limit, by sweeping env.P until nothing moves."""
    table = env.unwrapped.P
    value = dict.fromkeys(table, 0.0)

    def action_value(s, a):
        return sum(p * (reward + (0 if ends else gamma * value[s2])) for p, s2, reward, ends in table[s][a])

    for _ in range(2000):
        value = {s: sum(pi[s, a] * action_value(s, a) for a in range(4)) for s in table}
    return {(s, a): action_value(s, a) for s in table for a in range(4)}, value


def minigrid_values(size, max_steps, pi, gamma):
    """Q[t, pose, action] and V[t, pose] of Empty from the rules; past the limit rewarded like the last step."""
    goal = (size - 2, size - 2)

    def move(pose, a):
        x, y, d = pose
        if a == 0:
            return (x, y, (d - 1) % 4), False
        if a == 1:
            return (x, y, (d + 1) % 4), False
        if a == 2:
            ahead = (x + [1, 0, -1, 0][d], y + [0, 1, 0, -1][d])
            if 1 <= min(ahead) and max(ahead) <= size - 2:
                return (*ahead, d), ahead == goal
        return pose, False

    def action_value(pose, a, reward, following):
        after, reached = move(pose, a)
        return reward if reached else gamma * following[after]

    def mean(pose, reward, following):
        return sum(p * action_value(pose, a, reward, following) for a, p in enumerate(pi[pose]))

    v = {max_steps: dict.fromkeys(pi, 0.0)}
    for _ in range(400):
        v[max_steps] = {pose: mean(pose, 1 - 0.9, v[max_steps]) for pose in pi}
    q = {}
    for t in reversed(range(max_steps)):
        reward = 1 - 0.9 * (t + 1) / max_steps
        v[t] = {pose: mean(pose, reward, v[t + 1]) for pose in pi}
        q |= {(t, pose, a): action_value(pose, a, reward, v[t + 1]) for pose in pi for a in range(7)}
    return q, v


def monte_carlo_advantages_slowly(records, gamma):
    """Mean return after (s, a) minus mean return after s, over all visits, record by record."""
    n = len(records)
    returns = []
    for i in range(n):
        total, discount = 0.0, 1.0
        for j in range(i, n):
            total += discount * records.rewards[j]
            discount *= gamma
            if records.terminated[j]:
                break
            if records.truncated[j] or j == n - 1:
                total += discount * float(records.next_values[j])
                break
        returns.append(total)
    advantages = []
    for i in range(n):
        same_state = [j for j in range(n) if np.array_equal(records.observations[i], records.observations[j])]
        same_pair = [j for j in same_state if records.actions[j] == records.actions[i]]
        q, v = (np.mean([returns[j] for j in visits]) for visits in (same_pair, same_state))
        advantages.append(q - v)
    return np.array(advantages)


# --- attribution -----------------------------------------------------------------------------------------------------


def gradient(policy, scalar):
    """Gradient of a scalar by all parameters as one vector; 0 where there is none."""
    parameters = list(policy.parameters())
    gradients = torch.autograd.grad(scalar, parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()).to(p) if g is None else g.flatten() for p, g in zip(parameters, gradients, strict=True)]
    )


def log_prob_of(policy, records, i):
    """log pi(a_i|s_i), of record i alone."""
    return policy.log_prob(torch.as_tensor(records.observations[i])[None], torch.as_tensor(records.actions[i])[None])[0]


def f_return(policy, records):
    """Mean over records of log pi(a|s) A, one record after the other."""
    n = len(records.advantages)
    return sum(log_prob_of(policy, records, i) * float(records.advantages[i]) for i in range(n)) / n


def influence(policy, records, f, advantages=None):
    """<grad f, A_i grad log pi(a_i|s_i)> for each record."""
    advantages = records.advantages if advantages is None else advantages
    direction = gradient(policy, f(policy))
    products = [
        direction @ (float(a) * gradient(policy, log_prob_of(policy, records, i))) for i, a in enumerate(advantages)
    ]
    return torch.stack(products)


def clipped_objective(policy, records, i, advantage, clip_range):
    """PPO's clipped objective of one record."""
    ratio = (log_prob_of(policy, records, i) - float(records.log_probs[i])).exp()
    return torch.min(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def term(policy, records, i, advantage, objective):
    """What record i adds to an objective of policy gradients or PPO, with value and entropy terms."""
    observation, action = torch.as_tensor(records.observations[i])[None], torch.as_tensor(records.actions[i])[None]
    log_prob, value, entropy = (x[0] for x in policy.evaluate(observation, action))
    if hasattr(objective, "clip_range"):
        surrogate = clipped_objective(policy, records, i, advantage, objective.clip_range)
    else:
        surrogate = advantage * log_prob
    error = value - float(records.returns[i])
    return surrogate - objective.value_coef * error * error + objective.entropy_coef * entropy


def normalized(advantages):
    """Advantages of one mini-batch as Stable-Baselines3 normalises them, as floats."""
    n = len(advantages)
    if n < 2:
        return [float(a) for a in advantages]
    mean = sum(map(float, advantages)) / n
    std = (sum((float(a) - mean) ** 2 for a in advantages) / (n - 1)) ** 0.5
    return [(float(a) - mean) / (std + 1e-8) for a in advantages]


def tracin(policy, records, f, steps, *, clip_range=0.2, normalize=True, weight_by_learning_rate=False):
    """The double loop over steps and the records of each: products first, then their sum."""
    scores = torch.zeros(len(records.advantages), dtype=torch.float64)
    for step in steps:
        direction = gradient(policy, f(policy))
        advantages = [float(records.advantages[i]) for i in step.batch]
        advantages = normalized(advantages) if normalize else advantages
        for i, a in zip(step.batch, advantages, strict=True):
            objective = clipped_objective(policy, records, int(i), a, clip_range)
            term = float(direction @ gradient(policy, objective))
            scores[int(i)] += term * step.learning_rate if weight_by_learning_rate else term
    return scores


# --- selection --------------------------------------------------------------------------------------------------------


def kept(scores: list[float], percent: float) -> list[int]:
    """IIF's filter in exact arithmetic."""
    negative = sorted((value, index) for index, value in enumerate(scores) if value < 0)
    dropped = negative[: int(Fraction(percent) / 100 * len(negative))]
    return [index for index in range(len(scores)) if index not in {i for _, i in dropped}]


# --- diagnostics of a round ------------------------------------------------------------------------------------------


def log_probs(policy, records):
    """log pi(a|s) of each record, as floats, one record after the other."""
    with torch.no_grad():
        return [float(log_prob_of(policy, records, i)) for i in range(len(records.advantages))]


def approx_kl(before, after):
    """Mean of (r - 1) - log r of log-probabilities before and after a round."""
    ratios = [math.exp(a - b) for b, a in zip(before, after, strict=True)]
    return sum(r - 1 - math.log(r) for r in ratios) / len(ratios)


def clip_fraction(before, after, clip_range):
    """Share of records whose ratio lies outside 1 +- clip_range."""
    outside = [abs(math.exp(a - b) - 1) > clip_range for b, a in zip(before, after, strict=True)]
    return sum(outside) / len(outside)


def mean_entropy(policy, observations):
    """-sum p log p of each state's distribution, or its integral for a Gaussian: the sum over dimensions of
    log(sigma sqrt(2 pi e))."""
    total = 0.0
    for observation in observations:
        with torch.no_grad():
            outputs = policy.distribution_parameters(torch.as_tensor(observation)[None])[0]
        if policy.discrete:
            p = [math.exp(float(x)) for x in outputs]
            p = [x / sum(p) for x in p]
            total -= sum(x * math.log(x) for x in p)
        else:
            sigmas = [math.exp(x) for x in policy.log_std.weight.tolist()]
            total += sum(math.log(sigma * math.sqrt(2 * math.pi * math.e)) for sigma in sigmas)
    return total / len(observations)


def variance(values):
    mean = sum(map(float, values)) / len(values)
    return sum((float(x) - mean) ** 2 for x in values) / len(values)


def explained_variance(values, returns):
    """1 - var(returns - values) / var(returns)."""
    errors = [float(r) - float(v) for r, v in zip(returns, values, strict=True)]
    return 1 - variance(errors) / variance(returns)


def ppo_losses(policy, records, batch, *, clip_range, entropy_coef, value_coef, normalize=True):
    """Policy loss, value loss and the norm of the gradient of PPO's whole loss on one mini-batch, record by record."""
    advantages = [float(records.advantages[i]) for i in batch]
    advantages = normalized(advantages) if normalize else advantages
    observations = [torch.as_tensor(records.observations[i])[None] for i in batch]
    objectives = [clipped_objective(policy, records, i, a, clip_range) for i, a in zip(batch, advantages, strict=True)]
    policy_loss = -sum(objectives) / len(batch)
    errors = [policy.values(o)[0] - float(records.returns[i]) for o, i in zip(observations, batch, strict=True)]
    value_loss = sum(error**2 for error in errors) / len(batch)
    entropy = sum(policy.entropy_of(policy.distribution_parameters(o))[0] for o in observations) / len(batch)
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    return policy_loss.item(), value_loss.item(), math.sqrt(sum(float(g) ** 2 for g in gradient(policy, loss)))


def displacement(before, after, prefixes):
    """L2 norm of the change of the parameters whose names begin with one of `prefixes`; both are name -> tensor."""
    squares = [
        (b - a) ** 2
        for name in before
        if name.startswith(prefixes)
        for b, a in zip(before[name].flatten().tolist(), after[name].flatten().tolist(), strict=True)
    ]
    return math.sqrt(sum(squares))


def quantile(values, q):
    """Linear interpolation between the ordered values."""
    ordered = sorted(map(float, values))
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


# --- training ---------------------------------------------------------------------------------------------------------


def gae(rewards, values, next_values, terminated, truncated, gamma, gae_lambda):
    """The definition: A_t is the sum of (gamma lambda)^l delta_{t+l} up to the episode's end."""
    n = len(rewards)
    advantages = np.zeros(n)
    for t in range(n):
        weight = 1.0
        for u in range(t, n):
            delta = rewards[u] + (0.0 if terminated[u] else gamma * next_values[u]) - values[u]
            advantages[t] += weight * delta
            if terminated[u] or truncated[u]:
                break
            weight *= gamma * gae_lambda
    return advantages


def plain_torch(policy, records, epochs, config):
    """PPO as one would write it down; yields losses and gradients before each step."""
    parameters = list(policy.parameters())
    if config.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=config.learning_rate)
    else:
        optimizer = torch.optim.Adam(parameters, lr=config.learning_rate, eps=1e-5)
    tensors = {name: torch.from_numpy(array) for name, array in records.arrays().items()}
    for order in epochs:
        for start in range(0, len(order), config.batch_size):
            batch = torch.from_numpy(order[start : start + config.batch_size])
            if config.drop_short_minibatch and 0 < start and len(batch) < config.batch_size:
                continue
            log_probs, values, entropy = policy.evaluate(tensors["observations"][batch], tensors["actions"][batch])
            advantages = tensors["advantages"][batch]
            if config.normalize_advantage and len(batch) > 1:
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            ratio = (log_probs - tensors["log_probs"][batch]).exp()
            clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
            policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
            value_loss = ((values - tensors["returns"][batch]) ** 2).mean()
            optimizer.zero_grad()
            (policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy.mean()).backward()
            gradient = torch.cat([p.grad.ravel() for p in parameters]).numpy().copy()
            yield policy_loss.item(), value_loss.item(), gradient
            if config.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
            optimizer.step()


# --- all environments together ----------------------------------------------------------------------------------------


def interquartile_mean_of_copies(values, copies):
    """Mean of the middle half of a sample in which every value stands so many times (all times 4, to be exact)."""
    everything = sorted(value for value, number in zip(values, copies, strict=True) for _ in range(4 * number))
    quarter = len(everything) // 4
    return sum(everything[quarter:-quarter]) / len(everything[quarter:-quarter])


def curve_at_share(curve, share):
    """A curve (nan where it was not evaluated) at a share of its rounds, on the line between its neighbours."""
    place = share * (len(curve) - 1)
    known = [(k, value) for k, value in enumerate(curve) if value == value]
    for (a, low), (b, high) in zip(known, known[1:], strict=False):
        if a <= place <= b:
            return low + (high - low) * (place - a) / (b - a)
    return known[-1][1]


def learning_step(diagnostics, curve, level):
    """Mean displacement of a run's rounds up to the first whose return reaches a level; of all, if none does.

    diagnostics: displacement of rounds 1, 2, ...; curve: return of rounds 0, 1, ...
    """
    total, number = 0.0, 0
    for k, value in enumerate(diagnostics, start=1):
        total, number = total + value, number + 1
        if curve[k] >= level:
            break
    return total / number


# --- evaluation and analysis -----------------------------------------------------------------------------------------


def returns_of_copies(config, episodes, copies, seed):
    """The same episodes one copy after another; action 0 throughout."""
    seeds = np.random.SeedSequence(seed).spawn(2)[0].generate_state(1)[0] >> 1
    found = []
    for copy, environment_seed in enumerate(np.random.SeedSequence(int(seeds)).generate_state(copies).tolist()):
        env = gym.make(config.gym_id)
        for episode in range(len(range(copy, episodes, copies))):
            env.reset(seed=environment_seed if episode == 0 else None)
            total, over = 0.0, False
            while not over:
                _, reward, terminated, truncated, _ = env.step(0)
                total, over = total + reward, terminated or truncated
            found.append(total)
    return found


def first_round(curve, level):
    for k, value in enumerate(curve):
        if value >= level:
            return k
    return None


def reductions(reference, method):
    """The definition, word by word: (reductions, unreached)."""
    budget = max(k for k, value in enumerate(method) if value == value)
    best, found, unreached = None, [], 0
    for value in reference:
        if value != value or (best is not None and value <= best):
            continue
        best = value
        m_reference, m_method = first_round(reference, value), first_round(method, value)
        if m_reference == 0:
            continue
        unreached += m_method is None
        found.append(1 - (budget if m_method is None else m_method) / m_reference)
    return found, unreached


def roughness(influence, embedding, u):
    """The definition, node by node and pair by pair."""
    nodes = [i for i in range(len(influence)) if influence[i] > 0]
    top = max(influence[i] for i in nodes)
    distance = {}
    for i in nodes:
        for j in nodes:
            distance[i, j] = math.dist(embedding[i], embedding[j])
    sigma = float(np.median([distance[i, j] for i in nodes for j in nodes if i < j]))
    edges = set()
    for i in nodes:
        others = sorted(distance[i, j] for j in nodes if j != i)
        limit = others[min(u, len(others)) - 1]
        edges |= {frozenset((i, j)) for j in nodes if j != i and distance[i, j] <= limit}
    above = below = 0.0
    for edge in edges:
        i, j = edge
        w = math.exp(-((distance[i, j] / sigma) ** 2))
        above += w * ((influence[i] - influence[j]) / top) ** 2
        below += w
    return above / below, sigma, len(edges)


def verdict(rule, cases):
    """The verdict of finished cases, in the words of claims.yaml's head."""
    full = sum(set(case) == {"holds"} for case in cases)
    possible_full_or_part = sum(case[0] != "fails" and case[1] != "fails" for case in cases)
    part = sum(case[0] == "holds" and case[1] != "fails" for case in cases)
    if full >= rule.replicated:
        return "replicated"
    if possible_full_or_part < rule.partly:
        return "not replicated"
    return "partly" if part >= rule.partly else "undecided"
