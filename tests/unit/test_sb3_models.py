"""The Stable-Baselines3 adapter on every kind of policy and space, and its callback."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.logger import Logger

from rl_influence.attribution import FAction, FReturn, ScoringError, influence_scores
from rl_influence.integrations.sb3 import (
    InfluenceCallback,
    InfluenceFilteredA2C,
    InfluenceFilteredPPO,
    SB3Policy,
    rollout_records,
    score_rollout,
    train_and_score,
)
from rl_influence.selection import drop_most_negative, normalize_in_minibatches
from sb3_models import DICTIONARY, IMAGE, Normalised, Toy, by_record, collected

MaskablePPO = pytest.importorskip("sb3_contrib").MaskablePPO
CHOICES = gym.spaces.MultiDiscrete([3, 2])
BOX = gym.spaces.Box(-1, 1, (2,), np.float32)
MODELS = {
    "mlp, 3 environments": dict(n_envs=3),
    "cnn": dict(env=lambda: Toy(IMAGE), policy="CnnPolicy"),
    "cnn, extractors apart": dict(
        env=lambda: Toy(IMAGE), policy="CnnPolicy", policy_kwargs={"share_features_extractor": False}
    ),
    "VecNormalize": dict(env="Pendulum-v1", n_envs=2, normalize=True),
    "gSDE": dict(env="Pendulum-v1", use_sde=True),
    "gSDE, squashed": dict(env=lambda: Toy(actions=BOX), use_sde=True, policy_kwargs={"squash_output": True}),
    "target_kl": dict(target_kl=1e-9),
    "MultiDiscrete": dict(env=lambda: Toy(actions=CHOICES)),
    "MultiBinary": dict(env=lambda: Toy(actions=gym.spaces.MultiBinary(3))),
    "A2C": dict(cls=A2C, n_envs=2),
    "A2C, normalised advantages": dict(cls=A2C, normalize_advantage=True),
    "dictionary": dict(env=lambda: Toy(DICTIONARY), policy="MultiInputPolicy", n_envs=2),
    "masks": dict(cls=MaskablePPO, env=Toy, n_envs=2),
    "masks of several choices": dict(cls=MaskablePPO, env=lambda: Toy(actions=CHOICES)),
    "masks, dictionary": dict(cls=MaskablePPO, env=lambda: Toy(DICTIONARY), policy="MultiInputPolicy"),
    "BatchNorm": dict(env=Toy, policy_kwargs={"features_extractor_class": Normalised}),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("backend", ["jvp", "per_record"])
def test_scores_equal_a_backward_pass_per_record(kind, backend):
    arguments = MODELS[kind]
    model = collected(n_steps=32, **arguments)
    buffer, n_envs = model.rollout_buffer, model.n_envs
    raw = {(e, t): float(buffer.advantages[t, e]) for e in range(n_envs) for t in range(32)}
    expected = by_record(model, raw)
    records, scores = score_rollout(model, backend=backend)
    found = np.array([expected[e, t] for e, t in zip(records.environments, records.steps, strict=True)])
    np.testing.assert_allclose(scores, found, rtol=2e-3, atol=2e-5 * np.abs(found).max())
    assert np.abs(found).max() > 0


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_scoring_leaves_the_model_as_it_was(kind, training):
    model = collected(n_steps=32, **MODELS[kind])
    model.policy.set_training_mode(training)
    model.policy.action_net.train(not training)  # modes are restored one by one
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    identities = [id(parameter) for parameter in model.policy.parameters()]
    score_rollout(model)
    modes = {module.training for module in model.policy.modules() if module is not model.policy.action_net}
    assert modes == {training} and model.policy.action_net.training is not training
    assert [id(parameter) for parameter in model.policy.parameters()] == identities
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.policy.parameters())
    trained = {id(p) for group in model.policy.optimizer.param_groups for p in group["params"]}
    assert trained == set(identities)
    assert all(torch.equal(value, before[name]) for name, value in model.policy.state_dict().items())


@pytest.mark.parametrize("kind", MODELS)
def test_training_moves_every_parameter_after_scoring(kind):
    model = collected(n_steps=32, **MODELS[kind])
    score_rollout(model)
    before = {name: value.detach().clone() for name, value in model.policy.named_parameters()}
    model.train()
    moved = {name: not torch.equal(value, before[name]) for name, value in model.policy.named_parameters()}
    assert all(moved.values()) or kind in ("target_kl", "A2C")  # one step: a ReLU may be dead
    assert any(moved.values())


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "BatchNorm"])
def test_full_tracin_starts_at_the_rounds_start_and_changes_no_number_of_training(kind):
    scored, plain = (collected(n_steps=32, **MODELS[kind]) for _ in range(2))
    for model in (scored, plain):
        if hasattr(model, "n_epochs"):
            model.n_epochs, model.batch_size = 1, len(rollout_records(model.rollout_buffer))  # one step
    _, start = score_rollout(
        scored,
        advantages=normalize_in_minibatches(
            rollout_records(scored.rollout_buffer).advantages, 10**6, np.random.default_rng()
        )
        if scored.normalize_advantage
        else None,
    )
    np.random.seed(1)
    _, scores = train_and_score(scored)
    np.random.seed(1)
    plain.train()
    np.testing.assert_allclose(scores, start, rtol=1e-3, atol=1e-4 * np.abs(start).max())
    for a, b in zip(scored.policy.parameters(), plain.policy.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["dictionary", "masks", "masks, dictionary"])
def test_targets_of_encoded_records(kind):
    model = collected(n_steps=32, **MODELS[kind])
    policy = SB3Policy(model.policy)
    records = rollout_records(model.rollout_buffer)
    encoded = policy.encoded(records)
    _, scores = score_rollout(model, FAction(encoded.observations[3], encoded.actions[3]))
    expected = influence_scores(
        policy, encoded, lambda p: p.log_prob(*map(torch.as_tensor, (encoded.observations[3:4], encoded.actions[3:4])))
    )
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5 * np.abs(scores).max())
    some = records[np.arange(10)]
    assert len(some) == 10
    _, of_some = score_rollout(model, FReturn(policy.encoded(some)))
    assert np.abs(of_some).max() > 0


def test_a_masked_action_has_no_influence_through_what_was_masked():
    model = collected(MaskablePPO, Toy, n_steps=32)
    records, scores = score_rollout(model)
    assert records.action_masks.shape == (32, 4) and (records.action_masks.sum(1) == 2).all()
    assert (records.action_masks[np.arange(32), records.actions] == 1).all()
    free = rollout_records(model.rollout_buffer)
    free.action_masks = np.ones_like(free.action_masks)
    policy = SB3Policy(model.policy)
    unmasked = influence_scores(policy, policy.encoded(free), FReturn(policy.encoded(free))).numpy()
    assert not np.allclose(scores, unmasked, rtol=0.1)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@pytest.mark.parametrize(
    ("plain", "filtered", "arguments"),
    [
        (PPO, InfluenceFilteredPPO, {"n_steps": 64, "batch_size": 16, "n_epochs": 2}),
        (A2C, InfluenceFilteredA2C, {"n_steps": 16}),
        (A2C, InfluenceFilteredA2C, {"n_steps": 16, "normalize_advantage": True}),
    ],
)
def test_the_callback_trains_as_the_subclass_does(plain, filtered, arguments):
    arguments = {"policy": "MlpPolicy", "env": "CartPole-v1", "seed": 3, "device": "cpu"} | arguments
    callback = InfluenceCallback(0.5)
    by_callback = plain(**arguments).learn(192, callback=CallbackList([callback]))
    by_class = filtered(**arguments, drop_fraction=0.5).learn(192)
    unfiltered = plain(**arguments).learn(192)
    assert torch.equal(weights(by_callback), weights(by_class))
    assert not torch.equal(weights(by_callback), weights(unfiltered))
    np.testing.assert_array_equal(callback.kept, by_class.kept)
    np.testing.assert_array_equal(callback.scores, by_class.influence)
    assert "train" not in vars(by_callback)  # nothing of the callback stays behind
    assert 0 < len(callback.kept) < len(callback.records) == arguments["n_steps"]


def test_a_callback_that_drops_nothing_changes_nothing():
    arguments = {"policy": "MlpPolicy", "env": "CartPole-v1", "seed": 3, "device": "cpu", "n_steps": 64}
    callback = InfluenceCallback()
    assert torch.equal(weights(PPO(**arguments).learn(128, callback=callback)), weights(PPO(**arguments).learn(128)))
    assert len(callback.kept) == len(callback.scores) == 64


@pytest.mark.parametrize("kind", ["masks", "masks, dictionary", "BatchNorm", "dictionary", "cnn"])
def test_every_kind_learns_under_the_filter(kind):
    arguments = dict(MODELS[kind])
    cls, env, policy = arguments.pop("cls", PPO), arguments.pop("env"), arguments.pop("policy", "MlpPolicy")
    arguments.pop("n_envs", None)
    model = cls(policy, env(), n_steps=32, batch_size=16, n_epochs=1, device="cpu", seed=0, **arguments)
    before, callback = weights(model), InfluenceCallback(1.0)
    model.learn(64, callback=callback)
    assert not torch.equal(before, weights(model)) and weights(model).isfinite().all()
    np.testing.assert_array_equal(callback.kept, drop_most_negative(callback.scores, 1.0))


@pytest.mark.parametrize("cls", [A2C, MaskablePPO])
def test_a_single_record_left_does_not_train_where_its_advantage_would_be_nan(cls):
    arguments = {"n_steps": 8, "normalize_advantage": True} | ({} if cls is A2C else {"batch_size": 4, "n_epochs": 1})
    model = cls("MlpPolicy", Toy(), device="cpu", seed=0, **arguments)
    callback = InfluenceCallback(1.0)

    def one_positive(*_, advantages=None, **__):
        return rollout_records(model.rollout_buffer), np.array([1.0] + [-1.0] * 7)

    before = weights(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rl_influence.integrations.sb3.score_rollout", one_positive)
        model.learn(8, callback=callback)
    assert callback.kept.tolist() == [0] and torch.equal(before, weights(model))


class Written(Logger):
    def __init__(self):
        super().__init__(None, [])
        self.last = {}

    def dump(self, step=0):
        self.last = dict(self.name_to_value)
        super().dump(step)


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_what_is_logged(fraction):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
    logger, callback = Written(), InfluenceCallback(fraction)
    model.set_logger(logger)
    model.learn(64, callback=callback)
    logged = {name.removeprefix("influence/"): x for name, x in logger.last.items() if name.startswith("influence/")}
    assert logged["share_negative"] == (callback.scores < 0).mean()
    for percent in (5, 25, 50, 75, 95):
        assert logged[f"q{percent:02}"] == np.percentile(callback.scores, percent)
    assert 0 < logged["scoring_s"] < 60
    assert logged.get("records_kept") == (None if fraction is None else len(callback.kept))


def test_wrong_models_are_named_before_the_first_step():
    from sb3_contrib import RecurrentPPO

    dqn = DQN("MlpPolicy", "CartPole-v1", device="cpu", buffer_size=10)
    recurrent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    for model, name in ((dqn, "DQN"), (recurrent, "RecurrentPPO")):
        for function in (score_rollout, train_and_score):
            with pytest.raises(ScoringError, match=f"^{name}: PPO, A2C or MaskablePPO is needed"):
                function(model)
        with pytest.raises(ScoringError, match=f"^{name}: PPO, A2C or MaskablePPO is needed"):
            model.learn(32, callback=InfluenceCallback())
        assert model.num_timesteps == 0
    recurrent.learn(16)
    with pytest.raises(ScoringError, match="^RecurrentRolloutBuffer: the rollout buffer of PPO"):
        rollout_records(recurrent.rollout_buffer)
    with pytest.raises(ScoringError, match=r"^SB3Policy\(RecurrentActorCriticPolicy\): the policy of PPO"):
        SB3Policy(recurrent.policy)
    ppo = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(ScoringError, match=r"^SB3Policy\(PPO\): the policy of PPO, A2C or MaskablePPO is needed"):
        SB3Policy(ppo)
    with pytest.raises(ScoringError, match="^ActorCriticPolicy: PPO, A2C or MaskablePPO is needed"):
        score_rollout(ppo.policy)


def test_a_model_that_filters_is_not_filtered_twice():
    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu")
    with pytest.raises(ScoringError, match="InfluenceFilteredPPO filters already"):
        model.learn(64, callback=InfluenceCallback(0.5))
    model.learn(64, callback=InfluenceCallback())  # looking on is allowed


@pytest.mark.parametrize("function", [score_rollout, train_and_score])
@pytest.mark.parametrize("kind", ["mlp, 3 environments", "A2C", "masks", "dictionary"])
def test_a_stale_buffer_is_refused_and_trains_nothing(kind, function):
    model = collected(n_steps=32, learning_rate=0.05, **MODELS[kind])
    model.train()
    model.train()
    before, training = weights(model), model.policy.training
    with pytest.raises(ScoringError, match="collected by another policy"):
        function(model)
    assert torch.equal(weights(model), before) and model.policy.training is training


def test_layers_that_tie_records_together_while_they_train_are_named():
    model = collected(n_steps=32, **MODELS["BatchNorm"])
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    with pytest.raises(ScoringError) as refusal:
        train_and_score(model)
    assert str(refusal.value) == (
        "train_and_score: layer 'policy.features_extractor.layers.1' (BatchNorm1d) normalises over the records of a "
        "batch while PPO trains, so records have no influence of their own over its steps; score_rollout scores them "
        "before, with the policy that collected them"
    )
    assert all(torch.equal(value, before[name]) for name, value in model.policy.state_dict().items())
    assert not model.policy.training


def test_an_overridden_train_may_score_what_it_trains():
    class Scored(PPO):
        def train(self):
            self.records, self.scores = train_and_score(self)

    arguments = {
        "policy": "MlpPolicy",
        "env": "CartPole-v1",
        "n_steps": 32,
        "batch_size": 16,
        "seed": 0,
        "device": "cpu",
    }
    scored, plain = Scored(**arguments).learn(64), PPO(**arguments).learn(64)
    assert torch.equal(weights(scored), weights(plain)) and np.abs(scored.scores).max() > 0


def test_the_callback_trains_by_a_subclass_own_train():
    class Counted(PPO):
        calls = 0

        def train(self):
            self.calls += 1
            super().train()

    model = Counted("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, seed=0, device="cpu")
    assert model.learn(64, callback=InfluenceCallback(0.5)).calls == 2


def test_masks_are_seen_in_a_policy_of_ones_own():
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

    class Own(MaskableActorCriticPolicy):
        pass

    model = collected(MaskablePPO, Toy, policy=Own, n_steps=32)
    records, scores = score_rollout(model)  # which compares log pi with the masks' one
    assert records.action_masks is not None and np.abs(scores).max() > 0


def test_what_is_not_wrapped_is_told_how():
    from rl_influence.attribution import tracin_scores
    from rl_influence.ppo.objective import Step

    model = collected(n_steps=32)
    records = rollout_records(model.rollout_buffer)
    hint = r"; of Stable-Baselines3: rl_influence.SB3Policy\(model.policy\)$"
    for policy, what in (
        (model.policy, r"^policy ActorCriticPolicy has no log_prob\(observations, actions\) -> \(n,\)"),
        (model, "^policy: a torch module is needed, not PPO"),
    ):
        with pytest.raises(ScoringError, match=what + hint):
            influence_scores(policy, records, FReturn(records))
        with pytest.raises(ScoringError, match=what + hint):
            tracin_scores(policy, records, FReturn(records), [Step(np.arange(4))])
    with pytest.raises(ScoringError, match=r"^policy Linear has no log_prob\(observations, actions\) -> \(n,\)$"):
        influence_scores(torch.nn.Linear(4, 2), records, FReturn(records))
