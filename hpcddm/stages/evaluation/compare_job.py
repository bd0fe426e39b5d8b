"""Stage compare: metrics of every arm, by what one evaluator measured of samples and real images."""

from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import evaluation_set, run_samples
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.evaluation.comparisons import Figures
from hpcddm.evaluation.figures import compute_figures
from hpcddm.evaluation.metrics import all_metrics, metrics_for
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.files import atomic, checked_reads, hdf5
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import COMPARISON, EVALUATION, FINISHED_ARMS, KNOWN_METRICS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.stages.evaluation.compare import perceptual_label
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from hpcddm.stages.evaluation.measure_job import read_measured
from hpcddm.stages.evaluation.neighbours_job import merge_ranges
from hpcddm.stages.progress import advance

FLOOR = "floor"
"""Name of the figures of training images, beside those of the arms."""
MOST_OF_CLASS = 10
"""Samples of a class whose perceptual distances are averaged, at most."""


@dataclass(frozen=True)
class FinishedArms:
    """Content of the file of the arms that are finished while others are not."""

    trajectory: str
    """That of the unit, which covers its inputs."""
    figures: dict[str, Figures]


def run(experiment: Experiment, unit: Unit) -> Result:
    """Compute the metrics of every arm, and those of training images in their place, the floor.

    An attempt takes over the figures of the arms that an earlier one has finished.
    """
    reader = run_samples.open_reader(unit, HELDOUT)
    labels, drawn_labels = (
        run_samples.read_labels(experiment, reader, choose(unit, experiment)[experiment.evaluate.first_sample :])
        for choose in (evaluation_set.evaluation_samples, evaluation_set.condition_samples)
    )
    real, train = (_image_set(experiment, unit, split, labels) for split in (HELDOUT, TRAIN))
    arms, images = (*arm_names(experiment), FLOOR), experiment.evaluate.images
    figures = _finished_arms(unit)
    for number, arm in enumerate(arms):
        if arm in figures:
            continue
        is_floor = arm == FLOOR
        samples = train if is_floor else _image_set(experiment, unit, arm, drawn_labels)
        inputs = MetricInputs(samples, real, train, merge_ranges(experiment, unit, TRAIN if is_floor else arm))
        metrics = _metrics(samples, images, is_floor)
        noted = partial(_note, unit, number * len(metrics), len(arms) * len(metrics))
        figures[arm] = compute_figures(inputs, metrics, unit.name, images, noted)
        atomic.write_json(unit.folder / FINISHED_ARMS, asdict(FinishedArms(unit.trajectory, figures)))
    floor = figures.pop(FLOOR)
    dimension = None if real.features is None else real.features.shape[1]
    content = {"arms": figures, "floor": floor, "images": images, "dimension": dimension}
    atomic.write_json(unit.folder / COMPARISON, content)
    (unit.folder / FINISHED_ARMS).unlink()
    # Those that these measurements do not allow count as well: another comparison would not have them either.
    return Result([COMPARISON], {"images": images, KNOWN_METRICS: [metric.key for metric in all_metrics()]})


def _note(unit: Unit, before: int, of: int, done: int) -> None:
    """Note how many metrics are done, and stop where that was requested."""
    advance(unit, before + done, of)


def _finished_arms(unit: Unit) -> dict[str, Figures]:
    """Read the figures that an earlier attempt computed from the same inputs, by arm."""
    try:
        found: FinishedArms | None = checked_reads.read_json(unit.folder / FINISHED_ARMS, FinishedArms)
    except checked_reads.Unreadable as error:
        print(f"{error}; all arms are compared", flush=True)
        return {}
    return found.figures if found and found.trajectory == unit.trajectory else {}


def _metrics(samples: ImageSet, images: int, is_floor: bool) -> list[Metric]:
    """List the metrics that measurements allow; training images in place of samples are not compared with themselves.

    Args:
        samples: Measurements of the samples.
        images: Number of images of each set.
        is_floor: True for training images in place of samples.
    """
    dimension = 0 if samples.features is None else samples.features.shape[1]
    possible = metrics_for(samples.gives(), images, dimension)
    return [metric for metric in possible if not (is_floor and metric.reads_training)]


def _image_set(experiment: Experiment, unit: Unit, group: str, labels: np.ndarray) -> ImageSet:
    """Read what the evaluator measured; the perceptual distance measures now."""
    if unit.name == perceptual_label(experiment):
        return ImageSet(spread=_spread(experiment, unit, group, labels))
    return replace(read_measured(unit, group), labels=labels if len(labels) else None)


def _spread(experiment: Experiment, unit: Unit, group: str, labels: np.ndarray) -> np.ndarray:
    """Compute the mean perceptual distance of two images of one class, by class, over the first images of each."""
    if experiment.evaluate.perceptual is None:
        raise ValueError("evaluate.perceptual: there is none")
    perceptual, spread = variants.create(Perceptual, experiment.evaluate.perceptual), []
    for label in np.unique(labels):
        unit.stop_if_requested()
        images = _images(experiment, unit, group, np.flatnonzero(labels == label)[:MOST_OF_CLASS])
        spread.append(perceptual.diversity(perceptual.features(images)))
    return np.array(spread)


def _images(experiment: Experiment, unit: Unit, group: str, rows: np.ndarray) -> np.ndarray:
    """Read images of an arm or a split; rows: their numbers from `evaluate.first_sample` on, ascending."""
    wanted = rows + experiment.evaluate.first_sample
    if group in (HELDOUT, TRAIN):
        numbers = evaluation_set.evaluation_samples(unit, experiment, group)[wanted]
        return run_samples.open_reader(unit, group).images(numbers)
    found = []
    for key in sorted(unit.inputs_of("draw"), key=draw_range):
        start, stop = draw_range(key)
        inside = wanted[(wanted >= start) & (wanted < stop)] - start
        if len(inside):
            with hdf5.open_checked(unit.input(key, EVALUATION)) as file:
                found.append(file[group]["images"][inside])
    return np.concatenate(found)
