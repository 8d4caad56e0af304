"""Records, flags and advantages: shapes and types that would be broadcast, or taken for a mask, are refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import oracles
from rl_influence.ppo.inference import Inference
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import Records, as_flags
from rl_influence.ppo.rollout import gae

FLOATS = ("rewards", "log_probs", "values", "next_values", "advantages", "returns")


def records(n=5, **changes):
    arrays = {name: np.arange(float(n)) + i for i, name in enumerate(FLOATS)}
    arrays |= {"observations": np.arange(2 * n).reshape(n, 2), "actions": np.arange(n)}
    return Records(**arrays | {"terminated": np.arange(n) == 2, "truncated": np.arange(n) == 4} | changes)


def arguments(*shape, seed=0):
    generator = np.random.default_rng(seed)
    flags = dict(zip(("terminated", "truncated"), generator.random((2, *shape)) < 0.2, strict=True))
    names = ("rewards", "values", "next_values")
    return dict(zip(names, generator.standard_normal((3, *shape)), strict=True)) | flags


@pytest.mark.parametrize("name", ["observations", "actions", *FLOATS, "terminated", "truncated"])
def test_records_have_one_length(name):
    with pytest.raises(ValueError, match=f"records of different numbers: .*4 {name}"):
        records(**{name: getattr(records(), name)[:4]})


@pytest.mark.parametrize("index", [3, np.int64(3), -2, [3], slice(3, 4), np.arange(5) == 3])
def test_one_record_is_a_buffer_of_one(index):
    one = records()[index]
    assert len(one) == 1
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, getattr(records(), name)[3:4])
    with pytest.raises(IndexError):
        records()[5]
    assert [len(record) for record in records()] == [1] * 5


@pytest.mark.parametrize("kind", [bool, int, np.uint8, np.float32])
def test_flags_may_be_the_numbers_0_and_1(kind):
    flags = np.array([0, 1, 1, 0, 1])
    for name in ("terminated", "truncated"):
        found = getattr(records(**{name: flags.astype(kind)}), name)
        assert found.dtype == bool and found.tolist() == [False, True, True, False, True]
    both = arguments(5)
    expected = gae(**both | {"terminated": flags == 1}, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_array_equal(gae(**both | {"terminated": flags.astype(kind)}, gamma=0.9, gae_lambda=0.8), expected)


@pytest.mark.parametrize("flags", [[0, 2], [0.5, 0], [np.nan, 1], ["", "x"], [None, True]])
def test_what_is_no_flag_is_refused(flags):
    for refused in (
        lambda: as_flags("terminated", flags),
        lambda: records(2, terminated=np.array(flags)),
        lambda: gae(**arguments(2) | {"terminated": np.array(flags)}, gamma=0.9, gae_lambda=0.9),
    ):
        with pytest.raises(ValueError, match="terminated: expected true or false, found"):
            refused()


@pytest.mark.parametrize("name", ["rewards", "values", "next_values", "terminated", "truncated"])
def test_advantages_of_arrays_of_different_shapes_are_refused(name):
    """(5,) and (5, 1) would be broadcast to (5, 5)."""
    for shape, other in (((5,), (5, 1)), ((5, 3), (5,)), ((5, 3), (5, 1)), ((5,), (4,)), ((5,), ())):
        changed = arguments(*shape)
        changed[name] = np.zeros(other, changed[name].dtype)
        with pytest.raises(ValueError, match=r"expected one shape, \(T,\) or \(T, envs\)"):
            gae(**changed, gamma=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match="expected one shape"):
        gae(**arguments(5, 3, 2), gamma=0.9, gae_lambda=0.9)


@pytest.mark.parametrize("envs", [1, 3])
def test_advantages_of_several_environments_are_those_of_each(envs):
    both = arguments(30, envs, seed=1)
    found = gae(**both, gamma=0.95, gae_lambda=0.9)
    for i in range(envs):
        expected = oracles.gae(**{name: array[:, i] for name, array in both.items()}, gamma=0.95, gae_lambda=0.9)
        np.testing.assert_allclose(found[:, i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("states", [[-1], [16], [3, 16], [1.7], [True]])
def test_a_state_that_is_none_is_refused_by_torch_and_by_numpy(states):
    policy = make_policy("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4), torch.Generator().manual_seed(0))
    for refused in (
        lambda: policy.log_prob(torch.tensor(states), torch.zeros(len(states), dtype=torch.int64)),
        lambda: policy.values(torch.tensor(states)),
        lambda: Inference(policy).outputs(np.array(states)),
        lambda: Inference(policy).step(np.array(states[-1]), np.float64(0.5)),
    ):
        with pytest.raises(ValueError, match="expected integers from 0 to 15"):
            refused()
    edges = np.array([0, 15], np.uint8)
    expected = policy.distribution_parameters(torch.tensor(edges)).detach().numpy()
    np.testing.assert_allclose(Inference(policy).outputs(edges), expected, rtol=0, atol=1e-6)
