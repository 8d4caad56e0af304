"""Roughness against double loops over nodes."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

import oracles
from rl_influence.analysis.roughness import embeddings, roughness_table
from rl_influence.ppo.networks import make_policy


def roughness(influence, embedding, neighbours=20):
    return roughness_table(influence, embedding, neighbours=[neighbours]).roughness[0]


@pytest.mark.parametrize("n", [5, 40, 90])
def test_equals_the_definition(n):
    generator = np.random.default_rng(n)
    influence, embedding = generator.standard_normal(n), generator.standard_normal((n, 6))
    table = roughness_table(influence, embedding, neighbours=(1, 3, 200))
    for row in table.itertuples():
        expected, sigma, edges = oracles.roughness(influence, embedding, row.neighbours)
        assert row.roughness == pytest.approx(expected, rel=1e-10)
        assert row.sigma == pytest.approx(sigma, rel=1e-12)
        assert (row.edges, row.nodes) == (edges, (influence > 0).sum())
        assert roughness(influence, embedding, neighbours=row.neighbours) == row.roughness


def test_repeated_observations_and_order_make_no_difference():
    generator = np.random.default_rng(1)
    embedding = generator.standard_normal((8, 3))[generator.integers(8, size=60)]
    influence = generator.random(60) + 0.1
    expected, _, edges = oracles.roughness(influence, embedding, 4)
    table = roughness_table(influence, embedding, neighbours=[4])
    assert table.roughness[0] == pytest.approx(expected, rel=1e-10)
    assert table.edges[0] == edges
    order = generator.permutation(60)
    assert roughness(influence[order], embedding[order], neighbours=4) == pytest.approx(expected, rel=1e-10)


def test_by_hand():
    embedding = np.array([[0.0], [1.0], [3.0], [100.0]])
    influence = np.array([2.0, 4.0, 1.0, -5.0])  # the last one is no node
    # nearest neighbours: 0-1, 1-0, 2-1; distances 1, 2, 3 with median 2
    near, far = math.exp(-1 / 4), math.exp(-1)
    expected = (near * (2 / 4 - 1) ** 2 + far * (1 - 1 / 4) ** 2) / (near + far)
    assert roughness(influence, embedding, neighbours=1) == pytest.approx(expected)
    assert roughness(10 * influence, embedding, neighbours=1) == pytest.approx(expected)  # scale does not count
    assert roughness(np.ones(4), embedding, neighbours=2) == 0


def test_degenerate_cases():
    embedding = np.arange(4.0)[:, None]
    for influence in (np.array([-1.0, 2, -1, 0]), -np.ones(4)):  # one node, none
        table = roughness_table(influence, embedding)
        assert table.roughness.isna().all() and table.nodes[0] == (influence > 0).sum()
    same = np.array([0.0, 0, 0, 0, 7])[:, None]
    values = np.array([1.0, 0.5, 1.0, 0.25])
    differences = [(values[i] - values[j]) ** 2 for i in range(4) for j in range(i)]
    assert roughness(values, np.zeros((4, 1))) == pytest.approx(np.mean(differences))
    assert roughness(np.append(values, 0.5), same) == pytest.approx(np.mean(differences))  # sigma is 0


@pytest.mark.parametrize(
    ("influence", "embedding", "u", "message"),
    [
        (np.ones(3), np.ones((4, 2)), 2, "one row per record"),
        (np.ones(3), np.ones(3), 2, "one row per record"),
        (np.array([1, np.nan, 1]), np.ones((3, 2)), 2, "finite"),
        (np.ones(3), np.ones((3, 2)), 0, "neighbours 0"),
    ],
)
def test_refusals(influence, embedding, u, message):
    with pytest.raises(ValueError, match=message):
        roughness(influence, embedding, neighbours=u)


@pytest.mark.parametrize("network", ["mlp", "minigrid_cnn"])
def test_embeddings_are_what_the_action_head_sees(network):
    space = {
        "mlp": gym.spaces.Box(-1, 1, (5,), np.float32),
        "minigrid_cnn": gym.spaces.Box(0, 255, (7, 7, 3), np.uint8),
    }[network]
    policy = make_policy(network, space, gym.spaces.Discrete(3), torch.Generator().manual_seed(0))
    space.seed(0)
    observations = np.stack([space.sample() for _ in range(9)])
    found = embeddings(policy, observations)
    assert found.shape == (9, 64)
    with torch.no_grad():
        logits = policy.action_head(torch.from_numpy(found))
        torch.testing.assert_close(logits, policy.distribution_parameters(torch.from_numpy(observations)))
