"""Times of metrics at the sizes of published evaluations: python -m tests.benchmarks.metrics [NAME ...]

The features are random and rectified, as those of networks are. 15 minutes on two cores, and 8 GB of memory.
"""

import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.evaluation.metrics.overlap import RealBalls
from tests.benchmarks.tables import parser_of, print_header, print_row

DIMENSION = 2048
METRICS = {metric.key: metric for metric in all_metrics()}
RNG = np.random.default_rng(0)


def main() -> None:
    """Print a table of the chosen figures, by default all."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; default: all")
    names = parser.parse_args().names
    print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}\n")
    print_header("figure", "seconds", "of processors")
    for name in names or FIGURES:
        FIGURES[name]()


def published() -> None:
    """FD and KID of 50,000 images, where the reference's statistics are there."""
    inputs = inputs_of(50_000)
    timed("statistics of 50,000 real images", lambda: inputs.real.gaussian)
    timed("FD of 50,000 images", lambda: METRICS["fd"].compute(inputs))
    timed("KID, 100 subsets of 1,000, with its interval", lambda: METRICS["kid_subsets"].compute(inputs))
    timed("KID of 50,000 images, ten tenths, with its interval", lambda: METRICS["kid"].compute(inputs))
    timed("interval of FD", lambda: METRICS["fd"].left_out(inputs))


def neighbours() -> None:
    """Precision, recall, density and coverage of 10,000 images with their intervals."""
    inputs = inputs_of(10_000)
    several = ("precision", "recall", "density", "coverage")
    timed(f"{', '.join(several)} with intervals", lambda: [METRICS[key].left_out(inputs) for key in several])
    timed("authenticity of 10,000 images with its interval", lambda: METRICS["auth_pct"].left_out(inputs))
    timed("MIND of 10,000 images with its interval", lambda: METRICS["mind"].left_out(inputs))


def ranges() -> None:
    """Neighbours of one of 50 ranges of 50,000 images, and the most memory that this takes."""
    samples, real = (features(50_000, shift) for shift in (0.1, 0))
    balls = timed("balls around 1,000 of 50,000 real images", lambda: RealBalls.around(real, slice(0, 1000)))
    timed("their overlap with 50,000 samples of an arm", lambda: balls.overlap(samples))
    print(f"\n{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB at most")


def infinity() -> None:
    """FD infinity of 50,000 images with its interval."""
    inputs = inputs_of(50_000)
    timed("FD infinity of 50,000 images with its interval", lambda: METRICS["fd_infinity"].left_out(inputs))


def inputs_of(count: int) -> MetricInputs:
    samples, real, train = (ImageSet(features=features(count, shift)) for shift in (0.1, 0, 0))
    return MetricInputs(samples, real, train)


def features(count: int, shift: float) -> np.ndarray:
    return np.maximum(RNG.standard_normal((count, DIMENSION), dtype=np.float32) + np.float32(shift), 0)


def timed(name: str, make: Callable[[], Any]) -> Any:
    """Print how long something takes to make."""
    start, used = time.perf_counter(), time.process_time()
    made = make()
    print_row(name, f"{time.perf_counter() - start:.1f}", f"{time.process_time() - used:.1f}")
    return made


FIGURES = {figure.__name__: figure for figure in (published, neighbours, ranges, infinity)}

if __name__ == "__main__":
    main()
