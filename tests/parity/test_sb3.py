"""Equality with Stable-Baselines3: same weights, same buffer, same order of mini-batches, so the same round.

Stable-Baselines3 runs its own `train()`, `collect_rollouts()` and `compute_returns_and_advantage()`. In float64 its
policy and buffer are widened, and its calls of `Tensor.float` with them, so that rounding hides nothing.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from torch import nn

from benchmarks.sb3 import copy_weights, fill_buffer, sb3_parameters, sb3_ppo
from rl_influence.config import EnvironmentConfig, PPOConfig, load_environments
from rl_influence.environments import make_env, make_sampler
from rl_influence.ppo.inference import Inference
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.rollout import collect, gae
from rollouts import BOX, SPACES, Log, Spaces, error, flat, random_records

ENVIRONMENTS = Path(__file__).parents[2] / "config" / "environments"


def train_sb3(network, kind, ours, records, orders, config, monkeypatch):
    """Runs `PPO.train` on the records.

    Returns losses, gradients and weights before each step, the weights after the last, and what was logged.
    """
    model = sb3_ppo(network, Spaces(*SPACES[kind][1:]), config)
    model.policy.to(next(ours.parameters()).dtype)
    copy_weights(network, model.policy, ours)
    parameters = list(sb3_parameters(network, model.policy, ours).values())
    fill_buffer(model, records)

    remaining = iter(orders)
    monkeypatch.setattr(np.random, "permutation", lambda size: next(remaining))
    steps, value_losses = [], []
    mse_loss, clip, backward = nn.functional.mse_loss, nn.utils.clip_grad_norm_, torch.Tensor.backward

    def note_mse(*args, **kwargs):
        value_losses.append(mse_loss(*args, **kwargs))
        return value_losses[-1]

    def note_backward(loss, *args, **kwargs):
        steps.append({"loss": loss.item(), "value_loss": value_losses[-1].item()})
        return backward(loss, *args, **kwargs)

    def note_clip(*args, **kwargs):
        steps[-1] |= {"weights": flat(parameters), "gradient": flat(p.grad for p in parameters)}
        clip(*args, **kwargs)
        steps[-1]["clipped"] = flat(p.grad for p in parameters)

    monkeypatch.setattr(nn.functional, "mse_loss", note_mse)
    monkeypatch.setattr(torch.Tensor, "backward", note_backward)
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", note_clip)
    if parameters[0].dtype == torch.float64:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    model.set_logger(logger := Log())
    model.train()
    monkeypatch.undo()
    return steps, flat(parameters), logger.values


OPTIMIZERS = {
    "sgd": {"optimizer": "sgd", "learning_rate": 5e-3},
    "adam": {"optimizer": "adam", "learning_rate": 3e-4},
}


def compare_round(kind, n, n_epochs, double, monkeypatch, **settings):
    network = SPACES[kind][0]
    config = PPOConfig(n_steps=n, n_epochs=n_epochs, **settings)
    ours = make_policy(*SPACES[kind], torch.Generator().manual_seed(0))
    ours = ours.double() if double else ours
    learner = Learner(ours, config)
    records = random_records(kind, n, ours, config)
    orders = [np.random.default_rng(epoch).permutation(n) for epoch in range(n_epochs)]
    start = learner.parameters.vector.copy()
    theirs, final, log = train_sb3(network, kind, ours, records, orders, config, monkeypatch)

    tolerance = 1e-9 if double else 1e-5
    errors = {"value_loss": [], "loss": [], "gradient": [], "weights": [], "clipping": []}
    for step, expected in zip(learner.steps(records, orders), theirs, strict=True):
        errors["value_loss"].append(error(step.value_loss, expected["value_loss"]))
        if config.entropy_coef == 0:
            loss = step.policy_loss + config.value_coef * step.value_loss
            errors["loss"].append(error(loss, expected["loss"]))
        errors["gradient"].append(error(learner.parameters.gradient, expected["gradient"]))
        errors["weights"].append(error(learner.parameters.vector, expected["weights"]))
        scale = min(1.0, (config.max_grad_norm or np.inf) / (step.gradient_norm + 1e-6))
        errors["clipping"].append(error(learner.parameters.gradient * scale, expected["clipped"]))
        if not double:
            # Every update is compared from the same weights. Where a ratio crosses the clip range the gradient jumps,
            # and rounding decides on which side it is: after that, two trainers that are right go different ways.
            learner.parameters.vector[:] = expected["weights"]
    assert len(errors["weights"]) == n_epochs * -(-n // config.batch_size)
    errors["weights"].append(error(learner.parameters.vector, final))
    for what, values in errors.items():
        allowed = 0 if double else len(values) // 100
        above = [(update + 1, value) for update, value in enumerate(values) if not value <= tolerance]
        assert len(above) <= allowed, f"{what} differs at updates {above[:5]}"
    # what was compared was a round in which things happened
    assert log["train/clip_fraction"] > 0.01
    if config.max_grad_norm is not None:
        assert any(step["gradient"] @ step["gradient"] > config.max_grad_norm**2 for step in theirs)
    assert np.abs(learner.parameters.vector - start).max() > 1e-4


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["one_hot", "vector", "gaussian", pytest.param("minigrid", marks=pytest.mark.slow)])
def test_a_round_in_float64(kind, optimizer, monkeypatch):
    compare_round(kind, 2048, 10, True, monkeypatch, **OPTIMIZERS[optimizer])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["one_hot", "vector", "gaussian", "minigrid"])
def test_a_round_in_float32(kind, optimizer, monkeypatch):
    compare_round(kind, 2048, 10, False, monkeypatch, **OPTIMIZERS[optimizer])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_three_epochs_of_the_minigrid_network(optimizer, monkeypatch):
    compare_round("minigrid", 256, 3, True, monkeypatch, **OPTIMIZERS[optimizer])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("double, n_epochs", [(True, 2), (False, 1)], ids=["float64", "float32"])
def test_nature_cnn(double, n_epochs, optimizer, monkeypatch):
    compare_round("nature", 64, n_epochs, double, monkeypatch, batch_size=16, **OPTIMIZERS[optimizer])


@pytest.mark.parametrize("kind", ["vector", "gaussian", "minigrid"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_grad_norm": None},
        {"entropy_coef": 0.02, "value_coef": 0.25, "clip_range": 0.1, "max_grad_norm": 0.2},
        {"normalize_advantage": False},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_other_settings(kind, settings, monkeypatch):
    compare_round(kind, 256, 2, True, monkeypatch, **settings)


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("kind", ["one_hot", "minigrid"])
def test_a_short_last_minibatch_of_one_record(kind, monkeypatch):
    """64, 64, 1: Stable-Baselines3 keeps the single record, and does not normalise it."""
    compare_round(kind, 129, 2, True, monkeypatch, drop_short_minibatch=False)


@pytest.mark.parametrize("shape", [(200, 1), (60, 3)])
def test_gae_equals_the_rollout_buffers(shape):
    """With its treatment of truncation: the discounted value of the final observation is added to the reward."""
    generator = np.random.default_rng(0)
    n, envs = shape
    rewards, values, final_values = generator.standard_normal((3, n, envs))
    terminated = generator.random(shape) < 0.1
    truncated = ~terminated & (generator.random(shape) < 0.1)
    buffer = RolloutBuffer(n, BOX(-1, 1, (2,)), gym.spaces.Discrete(2), "cpu", 0.95, 0.99, envs)
    buffer.rewards = rewards + 0.99 * final_values * truncated
    buffer.values, buffer.advantages = values.copy(), np.zeros(shape)
    ended = terminated | truncated
    buffer.episode_starts = np.vstack([np.ones((1, envs)), ended[:-1]])
    last_values = generator.standard_normal(envs)
    buffer.compute_returns_and_advantage(torch.from_numpy(last_values), ended[-1])

    next_values = np.where(ended, final_values, np.vstack([values[1:], last_values]))
    advantages = gae(rewards, values, next_values, terminated, truncated, gamma=0.99, gae_lambda=0.95)
    assert truncated.sum() > 5 and terminated.sum() > 5
    np.testing.assert_allclose(advantages, buffer.advantages, rtol=0, atol=1e-12)
    np.testing.assert_allclose(advantages + values, buffer.returns, rtol=0, atol=1e-12)


PENDULUM = EnvironmentConfig(
    id="pendulum", label="Pendulum", gym_id="Pendulum-v1", rounds=1, drop_percent=50, evaluation={"kind": "batched"}
)


@pytest.mark.parametrize(
    ("name", "n_steps"),
    [
        ("frozenlake", 640),
        ("acrobot", 640),
        ("minigrid", 640),
        ("pendulum", 640),  # a Gaussian policy, some of whose actions are clipped where they are executed
        pytest.param("pong", 128, marks=pytest.mark.slow),  # its first episode goes on for longer
    ],
)
def test_collected_records_equal_its_rollout(name, n_steps, monkeypatch):
    """Two buffers in a row, with Stable-Baselines3's own sampling, environment handling and value bootstrap."""
    environment, seed = (load_environments(ENVIRONMENTS) | {"pendulum": PENDULUM})[name], 5
    environment = environment.model_copy(update={"engine": "gymnasium"})
    config = PPOConfig(n_steps=n_steps, batch_size=64)
    sampler = make_sampler(environment, seed)
    ours = make_policy(
        environment.network, sampler.observation_space, sampler.action_space, torch.Generator().manual_seed(1)
    )
    model = sb3_ppo(environment.network, make_env(environment), config, seed=seed)
    copy_weights(environment.network, model.policy, ours)
    _, callback = model._setup_learn(10_000)
    discrete = isinstance(sampler.action_space, gym.spaces.Discrete)
    truncations = terminations = clipped = 0
    for _ in range(2):
        assert model.collect_rollouts(model.env, callback, model.rollout_buffer, config.n_steps)
        buffer = model.rollout_buffer
        actions = buffer.actions[:, 0, 0].astype(int) if discrete else buffer.actions[:, 0]
        taken = iter(actions.tolist() if discrete else actions)
        monkeypatch.setattr(Inference, "step", lambda self, observation, noise, taken=taken: next(taken))
        records = collect(sampler, ours, config.n_steps, np.random.default_rng(0), config)
        observations = buffer.observations[:, 0]
        if name == "minigrid":
            observations = np.moveaxis(observations, 1, -1)
        np.testing.assert_array_equal(records.observations, observations.reshape(records.observations.shape))
        np.testing.assert_array_equal(records.actions, actions)  # raw ones, whose log-probability it is
        for field in ("values", "log_probs", "advantages", "returns"):
            assert error(getattr(records, field), getattr(buffer, field)[:, 0]) < 1e-5, field
        not_truncated = ~records.truncated  # there it adds the value of the final observation to the reward
        np.testing.assert_allclose(records.rewards[not_truncated], buffer.rewards[:, 0][not_truncated], rtol=1e-6)
        ended = (records.terminated | records.truncated)[:-1]
        np.testing.assert_array_equal(ended, buffer.episode_starts[1:, 0])
        truncations, terminations = truncations + records.truncated.sum(), terminations + records.terminated.sum()
        clipped += 0 if discrete else (np.abs(actions) > sampler.action_space.high).sum()
    assert terminations if name == "frozenlake" else truncations or name == "pong"
    assert clipped > 0 or discrete


@pytest.mark.parametrize("kind", SPACES)
def test_initial_weights_are_drawn_as_its_are(kind):
    """Every tensor has the same singular values (orthogonal, times its gain), biases are zero; the rest is chance."""
    network = SPACES[kind][0]
    model = sb3_ppo(network, Spaces(*SPACES[kind][1:]), PPOConfig(), seed=0)
    ours = make_policy(*SPACES[kind], torch.Generator().manual_seed(0))
    for name, theirs in sb3_parameters(network, model.policy, ours).items():
        parameter = dict(ours.named_parameters())[name]
        assert parameter.shape == theirs.shape
        if parameter.ndim == 1:
            assert torch.equal(parameter, theirs) and (parameter == 0).all()
        else:
            a, b = (torch.linalg.svdvals(p.detach().double().flatten(1)) for p in (parameter, theirs))
            np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=name)
            assert not torch.equal(parameter, theirs)
