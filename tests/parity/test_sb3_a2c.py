"""A2C, one objective and a few settings, against Stable-Baselines3's in float64 over whole rollouts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C

from benchmarks.sb3 import MiniGridCNN, copy_weights, fill_buffer, sb3_parameters
from rl_influence.config import Config, PPOConfig
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.runs.trainer import Clock, Trainer
from rollouts import SPACES, Log, Spaces, error, flat, random_records

CONFIG = Config(Path(__file__).parents[2] / "config/smoke.yaml")
A2C_SETTINGS = {
    "objective": "policy_gradient",
    "n_epochs": 1,
    "gae_lambda": 1.0,
    "normalize_advantage": False,
    "optimizer": "rmsprop",
    "learning_rate": 7e-4,
}  # Stable-Baselines3's defaults


def sb3_a2c(kind, ours, config):
    """Stable-Baselines3's A2C with our weights and settings."""
    network = SPACES[kind][0]
    kwargs = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    if network == "minigrid_cnn":
        kwargs["features_extractor_class"] = MiniGridCNN
    if config.optimizer != "rmsprop":
        kwargs["optimizer_class"] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[config.optimizer]
        kwargs["optimizer_kwargs"] = {"eps": 1e-5} if config.optimizer == "adam" else {}
    model = A2C(
        "MlpPolicy" if network == "mlp" else "CnnPolicy",
        Spaces(*SPACES[kind][1:]),
        learning_rate=config.learning_rate,
        n_steps=config.n_steps,
        ent_coef=config.entropy_coef,
        vf_coef=config.value_coef,
        max_grad_norm=float("inf") if config.max_grad_norm is None else config.max_grad_norm,
        normalize_advantage=config.normalize_advantage,
        use_rms_prop=config.optimizer == "rmsprop",
        policy_kwargs=kwargs,
        device="cpu",
    )
    model.policy.double()
    copy_weights(network, model.policy, ours)
    model.set_logger(Log())
    return model


@pytest.mark.parametrize("kind", ["one_hot", "vector", "gaussian", "minigrid"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"entropy_coef": 0.02, "value_coef": 0.25, "max_grad_norm": 0.1},
        {"normalize_advantage": True, "max_grad_norm": None, "learning_rate": 2e-3},
        {"optimizer": "adam", "learning_rate": 1e-3},
        {"optimizer": "sgd", "learning_rate": 0.02},
    ],
    ids=lambda settings: ",".join(settings) or "its defaults",
)
def test_rollouts_in_float64(kind, settings, monkeypatch):
    n, rollouts = 40, 12
    config = PPOConfig(n_steps=n, batch_size=n, **A2C_SETTINGS | settings)
    ours = make_policy(*SPACES[kind], torch.Generator().manual_seed(0)).double()
    learner = Learner(ours, config)
    model = sb3_a2c(kind, ours, config)
    parameters = list(sb3_parameters(SPACES[kind][0], model.policy, ours).values())
    start = learner.parameters.vector.copy()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for _ in range(rollouts):
        records = random_records(kind, n, ours, config)
        fill_buffer(model, records)
        model.train()
        assert learner.update(records, [np.arange(n)]) == 1
        assert error(learner.parameters.vector, flat(parameters)) < 1e-9
    assert np.abs(learner.parameters.vector - start).max() > 1e-3


@pytest.mark.parametrize("environment, method", [("frozenlake", "a2c"), ("minigrid", "a2c"), ("frozenlake", "iif_a2c")])
def test_rollouts_of_the_environments(environment, method, monkeypatch):
    """Sampled, scored, filtered and trained by our loop; Stable-Baselines3 trains on the same records."""
    spec = CONFIG.resolve(environment, method, 0)
    trainer = Trainer(spec)
    kind = {"frozenlake": "one_hot", "minigrid": "minigrid"}[environment]
    learner = trainer.learner = Learner(trainer.policy.double(), spec.ppo)
    model = sb3_a2c(kind, learner.policy, spec.ppo)
    parameters = list(sb3_parameters(SPACES[kind][0], model.policy, learner.policy).values())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    trainer._watch.learner = learner
    moved = kept = 0
    for _ in range(6):
        before = learner.parameters.vector.copy()
        kept += trainer.train_round(Clock())["records_kept"]
        model.rollout_buffer.buffer_size = len(trainer.selection.kept)
        fill_buffer(model, trainer.records[trainer.selection.kept])
        model.train()
        assert error(learner.parameters.vector, flat(parameters)) < 1e-9
        moved += np.abs(learner.parameters.vector - before).max() > 0
    assert moved == 6 and (kept < 6 * spec.ppo.n_steps) == (method == "iif_a2c")
