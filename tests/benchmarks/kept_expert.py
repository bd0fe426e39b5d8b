"""Try remedies for keeping one expert per trajectory: python -m tests.benchmarks.kept_expert RUN

Samples of a finished run with the noise and the classes of its evaluation, so that its other arms compare: one expert
drawn at t = 1 and kept; drawn anew once half-way; drawn at a temperature of 0.5; and guided by a null half of the
null condition's own posterior, where per-trajectory takes the same expert for both halves. Give a run of the tuning,
whose samples are not those that are reported.

For exact experts, posterior and integration, and without guidance, drawing anew is as exact as drawing once: the state
at t has the distribution of the mixture, whose part by expert is p(k | x_t, t, c). Guided states have another one, so
that nothing is exact there. A temperature never is, and loses what is rare: recall shows it. Both halves of guidance
share one uniform number, so that their experts differ by their posteriors alone.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

import hpcddm
from hpcddm.errors import UserError
from hpcddm.evaluation.evaluators import TrainedEvaluators
from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.kernels import kernel_distance
from hpcddm.evaluation.metrics.overlap import overlap
from hpcddm.jobs.devices import current_device
from hpcddm.runs.ranges import HELDOUT
from hpcddm.sampling.sampler import sample
from tests.benchmarks.evaluated_run import EvaluatedRun

KEPT = "per-trajectory"
Measured = tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]
"""Features of samples, and whether the classifier names them as asked."""


def remedies(steps: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return strategy and settings of every remedy, by its title; the first one is `per-trajectory` as it is."""
    return {
        "drawn once": (KEPT, {}),
        "drawn anew half-way": ("sample-1", {"route_every_steps": -(-steps // 2), "posteriors": "shared"}),
        "at temperature 0.5": ("sample-1-at-0.5", {"route_every_steps": steps, "posteriors": "shared"}),
        "null half of its own posterior": ("sample-1", {"route_every_steps": steps, "posteriors": "separate"}),
    }


def draw(evaluated: EvaluatedRun, strategy: str, changes: Mapping[str, Any]) -> Measured:
    """Draw the samples of a run with other settings of its sampler, and measure them."""
    run, device = hpcddm.open(evaluated.root, **changes), current_device()
    settings, ensemble, measured = run.experiment, run.ensemble(strategy), []
    evaluator = TrainedEvaluators(settings, evaluated.folder.unit, device)
    for start in range(0, len(evaluated.rows), settings.evaluate.batch):
        own = slice(start, start + settings.evaluate.batch)
        condition = run.condition.of_classes(evaluated.labels[own].tolist()).to(device)
        field = ensemble.field(strategy, settings.evaluate)
        x = sample(field, settings.seed, evaluated.rows[own], condition, run.space, settings.evaluate)
        measured.append(evaluator.measure(run.space.to_images(x), evaluated.labels[own], []))
    features, agreed = (np.concatenate([part[name] for part in measured]) for name in ("features", "agreed"))
    return features, agreed


def row(title: str, measured: Measured, real: Float[np.ndarray, "n d"]) -> str:
    """Return a row of the table."""
    own, named = measured
    distance = frechet_distance(*map(FeatureStatistics.from_features, (own, real)))
    recall = float(overlap(real, own).recall[0])
    return f"| {title} | {distance:.2f} | {kernel_distance(own, real):.3f} | {recall:.1%} | {named.mean():.1%} |"


def main() -> None:
    """Draw by every remedy, and without guidance, and print a row for each, beside the arms of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, help="fewer than the evaluation's")
    parser.add_argument("--guidance", type=float, action="append", help="scales; by default the run's and 1")
    options = parser.parse_args()
    evaluated = EvaluatedRun(options.run, images=options.images)
    evaluate, features, agreed = (
        evaluated.run.experiment.evaluate,
        evaluated.stored("features"),
        evaluated.stored("agreed"),
    )
    real = features[HELDOUT]
    print("| arm | FD | KID | recall | named as asked |\n| --- | --- | --- | --- | --- |")
    for arm in evaluate.strategies:
        print(row(f"{arm}, guidance {evaluate.guidance:g}", (features[arm], agreed[arm]), real))
    for scale in options.guidance or [evaluate.guidance, 1.0]:
        for title, (strategy, changes) in remedies(evaluate.steps).items():
            measured = draw(evaluated, strategy, {"guidance": scale, **changes})
            print(row(f"{title}, guidance {scale:g}", measured, real), flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
