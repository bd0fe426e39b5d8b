"""Show what keeping one expert per trajectory costs: python -m tests.benchmarks.first_decision RUN

The expert is drawn at t = 1 from what the router knows of the class alone. Printed are: how far its probabilities are
from the shares of the class's training images by cluster (calibration), how much they move with the noise, of which
they should not depend there, and how many samples the classifier names as asked, by how many training images of the
class the expert has seen: of per-trajectory, whose draws are repeated here, and of held-out images by their own
clusters. Beside per-trajectory stands top-1, whose expert is the likeliest at every step, with the same noise; the
last column sums to the whole difference of the two.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

from hpcddm.errors import UserError
from hpcddm.jobs.devices import current_device
from hpcddm.randomness import keyed
from hpcddm.runs.ranges import HELDOUT
from hpcddm.sampling.sampler import time_grid
from hpcddm.sampling.step_context import SampleStream, StepContext
from tests.benchmarks.evaluated_run import EvaluatedRun
from tests.benchmarks.tables import given_runs, print_header, print_row, run_main

KEPT, BEST_EACH_STEP = "per-trajectory", "top-1"
BIN_ENDS = (30, 100, 300, 1000, 3000, np.inf)
"""Upper ends of the bins of training images of a class in a cluster."""
OTHER_DRAWS = 0.01
"""Share of draws that may differ from those of the evaluation: another processor's last bits move a few."""


@dataclass(frozen=True)
class Decisions:
    """Router's probabilities at t = 1 for each sample, and the expert that is drawn of them."""

    posterior: Float[np.ndarray, "n k"]
    expert: Int64[np.ndarray, " n"]


def decide(evaluated: EvaluatedRun) -> Decisions:
    """Repeat the draws of the evaluation; raises `UserError` where they are not those that it counted."""
    run, device = evaluated.run, current_device()
    settings, field = run.experiment, run.ensemble(KEPT).field(KEPT, run.experiment.evaluate)
    time = time_grid(settings.evaluate.steps, settings.evaluate.shift)[0]
    probabilities, experts = [], []
    for start in range(0, len(evaluated.rows), settings.evaluate.batch):
        own = slice(start, start + settings.evaluate.batch)
        stream = SampleStream(settings.seed, evaluated.rows[own])
        x = keyed.gaussian(settings.seed, "initial", stream.indices, run.space.shape).to(device)
        t = torch.full((len(x),), time, device=device)
        condition = run.condition.of_classes(evaluated.labels[own].tolist()).to(device)
        with torch.no_grad():
            field(x, t, condition, StepContext(stream, 0, time))
            probabilities.append(field.posterior(x, t, condition).double().cpu().numpy())
        experts.append(field.last_weights[: len(x)].argmax(1).cpu().numpy())
    decisions = Decisions(np.concatenate(probabilities), np.concatenate(experts))
    counted = evaluated.usage(KEPT)[0]
    moved = 0.5 * np.abs(np.bincount(decisions.expert, minlength=len(counted)) - counted).sum() / len(evaluated.rows)
    if moved > OTHER_DRAWS:
        raise UserError(f"{evaluated.root}: {moved:.1%} of the draws differ from those of the evaluation")
    return decisions


def show_calibration(decisions: Decisions, labels: Int64[np.ndarray, " n"], counts: Int64[np.ndarray, "c k"]) -> None:
    """Print by class how far the router's probabilities are from the shares of the training images."""
    titles = "class", "total variation from the data's shares", "largest sd over noise"
    print_header(*titles, "rare clusters drawn", "in the data")
    for label in np.unique(labels):
        own, shares = decisions.posterior[labels == label], counts[label] / counts[label].sum()
        distance, is_rare = 0.5 * np.abs(own.mean(0) - shares).sum(), counts[label] < BIN_ENDS[2]
        drawn = is_rare[decisions.expert[labels == label]].mean()
        shown = f"{distance:.3f}", f"{own.std(0).max():.4f}", f"{drawn:.1%}", f"{shares[is_rare].sum():.1%}"
        print_row(label, *shown)


def show_by_frequency(named: dict[str, Bool[np.ndarray, " n"]], seen: dict[str, Int64[np.ndarray, " n"]]) -> None:
    """Print agreement by the number of training images of the class that the sample's expert has seen."""
    print()
    titles = "training images of the class", "arm", "n", "named as asked", "less top-1's there (SE)"
    print_header(*titles, "share of the whole")
    excess = {arm: named[arm].astype(float) - named[BEST_EACH_STEP] for arm in seen}
    for low, high in zip((0, *BIN_ENDS), (*BIN_ENDS, None), strict=False):
        for arm, own in seen.items():
            there = np.ones(len(own), bool) if high is None else (own >= low) & (own < high)
            if there.any():
                title = "all" if high is None else f"{low:g} to {high:g}" if high < np.inf else f"{low:g} and more"
                less, error = excess[arm][there], excess[arm][there].std() / np.sqrt(there.sum())
                shares = f"{named[arm][there].mean():.1%}", f"{less.mean():+.1%} ({error:.1%})"
                print_row(title, arm, f"{there.sum():,}", *shares, f"{less.sum() / len(own):+.2%}")


def main() -> None:
    """Print both tables of a finished run, which draws per-trajectory and top-1."""
    (root,) = given_runs(__doc__)
    evaluated = EvaluatedRun(root, (KEPT, BEST_EACH_STEP))
    labels, counts, decisions = evaluated.labels, evaluated.training_images, decide(evaluated)
    scale = evaluated.run.experiment.evaluate.guidance
    print(f"guidance {scale:g}; clusters with < {BIN_ENDS[2]} images of a class are rare")
    show_calibration(decisions, labels, counts)
    seen = {KEPT: counts[labels, decisions.expert], HELDOUT: counts[labels, evaluated.clusters]}
    show_by_frequency(evaluated.stored("agreed"), seen)


if __name__ == "__main__":
    run_main(main)
