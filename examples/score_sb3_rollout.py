"""Which records of a Stable-Baselines3 rollout help PPO, and which hurt it?

    pip install 'rl-influence[sb3]'
    python examples/score_sb3_rollout.py
"""

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from rl_influence.integrations.sb3 import score_rollout


class KeepScores(BaseCallback):
    """Scores each rollout after it is collected and before it trains."""

    def _on_rollout_end(self) -> None:
        self.records, self.scores = score_rollout(self.model)

    def _on_step(self) -> bool:
        return True


def main() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=512, seed=0, device="cpu")
    callback = KeepScores()
    model.learn(8 * 512, callback=callback)
    records, scores = callback.records, callback.scores

    order = np.argsort(-scores)
    print(f"last rollout: {len(records)} records, {(scores < 0).mean():.0%} of them harmful to f_return")
    for title, chosen in (("most helpful", order[:5]), ("most harmful", order[:-6:-1])):
        print(f"\n{title}\nrecord  position velocity    angle  angular  action  advantage  influence")
        for i in chosen:
            state = " ".join(f"{x:8.3f}" for x in records.observations[i])
            print(f"{i:6d}  {state}  {records.actions[i]:6d}  {records.advantages[i]:9.2f}  {scores[i]:9.3g}")


if __name__ == "__main__":
    main()
