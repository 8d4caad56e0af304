"""The Stable-Baselines3 adapter on users' own code: policies, layers, buffers, `train`, and several callbacks."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rl_influence import InfluenceCallback, InfluenceFilteredPPO, ScoringError, score_rollout, train_and_score
from sb3_models import DICTIONARY, Toy, by_record, collected

ARGUMENTS = {"policy": "MlpPolicy", "env": "CartPole-v1", "n_steps": 32, "batch_size": 16, "n_epochs": 2}
ARGUMENTS |= {"seed": 0, "device": "cpu"}


class Trunk(nn.Module):
    """One network for actor and critic."""

    def __init__(self, features):
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = 8
        self.shared = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())

    def forward(self, features):
        return self.shared(features), self.shared(features)

    def forward_actor(self, features):
        return self.shared(features)

    forward_critic = forward_actor


class SharedTrunk(ActorCriticPolicy):
    def _build_mlp_extractor(self):
        self.mlp_extractor = Trunk(self.features_dim)


class Sharpened(ActorCriticPolicy):
    """Whose own `evaluate_actions` does not ask `get_distribution`."""

    def _both(self, observations):
        policy, value = self.mlp_extractor(self.extract_features(observations, self.pi_features_extractor))
        return torch.distributions.Categorical(logits=2 * self.action_net(policy)), self.value_net(value)

    def forward(self, observations, deterministic=False):
        distribution, values = self._both(observations)
        actions = distribution.sample()
        return actions, values, distribution.log_prob(actions)

    def evaluate_actions(self, observations, actions):
        distribution, values = self._both(observations)
        return values, distribution.log_prob(actions), distribution.entropy()


class OnlyBackwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class NoForwardMode(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 8)
        self.layer = nn.Linear(3, 8)

    def forward(self, observations):
        return OnlyBackwards.apply(self.layer(observations))


@pytest.mark.parametrize("policy", [SharedTrunk, Sharpened])
def test_own_policies_are_scored_as_they_train(policy):
    model = collected(env=Toy, policy=policy, n_steps=24, batch_size=8)
    raw = {(0, t): float(model.rollout_buffer.advantages[t, 0]) for t in range(24)}
    found = np.array([by_record(model, raw)[0, t] for t in range(24)])
    _, scores = score_rollout(model)
    np.testing.assert_allclose(scores, found, rtol=1e-3, atol=1e-5 * np.abs(found).max())
    assert np.abs(found).max() > 0


def test_layers_without_a_forward_mode_are_filtered_record_by_record(tmp_path):
    arguments = ARGUMENTS | {"env": Toy(), "policy_kwargs": {"features_extractor_class": NoForwardMode}}
    with pytest.raises(ScoringError, match="backend jvp cannot differentiate .* per_record"):
        PPO(**arguments).learn(32, callback=InfluenceCallback(0.5))
    callback = InfluenceCallback(0.5, backend="per_record")
    PPO(**arguments).learn(32, callback=callback)
    model = InfluenceFilteredPPO(**arguments, backend="per_record").learn(32)
    np.testing.assert_array_equal(model.influence, callback.scores)
    model.save(tmp_path / "model.zip")
    assert InfluenceFilteredPPO.load(tmp_path / "model.zip").backend == "per_record"
    _, scores = train_and_score(collected(**arguments | {"env": Toy, "n_steps": 24}), backend="per_record")
    assert np.abs(scores).max() > 0
    for door in (InfluenceCallback, lambda backend: InfluenceFilteredPPO(**ARGUMENTS, backend=backend)):
        with pytest.raises(ScoringError, match="^backend 'fast' is unknown; choices: jvp, ghost, per_record$"):
            door(backend="fast")


@pytest.mark.parametrize("arguments", [{}, {"env": "Pendulum-v1"}, {"env": "Pendulum-v1", "use_sde": True}])
def test_a_policy_can_be_copied_after_it_was_scored(arguments):
    model = collected(n_steps=32, **arguments)
    before = dict(vars(model.policy.action_dist))
    score_rollout(model)
    assert vars(model.policy.action_dist) == before
    if not model.use_sde:  # which Stable-Baselines3 lets nobody copy
        copy.deepcopy(model.policy)


@pytest.mark.parametrize(
    "arguments",
    [
        {"env": Toy},
        {"env": lambda: Toy(DICTIONARY), "policy": "MultiInputPolicy"},
        {"env": "Pendulum-v1", "use_sde": True},
    ],
)
def test_where_float32_is_exhausted_float64_scores_the_rest_of_the_round(arguments, monkeypatch):
    """Also between updates, whose graphs cannot be copied."""
    asked = []

    def spoilt(backend, policy, objective, batch, direction, found, gradient_of=None):
        asked.append(found[0].dtype)
        return "rounding" if found[0].dtype == torch.float32 else None

    plain, scored = (collected(n_steps=32, batch_size=8, **arguments) for _ in range(2))
    np.random.seed(0)
    _, expected = train_and_score(plain)
    monkeypatch.setattr("rl_influence.attribution.tracin.disagreement", spoilt)
    np.random.seed(0)
    with pytest.warns(UserWarning, match="float32 is exhausted"):
        _, scores = train_and_score(scored)
    np.testing.assert_allclose(scores, expected, rtol=1e-2, atol=1e-3 * np.abs(expected).max())
    assert asked[:4] == 2 * [torch.float32, torch.float64]  # at the 1st step and at the 2nd
    for a, b in zip(scored.policy.parameters(), plain.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_train_of_ones_own_reads_and_writes_the_records_that_train():
    class Own(PPO):
        def train(self):
            buffer = self.rollout_buffer
            self.seen = [buffer.size(), *(len(getattr(buffer, name)) for name in ("advantages", "rewards", "actions"))]
            buffer.advantages *= 0
            super().train()

    callback, model = InfluenceCallback(1.0), Own(**ARGUMENTS, vf_coef=0)
    before = model.policy.action_net.weight.detach().clone()
    model.learn(32, callback=callback)
    assert len(callback.kept) < 32 and model.seen == 4 * [len(callback.kept)]
    assert torch.equal(model.policy.action_net.weight, before)  # no advantage, no gradient


class OwnOrder(RolloutBuffer):
    def get(self, batch_size=None):
        yield from super().get(batch_size)


def test_a_buffer_that_draws_its_minibatches_itself_is_scored_but_not_filtered():
    message = "OwnOrder has a get of its own, which would not be asked$"
    callback = InfluenceCallback()
    model = PPO(**ARGUMENTS, rollout_buffer_class=OwnOrder).learn(32, callback=callback)
    assert len(callback.scores) == 32
    with pytest.raises(ScoringError, match=message):
        InfluenceFilteredPPO(**ARGUMENTS, rollout_buffer_class=OwnOrder)
    with pytest.raises(ScoringError, match=message):
        model.learn(32, callback=InfluenceCallback(0.5))
    with pytest.raises(ScoringError, match=message):
        train_and_score(collected(n_steps=32, rollout_buffer_class=OwnOrder))


def test_two_callbacks_do_not_filter_the_same_records():
    model = PPO(**ARGUMENTS)
    with pytest.raises(ScoringError, match="another callback filters these records already"):
        model.learn(32, callback=[InfluenceCallback(1.0), InfluenceCallback(0.5)])
    assert "train" not in vars(model)
    model.learn(32, callback=[InfluenceCallback(1.0), InfluenceCallback()])  # looking on is allowed


class AtRolloutEnd(BaseCallback):
    def __init__(self, do):
        super().__init__()
        self.do = do

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.do(self.model)


def test_a_model_saved_between_scoring_and_training_is_saved_without_the_callback(tmp_path):
    saving = AtRolloutEnd(lambda model: model.save(tmp_path / "model.zip"))
    PPO(**ARGUMENTS).learn(64, callback=[InfluenceCallback(1.0), saving])
    loaded = PPO.load(tmp_path / "model.zip", env=gym.make("CartPole-v1"), device="cpu")
    assert not {"train", "_excluded_save_params"} & set(vars(loaded))


@pytest.mark.parametrize("again", [None, InfluenceCallback()])
def test_a_model_whose_learning_was_stopped_trains_on_all_records_without_the_filter(again):
    def stop(model):
        raise KeyboardInterrupt

    model, sizes = PPO(**ARGUMENTS), []
    with pytest.raises(KeyboardInterrupt):
        model.learn(32, callback=[InfluenceCallback(1.0), AtRolloutEnd(stop)])
    original = PPO.train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PPO, "train", lambda self: (sizes.append(self.rollout_buffer.size()), original(self)))
        model.learn(64, callback=again)
    assert sizes == [32, 32] and "train" not in vars(model)


def test_a_buffer_that_the_policy_cannot_evaluate_is_one_line():
    model = collected(n_steps=32)
    model.rollout_buffer.observations[3] = np.nan
    with pytest.raises(ScoringError, match="^rollout buffer: ActorCriticPolicy fails, ") as refusal:
        score_rollout(model)
    assert "\n" not in str(refusal.value)


def test_observations_that_are_not_laid_out_say_what_lays_them_out():
    from rl_influence import FAction

    model = collected(env=lambda: Toy(DICTIONARY), policy="MultiInputPolicy", n_steps=16)
    with pytest.raises(ScoringError, match=r"^observations of shape \(1, 3\): SB3Policy.encoded makes \(n, \d+\) of"):
        score_rollout(model, FAction(np.zeros(3, np.float32), 1))
