"""The Stable-Baselines3 adapter: scores against a backward pass per record, training against our own loop."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO

from rl_influence.attribution import FAction, ScoringError, influence_scores
from rl_influence.config import PPOConfig
from rl_influence.integrations import sb3
from rl_influence.integrations.sb3 import (
    InfluenceCallback,
    InfluenceFilteredPPO,
    SB3Policy,
    rollout_records,
    score_rollout,
    train_and_score,
)
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import Records
from rl_influence.selection import Selection, drop_most_negative, score
from sb3_models import by_record, collected, gradient

NAMES = {  # ours -> Stable-Baselines3's
    "policy_net.0": "mlp_extractor.policy_net.0",
    "policy_net.2": "mlp_extractor.policy_net.2",
    "action_head": "action_net",
    "value_net.0": "mlp_extractor.value_net.0",
    "value_net.2": "mlp_extractor.value_net.2",
    "value_head": "value_net",
}


@pytest.mark.parametrize(("env", "n_envs"), [("CartPole-v1", 1), ("Pendulum-v1", 3), ("FrozenLake-v1", 2)])
def test_scores_equal_a_backward_pass_per_record(env, n_envs):
    model = collected(env=env, n_envs=n_envs, n_steps=64)
    buffer = model.rollout_buffer
    raw = {(e, t): float(buffer.advantages[t, e]) for e in range(n_envs) for t in range(64)}
    rewards, starts = buffer.rewards.copy(), buffer.episode_starts.copy()
    expected = by_record(model, raw)
    records, scores = score_rollout(model)
    assert len(records) == len(scores) == 64 * n_envs
    for i in range(len(records)):
        e, t = records.environments[i], records.steps[i]
        assert records.advantages[i] == np.float32(raw[e, t])
        assert (records.rewards[i], records.episode_starts[i]) == (rewards[t, e], starts[t, e])
        assert scores[i] == pytest.approx(expected[e, t], rel=1e-3, abs=1e-6 * float(np.abs(scores).max()))
    assert np.abs(scores).max() > 0

    list(buffer.get(10))  # Stable-Baselines3 flattens its buffer in place when it first trains on it
    again = rollout_records(buffer)
    for name, array in vars(records).items():
        np.testing.assert_array_equal(vars(again)[name], array, err_msg=name)


def test_other_targets():
    model = collected()
    target = FAction(np.array([0.1, 0.0, 0.05, 0.0], np.float32), np.array(1))
    records, scores = score_rollout(model, target)
    expected = influence_scores(SB3Policy(model.policy), records, target, backend="per_record").numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-5)
    assert (np.sign(scores[records.advantages != 0]) != 0).all()


def ours(model, config, dtype):
    """Our policy with the model's weights, and the model's buffer as our records."""
    policy = make_policy("mlp", model.observation_space, model.action_space, torch.Generator()).to(dtype)
    learner = Learner(policy, config)
    theirs = dict(model.policy.named_parameters())
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            layer, _, kind = name.rpartition(".")
            parameter.copy_(theirs["log_std" if layer == "log_std" else f"{NAMES[layer]}.{kind}"])
    flat = rollout_records(model.rollout_buffer)
    zero, false = np.zeros(len(flat)), np.zeros(len(flat), bool)
    shared = {name: getattr(flat, name) for name in ("observations", "actions", "log_probs", "values", "rewards")}
    records = Records(
        **shared, terminated=false, truncated=false, next_values=zero, advantages=flat.advantages, returns=flat.returns
    )
    return learner, records


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize(("env", "n_envs"), [("CartPole-v1", 1), ("Pendulum-v1", 2)])
def test_filtered_round_equals_our_own(env, n_envs, short, dtype, tolerance, monkeypatch):
    config = PPOConfig(n_steps=96 * n_envs, batch_size=32, n_epochs=2, learning_rate=0.02, drop_short_minibatch=short)
    model = collected(
        InfluenceFilteredPPO,
        env,
        n_envs,
        drop_fraction=0.5,
        drop_short_minibatch=short,
        learning_rate=0.02,
        policy_kwargs={"optimizer_class": torch.optim.SGD},
    )
    if dtype == torch.float64:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # which its policies call on observations
        model.policy.double()
        buffer = model.rollout_buffer
        for name in ("observations", "values", "log_probs", "advantages", "returns"):
            setattr(buffer, name, getattr(buffer, name).astype(np.float64))
        flat = rollout_records(buffer)
        with torch.no_grad():
            inputs = torch.from_numpy(flat.observations), torch.from_numpy(flat.actions)
            fresh = SB3Policy(model.policy).log_prob(*inputs).numpy()
        buffer.log_probs = fresh.reshape(n_envs, -1).T.copy()
    learner, records = ours(model, config, dtype)
    np.random.seed(0)
    model.train()

    scores = score(records, learner.policy, config, np.random.default_rng([model.seed, model.num_timesteps]))
    np.testing.assert_allclose(model.influence, scores, rtol=1e-3, atol=1e-5 * np.abs(scores).max())
    kept = drop_most_negative(scores, 0.5)
    assert 0 < len(kept) < len(records) and len(kept) % 32  # there is a short mini-batch
    np.testing.assert_array_equal(model.kept, kept)

    np.random.seed(0)
    learner.update(records, Selection(kept, len(kept)).epochs(2, np.random))
    theirs = model.policy.state_dict()
    for name, parameter in learner.policy.named_parameters():
        layer, _, kind = name.rpartition(".")
        other = theirs["log_std" if layer == "log_std" else f"{NAMES[layer]}.{kind}"]
        torch.testing.assert_close(parameter.detach(), other, rtol=0, atol=tolerance)


def test_it_is_ppo_bit_for_bit_if_nothing_is_dropped():
    plain, filtered = (collected(cls) for cls in (PPO, InfluenceFilteredPPO))
    filtered.drop_fraction, filtered.drop_short_minibatch = 1e-8, False
    for model in (plain, filtered):
        np.random.seed(1)
        model.train()
    assert len(filtered.kept) == 96
    for ours_, theirs in zip(filtered.policy.parameters(), plain.policy.parameters(), strict=True):
        assert torch.equal(ours_, theirs)
    assert filtered.rollout_buffer.generator_ready is False  # and the buffer is as it was


def test_an_empty_selection_trains_nothing(monkeypatch):
    model = collected(InfluenceFilteredPPO)
    before = [p.clone() for p in model.policy.parameters()]
    monkeypatch.setattr(sb3, "drop_most_negative", lambda scores, fraction: np.array([], dtype=int))
    model.train()
    assert all(torch.equal(a, b) for a, b in zip(model.policy.parameters(), before, strict=True))


def test_learning_saving_and_loading(tmp_path):
    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", n_steps=64, drop_fraction=0.25, seed=1, device="cpu")
    model.learn(192)
    assert len(model.kept) == 64 - int(0.25 * (model.influence < 0).sum())
    model.save(tmp_path / "model.zip")
    loaded = InfluenceFilteredPPO.load(tmp_path / "model.zip", env=gym.make("CartPole-v1"), device="cpu")
    assert loaded.drop_fraction == 0.25
    for a, b in zip(loaded.policy.parameters(), model.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    loaded.learn(64)


def test_training_can_be_repeated():
    weights = []
    for _ in range(2):
        model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", n_steps=64, drop_fraction=1, seed=1, device="cpu")
        weights.append(torch.cat([p.flatten() for p in model.learn(192).policy.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("settings", [{}, {"clip_range": 0.01, "normalize_advantage": False, "learning_rate": 0.01}])
def test_full_tracin_follows_the_steps_of_train(settings):
    scored, plain, twin = (collected(n_steps=48, batch_size=16, **settings) for _ in range(3))
    clip_range, clipped = settings.get("clip_range", 0.2), 0
    np.random.seed(3)
    records, scores = train_and_score(scored)
    np.random.seed(3)
    plain.train()
    for a, b in zip(scored.policy.parameters(), plain.policy.parameters(), strict=True):
        assert torch.equal(a, b)  # scoring changes no number

    np.random.seed(3)
    expected = np.zeros(48)
    policy, parameters = twin.policy, [p for n, p in twin.policy.named_parameters() if "value" not in n]
    observations, actions = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
    advantages, old = torch.from_numpy(records.advantages), torch.from_numpy(records.log_probs)
    for _ in range(2):
        order = np.random.permutation(48)
        for batch in (order[:16], order[16:32], order[32:]):
            values, log_probs, _ = policy.evaluate_actions(observations, actions)
            direction = gradient((log_probs * advantages).mean(), parameters)
            a = advantages[batch]
            if twin.normalize_advantage:
                a = (a - a.mean()) / (a.std() + 1e-8)
            ratio = (log_probs[batch] - old[batch]).exp()
            objective = torch.min(ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a)
            clipped += int((objective < ratio * a).sum())
            expected[batch] += [float(gradient(value, parameters) @ direction) for value in objective]
            value_loss = torch.nn.functional.mse_loss(values.flatten()[batch], torch.from_numpy(records.returns[batch]))
            policy.optimizer.zero_grad()
            (-objective.mean() + 0.5 * value_loss).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            policy.optimizer.step()
    assert clipped > 0 or not settings
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_steps_that_target_kl_prevents_do_not_count():
    model = collected(target_kl=1e-9)
    np.random.seed(0)
    first = np.random.permutation(96)[:32]
    np.random.seed(0)
    _, scores = train_and_score(model)
    # the first step is taken at ratio 1; the second mini-batch shows that the policy has moved
    assert set(np.flatnonzero(scores)) <= set(first.tolist()) and np.count_nonzero(scores) > 16


def test_a_fraction_out_of_range_is_refused_wherever_it_is_set(tmp_path):
    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu")
    model.save(tmp_path / "model.zip")

    def set_it(value):
        model.drop_fraction = value

    doors = (
        lambda value: InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", drop_fraction=value),
        lambda value: InfluenceFilteredPPO.load(tmp_path / "model.zip", drop_fraction=value),
        lambda value: InfluenceCallback(value),
        set_it,
    )
    for door in doors:
        for value in (0, 1.01, -0.5, float("nan"), 1000):
            with pytest.raises(ValueError, match=rf"^drop_fraction = {value}: a fraction in \(0, 1\] is needed"):
                door(value)
        with pytest.raises(ValueError, match=r"^drop_fraction = 50: .*; did you mean 0.5\?$"):
            door(50)
    assert model.drop_fraction == 0.5
    assert InfluenceFilteredPPO.load(tmp_path / "model.zip", drop_fraction=0.25).drop_fraction == 0.25


def test_a_buffer_that_is_not_full_is_refused():
    with pytest.raises(ScoringError, match="0 of 64 steps are collected"):
        score_rollout(PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu"))


def test_nan_advantages_are_named():
    model = collected()
    model.rollout_buffer.advantages[5, 0] = np.nan
    with pytest.raises(ScoringError, match=r"advantages\[5\] is nan"):
        score_rollout(model)


def test_the_missing_extra_is_named():
    code = "import sys; sys.modules['stable_baselines3'] = None; import rl_influence.integrations.sb3"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: rl_influence.integrations.sb3 needs Stable-Baselines3: in the clone, pip install '.[sb3]'"
    )
