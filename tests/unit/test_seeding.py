"""Random streams: one per seed, purpose and round, none shared."""

import numpy as np
import pytest

from rl_influence.seeding import STREAMS, generator, integer, seed_sequence, torch_generator


def test_a_stream_is_numpys_own_child_of_the_seed():
    child = np.random.SeedSequence(3).spawn(len(STREAMS))[STREAMS.index("actions")].spawn(8)[7]
    expected = np.random.default_rng(child).random(5)
    np.testing.assert_array_equal(generator(3, "actions", 7).random(5), expected)


def test_no_two_streams_are_alike():
    states = {
        tuple(seed_sequence(seed, stream, k).generate_state(4))
        for seed in range(20)
        for stream in STREAMS
        for k in range(20)
    }
    assert len(states) == 20 * len(STREAMS) * 20


def test_engine_seeds_do_not_collide_in_a_grid_and_fit_31_bits():
    seeds = [integer(seed_sequence(s, stream, 0)) for s in range(100) for stream in ("environment", "evaluation")]
    assert len(set(seeds)) == len(seeds) and 0 <= min(seeds) and max(seeds) < 2**31
    assert all(type(seed) is int for seed in seeds)


def test_drawing_from_one_stream_moves_no_other():
    expected = generator(0, "minibatches", 1).random(3)
    used = generator(0, "actions", 1)
    used.random(1000)
    np.testing.assert_array_equal(generator(0, "minibatches", 1).random(3), expected)


@pytest.mark.parametrize("seed", [np.int64(5), np.uint32(5)])
def test_numpy_seeds_are_integers(seed):
    assert generator(seed, "weights").random() == generator(5, "weights").random()
    assert torch_generator(seed, "weights").initial_seed() == torch_generator(5, "weights").initial_seed()


def test_torch_generators_differ_by_seed_and_repeat():
    def first(seed, k=0):
        return torch_generator(seed, "weights", k).initial_seed()

    assert len({first(seed) for seed in range(100)}) == 100
    assert first(1) == first(1) and first(1) != first(1, 1)


def test_a_stream_nobody_has_heard_of():
    with pytest.raises(ValueError):
        generator(0, "weather")
