"""Which records of a Stable-Baselines3 rollout help PPO, and which hurt it?

In the clone:
    pip install '.[sb3,figures]'
    python examples/score_sb3_rollout.py
"""

import argparse
from pathlib import Path

import torch
from stable_baselines3 import PPO

from rl_influence import InfluenceCallback, plot_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output" / "score_sb3_rollout.png")
    options = parser.parse_args()
    torch.set_num_threads(1)  # of networks this small several only wait for one another
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=512, seed=0, device="cpu")
    callback = InfluenceCallback()  # scores each rollout after it is collected and before it trains
    model.learn(8 * 512, callback=callback)
    records, scores = callback.records, callback.scores

    print(f"last rollout: {len(records)} records, {(scores < 0).mean():.0%} of them harmful to f_return")
    table = records.to_frame(scores).drop(columns=["environment", "episode_start", "value", "return", "log_prob"])
    table.columns = [name.replace("observation", "x") for name in table.columns]
    table = table.sort_values("influence", ascending=False)
    print(f"\nmost helpful\n{table.head(5).round(3)}\n\nmost harmful\n{table.tail(5).iloc[::-1].round(3)}\n")

    options.output.parent.mkdir(parents=True, exist_ok=True)
    plot_scores(records, scores).savefig(options.output, dpi=120)
    print(options.output)


if __name__ == "__main__":
    main()
