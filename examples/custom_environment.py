"""An environment of your own, eight copies of it, normalised observations and rewards, and a filtered PPO.

In the clone:
    pip install '.[sb3,figures]'
    python examples/custom_environment.py
"""

import argparse
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from rl_influence import InfluenceCallback

COPIES, STEPS = 8, 64  # 512 records per round


class Docking(gym.Env):
    """A cart with a thruster is to come to rest at 0 within 60 steps. Observation: position and velocity."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform([-2, -0.5], [2, 0.5]), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        position, velocity = self.state
        velocity = 0.98 * velocity + 0.1 * float(action[0]) + 0.01 * self.np_random.standard_normal()
        self.state, self.time = np.array([position + velocity, velocity]), self.time + 1
        far = abs(self.state[0]) > 4
        reward = -float(self.state @ [[1, 0], [0, 4]] @ self.state) / 10 - (20 if far else 0)
        return self.state.astype(np.float32), reward, far, self.time >= 60, {}


class Curve(BaseCallback):
    """Steps, mean return of the latest episodes and share of harmful records, after each rollout."""

    def __init__(self, influence: InfluenceCallback):
        super().__init__()
        self.influence, self.rows = influence, []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        self.rows.append((self.num_timesteps, np.mean(returns[-50:]), (self.influence.scores < 0).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="of all copies together")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output" / "custom_environment.png")
    options = parser.parse_args()
    torch.set_num_threads(1)  # of networks this small several only wait for one another

    environments = VecNormalize(VecMonitor(DummyVecEnv([Docking] * COPIES)))  # the monitor sees returns as they are
    model = PPO("MlpPolicy", environments, n_steps=STEPS, batch_size=64, learning_rate=1e-3, seed=0, device="cpu")
    influence = InfluenceCallback(drop_fraction=0.25)
    curve = Curve(influence)
    model.learn(options.steps, callback=CallbackList([influence, curve]))
    print(f"last rollout: {len(influence.kept)} of {len(influence.records)} records trained, of {COPIES} environments")

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6, 5), sharex=True, layout="constrained")
    steps, returns, negative = np.array(curve.rows).T
    top.plot(steps, returns)
    top.set(ylabel="return of 50 episodes", title="Docking with IIF, p = 25 %")
    bottom.plot(steps, 100 * negative)
    bottom.set(xlabel="environment steps", ylabel="harmful records (%)", ylim=(0, 100))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=120)
    print(options.output)


if __name__ == "__main__":
    main()
