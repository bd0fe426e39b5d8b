"""Stage measure: a range of samples of all arms, measured by one evaluator."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.evaluation.evaluators import Measurements
from hpcddm.evaluation.metrics.metric_inputs import ImageSet
from hpcddm.files import hdf5
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import EVALUATION, MEASUREMENTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from hpcddm.stages.evaluation.measure import sampled_unit
from hpcddm.stages.evaluation.measure_real_job import (
    MEASURED_AT_ONCE,
    conditions,
    create_evaluator,
    evaluator_work,
    write,
)
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import Work, Workload


def run(experiment: Experiment, unit: Unit) -> Result:
    """Measure the samples [start, stop) of every arm."""
    evaluator, (start, stop) = create_evaluator(experiment, unit), draw_range(unit.key)
    reader, numbers = run_samples.open_reader(unit, HELDOUT), evaluation_set.condition_samples(unit, experiment)
    arms, measured = arm_names(experiment), defaultdict[str, list[Measurements]](list)
    with hdf5.open_checked(unit.input(sampled_unit(unit.key), EVALUATION)) as file:
        for rows in split_into_blocks(range(start, stop), MEASURED_AT_ONCE):
            labels, captions = conditions(experiment, reader, numbers[rows.start : rows.stop])
            for number, arm in enumerate(arms):
                advance(unit, (rows.start - start) * len(arms) + number * len(rows), len(arms) * (stop - start))
                images = file[arm]["images"][rows.start - start : rows.stop - start]
                measured[arm].append(evaluator.measure(images, labels, captions))
    return Result([MEASUREMENTS], {"images": stop - start, "values": write(unit.folder / MEASUREMENTS, measured)})


def work(workload: Workload, key: str) -> list[Work]:
    """List the evaluator's run on the samples of all arms."""
    start, stop = draw_range(key)
    return evaluator_work(workload, key, len(arm_names(workload.experiment)) * (stop - start))


def read_measured(unit: Unit, group: str) -> ImageSet:
    """Read what an evaluator measured of an arm or, for a split, of real images."""
    return merged(_parts(unit, group))


def _parts(unit: Unit, group: str) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Yield what each unit measured of an arm or a split, with the places of the images."""
    for key in unit.inputs_of("measure_real" if group in (HELDOUT, TRAIN) else "measure"):
        with hdf5.open_checked(unit.input(key, MEASUREMENTS)) as file:
            yield range(*draw_range(key)), {name: values[()] for name, values in file[group].items()}


def merged(parts: Iterable[tuple[range, dict[str, np.ndarray]]]) -> ImageSet:
    """Merge measurements in the order of the images; an image that several parts have counts once.

    Args:
        parts: Places of some images, and their values by the field of the `ImageSet`.
    """
    ordered = sorted(parts, key=lambda part: (part[0].start, part[0].stop))
    _, rows = np.unique(np.concatenate([list(places) for places, _ in ordered]), return_index=True)
    names = ordered[0][1]
    return ImageSet(**{name: np.concatenate([values[name] for _, values in ordered])[rows] for name in names})
