"""Try remedies for keeping one expert per trajectory: python -m tests.benchmarks.kept_expert RUN

Samples of a finished run with the noise and the classes of its evaluation, so that its other arms compare: one expert
drawn at t = 1 and kept, drawn anew once half-way, drawn at a temperature of 0.5, and guided by a null half whose
expert is drawn by itself. Drawing anew at any time is as exact as drawing once: the state at t has the distribution
of the mixture, whose part by expert is p(k | x_t, t, c). A temperature is not, and loses what is rare.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

import hpcddm
from hpcddm.api import Run
from hpcddm.data.catalog import open_catalog
from hpcddm.data.samples import evaluation_numbers
from hpcddm.devices import current_device
from hpcddm.ensemble.sampler import sample
from hpcddm.metrics.fd import frechet_distance
from hpcddm.metrics.kid import kernel_distance
from hpcddm.metrics.statistics import Statistics
from hpcddm.networks import loading, measuring
from hpcddm.pipeline.evaluate import REFERENCE
from hpcddm.pipeline.measuring import measuring_keys
from hpcddm.pipeline.ranges import HELDOUT
from hpcddm.rundir.layout import RunDir
from tests.benchmarks.budget import stored

Features = Float[np.ndarray, "n d"]


def remedies(steps: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return strategy and settings of every remedy, by its title; the first one is `per-trajectory` as it is."""
    return {
        "drawn once": ("per-trajectory", {}),
        "drawn anew half-way": ("sample-1", {"route_every": -(-steps // 2), "posteriors": "shared"}),
        "at temperature 0.5": ("sample-1-at-0.5", {"route_every": steps, "posteriors": "shared"}),
        "null half of its own draw": ("sample-1", {"route_every": steps, "posteriors": "separate"}),
    }


def draw(
    run: Run, arm: str, labels: Int64[np.ndarray, " n"], rows: range, folder: RunDir
) -> tuple[Features, Bool[np.ndarray, " n"]]:
    """Draw samples, and return their features and whether the classifier names them as asked."""
    evaluate, ensemble, device = run.settings.evaluate, run.ensemble(arm), current_device()
    networks = [
        loading.load_measuring_network(run.settings, key, folder.unit, device) for key in measuring_keys(run.settings)
    ]
    extractor, classifier = networks
    pixels, features, named = measuring.pixels(run.settings), [], []
    for start in range(0, len(rows), evaluate.batch):
        own, asked = rows[start : start + evaluate.batch], labels[start : start + evaluate.batch]
        condition = run.condition.of_classes(asked.tolist()).to(device)
        x = sample(ensemble.field(arm, evaluate), run.settings.seed, own, condition, run.space, evaluate)
        images = pixels.to_model(torch.from_numpy(run.space.to_images(x)).to(device))
        with torch.no_grad():
            features.append(extractor.features(images).cpu().numpy())
            named.append(classifier(images).argmax(1).cpu().numpy() == asked)
    return np.concatenate(features), np.concatenate(named)


def row(
    title: str, own: Float[np.ndarray, "n d"], named: Bool[np.ndarray, " n"], real: Float[np.ndarray, "n d"]
) -> str:
    """Return a row of the table."""
    distance = frechet_distance(*map(Statistics.from_features, (own, real)))
    return f"| {title} | {distance:.2f} | {kernel_distance(own, real):.3f} | {named.mean():.1%} |"


def main() -> None:
    """Draw by every remedy and print a row for each, beside the arms of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, help="fewer than the evaluation's")
    options = parser.parse_args()
    folder, evaluated = RunDir(options.run), hpcddm.open(options.run)
    settings = evaluated.settings
    first, count = settings.evaluate.first, options.images or settings.evaluate.images
    rows = range(first, first + count)
    numbers = evaluation_numbers(open_catalog(folder, HELDOUT), settings, evaluated.class_names)[rows]
    labels = np.asarray(evaluated.data(HELDOUT).column("label", numbers)).astype(np.int64)
    features, agreed = (stored(folder, what) for what in ("features", "agreed"))
    print("| arm | FD | KID | named as asked |\n| --- | --- | --- | --- |")
    for arm in settings.evaluate.strategies:
        print(row(arm, features[arm][:count], agreed[arm][:count], features[REFERENCE][:count]))
    for title, (arm, values) in remedies(settings.evaluate.steps).items():
        drawn = draw(hpcddm.open(options.run, **values), arm, labels, rows, folder)
        print(row(title, *drawn, features[REFERENCE][:count]), flush=True)


if __name__ == "__main__":
    main()
