"""Kernel distances of all arms of several runs by one pretrained encoder: python -m tests.benchmarks.one_ruler RUN ...

Runs train their extractors on their own images, so FD and KID of one run say nothing of another's. Here the encoder of
the first run's features, such as EfficientNet-Lite0, looks at the stored samples of all, beside the held-out images at
the same places; the intervals come from halves of the samples, drawn 20 times.
"""

import numpy as np

import hpcddm
from hpcddm.config import variants
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.evaluation.metrics.kernels import kernel_distance
from hpcddm.runs.ranges import HELDOUT
from tests.benchmarks.evaluated_run import EvaluatedRun
from tests.benchmarks.tables import given_runs, print_header, print_row

HALVES = 20


def half_interval(samples: np.ndarray, real: np.ndarray, seed: int = 0) -> float:
    """Estimate half the 95 % interval: halves of N samples vary about these as N samples do about all."""
    draw = np.random.default_rng(seed)
    halves = [draw.permutation(len(samples))[: len(samples) // 2] for _ in range(HALVES)]
    return 2 * float(np.std([kernel_distance(samples[half], real) for half in halves], ddof=1))


def main() -> None:
    """Print a row for every arm of every run."""
    roots = given_runs(__doc__)
    settings = hpcddm.open(roots[0]).experiment.encode.encoder
    encoder = variants.create(ImageEncoder, settings)
    print_header("run", "arm", "images", f"KID by {settings.name}")
    for root in roots:
        evaluated = EvaluatedRun(root)
        features = {arm: encoder.encode(images) for arm, images in evaluated.stored("images").items()}
        real = encoder.encode(evaluated.run.data(HELDOUT).images(evaluated.numbers))
        for arm, samples in features.items():
            distance, interval = kernel_distance(samples, real), half_interval(samples, real)
            print_row(root.name, arm, len(samples), f"{distance:.4f} +- {interval:.4f}")


if __name__ == "__main__":
    main()
