"""Stage reference_statistics: mean and covariance of the held-out images in the features of one extractor."""

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import STATISTICS
from hpcddm.runs.ranges import HELDOUT
from hpcddm.stages.evaluation.measure_job import read_measured


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write `mu` (D,) and the unbiased `sigma` (D, D), float64, by the names that pytorch-fid reads, and the count."""
    statistics = read_measured(unit, HELDOUT).statistics
    with atomic.replacing(unit.folder / STATISTICS, durable=False) as staged, open(staged, "wb") as file:
        np.savez(file, mu=statistics.mean, sigma=statistics.covariance(), images=statistics.count)
    return Result([STATISTICS], {"images": statistics.count, "features": len(statistics.mean)})
