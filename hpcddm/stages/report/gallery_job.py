"""Samples that the report shows: equal noise and conditions in every arm, and what the ensemble decides on the way."""

from functools import partial
from typing import Any

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import parse_strategy
from hpcddm.data import evaluation_set
from hpcddm.jobs.unit import Unit
from hpcddm.sampling.decisions import DecisionRecorder, Decisions
from hpcddm.sampling.diagnostics import diagnose
from hpcddm.sampling.draw_images import UnitSampler
from hpcddm.sampling.sampler import sample
from hpcddm.sampling.velocity import EnsembleVelocity, VelocityField
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.stages.progress import advance
from hpcddm.stages.report.report import GALLERY_ESTIMATES, GALLERY_IMAGES


def gallery_samples(experiment: Experiment) -> range:
    """Return the numbers of the samples that the gallery shows: the first ones of the evaluation."""
    return range(experiment.evaluate.first_sample, experiment.evaluate.first_sample + GALLERY_IMAGES)


class SharedSamples:
    """Samples of the gallery and of the diagnostics: the same noise and classes in every arm."""

    def __init__(self, experiment: Experiment, unit: Unit):
        self.experiment, self.unit = experiment, unit
        rows, drawing = gallery_samples(experiment), UnitSampler(experiment, unit)
        self.ensemble, self.space = drawing.ensemble, drawing.space
        shown = evaluation_set.condition_samples(unit, experiment)[rows]
        condition, self.clusters = drawing.conditions_and_clusters(shown)
        self.drawn_from = experiment.seed, rows, condition, self.space, experiment.evaluate
        self.arms = arm_names(experiment)
        self.alone = [f"expert-{index}" for index, expert in enumerate(self.ensemble.experts) if expert is not None]
        self.done = 0
        self._recorder: DecisionRecorder | None = None

    def galleries(self) -> dict[str, np.ndarray]:
        """Draw the gallery of every arm and of every expert alone, all from the same noise."""
        galleries = {}
        for arm in (*self.arms, *self.alone):
            self._report_progress()
            field: VelocityField = self._field(arm)
            if arm == self._routed_arm():
                field = self._recorder = DecisionRecorder(self._field(arm), self.experiment.evaluate, GALLERY_ESTIMATES)
            galleries[arm] = self.space.to_images(sample(field, *self.drawn_from))
        return galleries

    def decisions(self, galleries: dict[str, np.ndarray]) -> Decisions | None:
        """Return the decisions about the gallery's samples; None if no strategy asks the router."""
        if self._recorder is None:
            return None
        alone = {int(arm.removeprefix("expert-")): galleries[arm] for arm in self.alone}
        return self._recorder.decisions(self.space, galleries[self._recorder.arm], alone)

    def _routed_arm(self) -> str | None:
        """Return the first arm whose strategy asks the router."""
        strategies = map(parse_strategy, self.experiment.evaluate.strategies)
        return next((strategy.label for strategy in strategies if strategy.needs_router), None)

    def diagnostics(self) -> dict[str, dict[str, Any]]:
        """Measure the router's entropy, the experts' disagreement and the step-refinement gap of every arm."""
        by_arm = {}
        for arm in self.arms:
            self._report_progress()
            by_arm[arm] = diagnose(partial(self._field, arm), *self.drawn_from)
        return by_arm

    def _field(self, arm: str) -> EnsembleVelocity:
        return self.ensemble.field(arm, self.experiment.evaluate, self.clusters)

    def _report_progress(self) -> None:
        advance(self.unit, self.done, 2 * len(self.arms) + len(self.alone))
        self.done += 1
