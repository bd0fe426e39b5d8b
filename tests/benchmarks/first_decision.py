"""Tell what keeping one expert per trajectory costs: python -m tests.benchmarks.first_decision RUN

The expert is drawn at t = 1 from what the router knows of the class alone. Printed are: how far its probabilities are
from the shares of the class's training images by cluster (calibration), how much they move with the noise, of which
they know nothing by right, and how many samples the classifier names as asked, by how many training images of the
class the expert has seen: of per-trajectory, whose draws are repeated here, of the oracle and of held-out images
(heldout) by their own clusters, and of top-1 at the same places.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

import hpcddm
from hpcddm.api import Run
from hpcddm.data import draws
from hpcddm.data.catalog import open_catalog
from hpcddm.data.samples import CLUSTER, evaluation_numbers
from hpcddm.devices import current_device
from hpcddm.ensemble.step_context import SampleStream, StepContext
from hpcddm.ensemble.strategies.base import draw
from hpcddm.ensemble.velocity import available_experts, routed_posterior
from hpcddm.pipeline.evaluate import REFERENCE
from hpcddm.pipeline.ranges import HELDOUT, TRAIN
from hpcddm.rundir.layout import RunDir
from tests.benchmarks.budget import stored

KEPT, ORACLE, ANEW = "per-trajectory", "oracle", "top-1"
FEWER = (30, 100, 300, 1000, 3000, np.inf)
"""Upper ends of the bins of training images of a class in a cluster."""


@dataclass(frozen=True)
class Decisions:
    """What the router says at t = 1 of each sample, and the expert that is drawn of it."""

    posterior: Float[np.ndarray, "n k"]
    expert: Int64[np.ndarray, " n"]


def decide(run: Run, labels: Int64[np.ndarray, " n"], rows: range) -> Decisions:
    """Repeat the draws of the evaluation: noise and uniform numbers are functions of seed and place."""
    ensemble, device = run.ensemble(KEPT), current_device()
    assert ensemble.router is not None
    posterior_of = routed_posterior(ensemble.router, available_experts(ensemble.experts))
    probabilities, experts = [], []
    batch = run.settings.evaluate.batch
    for start in range(0, len(rows), batch):
        own = rows[start : start + batch]
        x = draws.gaussian(run.settings.seed, "initial", own, run.space.shape).to(device)
        condition = run.condition.of_classes(labels[start : start + batch].tolist()).to(device)
        with torch.no_grad():
            posterior = posterior_of(x, torch.ones(len(own), device=device), condition)
        uniform = StepContext(SampleStream(run.settings.seed, own), 0, 1.0).uniform(0)
        probabilities.append(posterior.double().cpu().numpy())
        experts.append(draw(posterior, uniform).argmax(1).cpu().numpy())
    return Decisions(np.concatenate(probabilities), np.concatenate(experts))


def training_images(run: Run) -> Int64[np.ndarray, "c k"]:
    """Count the training images of every class in every cluster."""
    reader = run.data(TRAIN)
    labels, clusters = (np.asarray(reader.column(name, range(len(reader)))) for name in ("label", CLUSTER))
    counts = np.zeros((len(run.class_names), run.settings.cluster.experts), dtype=np.int64)
    np.add.at(counts, (labels.astype(np.int64), clusters.astype(np.int64)), 1)
    return counts


def show_calibration(decisions: Decisions, labels: Int64[np.ndarray, " n"], counts: Int64[np.ndarray, "c k"]) -> None:
    """Print by class how far the router's probabilities are from the shares of the training images."""
    print("| class | total variation from the data's shares | sd over noise | drawn where the class has < 30 images |")
    print("| --- | --- | --- | --- |")
    rare = counts[labels, decisions.expert] < FEWER[0]
    for label in np.unique(labels):
        own, shares = decisions.posterior[labels == label], counts[label] / counts[label].sum()
        distance = 0.5 * np.abs(own.mean(0) - shares).sum()
        print(f"| {label} | {distance:.3f} | {own.std(0).max():.4f} | {rare[labels == label].mean():.1%} |")


def show_by_frequency(named: dict[str, Bool[np.ndarray, " n"]], seen: dict[str, Int64[np.ndarray, " n"]]) -> None:
    """Print agreement by the number of training images of the class that the sample's expert has seen."""
    print("\n| training images of the class | arm | samples | named as asked | of top-1 at the same places |")
    print("| --- | --- | --- | --- | --- |")
    for low, high in zip((0, *FEWER), FEWER, strict=False):
        for arm, own in seen.items():
            there = (own >= low) & (own < high)
            if there.any():
                title = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} and more"
                print(
                    f"| {title} | {arm} | {there.mean():.1%} | {named[arm][there].mean():.1%} | "
                    f"{named[ANEW][there].mean():.1%} |"
                )


def main() -> None:
    """Print both tables of a finished run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    root = parser.parse_args().run
    run = hpcddm.open(root)
    evaluate = run.settings.evaluate
    rows = range(evaluate.first, evaluate.first + evaluate.images)
    reader = run.data(HELDOUT)
    numbers = evaluation_numbers(open_catalog(RunDir(root), HELDOUT), run.settings, run.class_names)[rows]
    labels, clusters = (np.asarray(reader.column(name, numbers)).astype(np.int64) for name in ("label", CLUSTER))
    counts, named, decisions = training_images(run), stored(RunDir(root), "agreed"), decide(run, labels, rows)
    show_calibration(decisions, labels, counts)
    of_own_cluster = counts[labels, clusters]
    seen = {KEPT: counts[labels, decisions.expert], ORACLE: of_own_cluster, REFERENCE: of_own_cluster}
    show_by_frequency(named, {arm: own for arm, own in seen.items() if arm in named})


if __name__ == "__main__":
    main()
