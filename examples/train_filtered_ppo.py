"""CartPole with Stable-Baselines3's PPO, and with the records of most negative influence left out of each round (IIF).

In the clone:
    pip install '.[sb3,figures]'
    python examples/train_filtered_ppo.py

Two seeds show how it is done; whether the filter is better takes many more (see the README).
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from rl_influence import InfluenceFilteredPPO

SETTINGS = {"n_steps": 256, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3, "device": "cpu"}


class Curve(BaseCallback):
    """Environment steps and mean return of the latest episodes, after each rollout."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        self.rows.append((self.num_timesteps, np.mean(returns[-20:]) if returns else np.nan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000, help="of the environment, in each run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output" / "train_filtered_ppo.png")
    options = parser.parse_args()
    torch.set_num_threads(1)  # of networks this small several only wait for one another

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    algorithms = {"PPO": (PPO, {}), "IIF, p = 50 %": (InfluenceFilteredPPO, {"drop_fraction": 0.5})}
    for number, (label, (algorithm, arguments)) in enumerate(algorithms.items()):
        for seed in range(options.seeds):
            envs = make_vec_env("CartPole-v1", 4, seed=seed)
            model = algorithm("MlpPolicy", envs, seed=seed, **SETTINGS, **arguments)
            curve = Curve()
            model.learn(options.steps, callback=curve)
            steps, returns = np.array(curve.rows).T
            axes.plot(steps, returns, color=f"C{number}", label=label if seed == 0 else None)
            kept = "" if algorithm is PPO else f", {len(model.kept)} of 1024 records trained in the last round"
            print(f"{label}, seed {seed}: return {returns[-1]:.0f} after {steps[-1]:.0f} steps{kept}", flush=True)
    axes.set(xlabel="environment steps", ylabel="return of the last 20 episodes", title="CartPole, one line per seed")
    axes.legend()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=120)
    print(options.output)


if __name__ == "__main__":
    main()
