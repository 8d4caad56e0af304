"""The rounds of a run: collect -> score -> select -> update. The only training loop.

Sampling, scoring, selection, updates and evaluation draw from separate streams: leaving one of them out changes nothing
in the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rl_influence import seeding
from rl_influence.attribution import ScoringError
from rl_influence.config import RunSpec
from rl_influence.environments import EnvironmentFault, make_sampler
from rl_influence.evaluation.returns import exact_model
from rl_influence.evaluation.true_advantages import check_observations, exact_record_advantages
from rl_influence.ppo.learner import Learner, Step
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import TrainingError
from rl_influence.ppo.rollout import collect
from rl_influence.runs import snapshots
from rl_influence.runs.columns import TIMING_COLUMNS
from rl_influence.runs.diagnostics import Watch
from rl_influence.runs.displacement import matching_scale
from rl_influence.selection import Selection, needs_scores, needs_true_advantages, score, score_again, select


class Trainer:
    """The state of a run and its rounds, without any files.

    Attributes:
        round: rounds trained so far.
        learner: policy and optimiser.
        records, scores, selection, diagnostics: of the latest round.
        mdp: exact model of the environment, if the method needs true advantages.
        step_scale: factor of the learning rate in the latest round, see `displacement`.
    """

    def __init__(self, spec: RunSpec):
        self.spec, self.round = spec, 0
        self.sampler = make_sampler(spec.environment, seeding.integer(seeding.seed_sequence(spec.seed, "environment")))
        policy = make_policy(
            spec.environment.network,
            self.sampler.observation_space,
            self.sampler.action_space,
            seeding.torch_generator(spec.seed, "weights"),
        )
        self.learner = Learner(policy, spec.ppo)
        self._watch = Watch(self.learner)
        self.mdp = None
        if needs_true_advantages(spec):
            self.mdp = exact_model(spec.environment)
            check_observations(self.mdp)
        self.records = self.scores = self.selection = self.diagnostics = None
        self.step_scale = 1.0

    @property
    def policy(self) -> torch.nn.Module:
        return self.learner.policy

    def train_round(self, clock: Clock) -> dict[str, int]:
        """Collects a buffer, chooses its records, trains on them.

        Returns:
            The round's columns of the curve.

        Raises:
            TrainingError: at the first value that is not finite, what cannot be recorded, or a policy that cannot be
                scored; names the round.
        """
        spec, watch, k = self.spec, self._watch, self.round
        episode_actions = self.episode_actions() if self.mdp else None

        def stream(name: str) -> np.random.Generator:
            return seeding.generator(spec.seed, name, k)

        try:
            with clock("sampling_s"):
                self.records = collect(self.sampler, self.policy, spec.ppo.n_steps, stream("actions"), spec.ppo)
            watch.begin(self.records)
            with clock("influence_s"):
                self.scores = true = None
                if needs_true_advantages(spec):
                    true = exact_record_advantages(
                        self.mdp, self.policy, self.records, episode_actions, gamma=spec.ppo.gamma
                    )
                if needs_scores(spec):
                    self.scores = score(self.records, self.policy, spec.ppo, stream("scoring"))
                    if not np.isfinite(self.scores).all():
                        raise TrainingError("influence scores are not finite")
                self.selection = select(
                    spec,
                    self.records,
                    self.scores,
                    stream("selection"),
                    true,
                    lambda: score_again(self.records, self.policy, spec.ppo, stream("scoring")),
                )
            with clock("optimise_s"):
                matched = self._match_displacement()
                for step in self._steps(self.selection, self.step_scale):
                    watch.note(step)
                if not np.isfinite(self.learner.parameters.vector).all():
                    raise TrainingError(f"update {watch.updates}: parameters are not finite")
        except (TrainingError, EnvironmentFault, ScoringError) as error:
            raise TrainingError(f"round {k + 1}, {error}") from None
        self.round += 1
        self.diagnostics = watch.row(self.sampler.pop_statistics(), self.scores, matched)
        return {"records_kept": len(self.selection.kept), "updates": watch.updates}

    def _steps(self, selection: Selection, scale: float) -> Iterator[Step]:
        """The round's optimisation steps on a selection, in the round's order, at `scale` times the learning rate."""
        spec = self.spec
        epochs = selection.epochs(spec.ppo.n_epochs, seeding.generator(spec.seed, "minibatches", self.round))
        self.learner.optimizer.learning_rate = spec.ppo.learning_rate * scale
        return self.learner.steps(self.records, epochs, selection.weights)

    def _match_displacement(self) -> dict[str, float]:
        """Sets `step_scale`; where the method asks for another one's displacement, also says what it was."""
        self.step_scale = 1.0
        other = self.spec.selection.matched()
        if other is None:
            return {}
        spec = self.spec.model_copy(update={"selection": other})
        generator = seeding.generator(self.spec.seed, "selection", self.round)
        target = self._displacement(select(spec, self.records, self.scores, generator), 1.0)
        self.step_scale = matching_scale(target, lambda scale: self._displacement(self.selection, scale))
        return {"step_scale": self.step_scale, "displacement_target": target}

    def _displacement(self, selection: Selection, scale: float) -> float:
        """How far the round would move the actor; policy and optimiser are as before afterwards."""
        learner = self.learner
        parameters = learner.parameters.vector.copy()
        optimizer = {name: value.copy() for name, value in learner.optimizer.state().items()}
        try:
            for _ in self._steps(selection, scale):
                pass
            return self._watch.displacements()["displacement"]
        except TrainingError:
            return math.inf
        finally:
            learner.parameters.vector[:] = parameters
            learner.optimizer.restore(optimizer)

    def learner_now(self) -> snapshots.SavedLearner:
        """A copy of policy and optimiser."""
        learner, sampler = self.learner, self.sampler
        optimizer = {name: value.copy() for name, value in learner.optimizer.state().items()}
        spaces = sampler.observation_space, sampler.action_space
        return snapshots.SavedLearner(self.spec, self.round, learner.parameters.vector.copy(), optimizer, *spaces)

    def episode_actions(self) -> np.ndarray:
        """Actions of the current episode so far."""
        return self.sampler.state()["actions"]

    def state(self) -> dict[str, Any]:
        """All that the following rounds depend on."""
        sampler = {f"sampler/{name}": value for name, value in self.sampler.state().items()}
        optimizer = {f"optimizer/{name}": value.copy() for name, value in self.learner.optimizer.state().items()}
        return {"round": self.round, "parameters": self.learner.parameters.vector.copy()} | optimizer | sampler

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""

        def part(prefix: str) -> dict[str, Any]:
            return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

        self.round = state["round"]
        self.learner.parameters.vector[:] = state["parameters"]
        self.learner.optimizer.restore(part("optimizer/"))
        self.sampler.restore(part("sampler/"))


class Clock:
    """CPU seconds of this process by phase: other jobs on the machine do not show in them."""

    def __init__(self):
        self.seconds = dict.fromkeys(TIMING_COLUMNS[1:], 0.0)

    def __call__(self, phase: str) -> Clock:
        self._phase = phase
        return self

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *_) -> None:
        self.seconds[self._phase] += time.process_time() - self._start
