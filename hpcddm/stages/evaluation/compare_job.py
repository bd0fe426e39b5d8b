"""Stage compare: metrics of every arm, by what one evaluator measured of samples and real images."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.evaluation.comparisons import Figures
from hpcddm.evaluation.metrics import metrics_for
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.files import atomic, hdf5
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import COMPARISON, EVALUATION, MEASUREMENTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.stages.evaluation.compare import perceptual_label
from hpcddm.stages.evaluation.evaluate import arm_names, evaluate_range
from hpcddm.stages.evaluation.measuring import places

FLOOR = "floor"
"""Name of the figures of training images, beside those of the arms."""
MOST_OF_CLASS = 10
"""Samples of a class whose perceptual distances are averaged, at most."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Compute the metrics of every arm, and those of training images in their place, the floor."""
    numbers = run_samples.evaluation_samples(unit, experiment)[experiment.evaluate.first_sample :]
    labels = run_samples.read_labels(experiment, run_samples.open_reader(unit, HELDOUT), numbers)
    real, train = (_spread_or_measured(experiment, unit, split, labels) for split in (HELDOUT, TRAIN))
    arms, images = arm_names(experiment), experiment.evaluate.images
    figures: dict[str, Figures] = {}
    most = len(_metrics(real, images, is_floor=False))
    for number, arm in enumerate((*arms, FLOOR)):
        samples = train if arm == FLOOR else _spread_or_measured(experiment, unit, arm, labels)
        inputs, metrics = MetricInputs(samples, real, train), _metrics(samples, images, is_floor=arm == FLOOR)
        figures[arm] = {}
        for done, metric in enumerate(metrics):
            unit.stop_if_requested()
            unit.heartbeat.beat(number * most + done, (len(arms) + 1) * most)
            figures[arm][metric.full_key(unit.name, images)] = _figure(metric, inputs)
    floor = figures.pop(FLOOR)
    dimension = None if real.features is None else real.features.shape[1]
    content = {"arms": figures, "floor": floor, "images": images, "dimension": dimension}
    atomic.write_json(unit.folder / COMPARISON, content)
    return Result([COMPARISON], {"images": images})


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


def _figure(metric: Metric, inputs: MetricInputs) -> dict[str, Any]:
    left_out = metric.left_out(inputs)
    values = left_out.tolist() if np.isfinite(left_out).all() else None
    return {"metric": metric.key, "value": metric.compute(inputs), "left_out": values}


def _spread_or_measured(experiment: Experiment, unit: Unit, group: str, labels: np.ndarray) -> ImageSet:
    if unit.name == perceptual_label(experiment):
        return ImageSet(spread=_spread(experiment, unit, group, labels))
    stage = "reference" if group in (HELDOUT, TRAIN) else "measure"
    measured = merged(_parts(unit, stage, group))
    return replace(measured, labels=labels if len(labels) else None)


def _parts(unit: Unit, stage: str, group: str) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Yield what each unit of a stage stored of an arm or a split, with the places of the images."""
    for key in unit.inputs_of(stage):
        with hdf5.open_checked(unit.input(key, MEASUREMENTS)) as file:
            yield range(*places(key)), {name: values[()] for name, values in file[group].items()}


def merged(parts: Iterable[tuple[range, dict[str, np.ndarray]]]) -> ImageSet:
    """Merge measurements in the order of the images; an image that several parts have counts once.

    Args:
        parts: Places of some images, and their values by the field of the `ImageSet`.
    """
    ordered = sorted(parts, key=lambda part: (part[0].start, part[0].stop))
    _, rows = np.unique(np.concatenate([list(places) for places, _ in ordered]), return_index=True)
    names = ordered[0][1]
    return ImageSet(**{name: np.concatenate([values[name] for _, values in ordered])[rows] for name in names})


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
        numbers = run_samples.evaluation_samples(unit, experiment, group)[wanted]
        return run_samples.open_reader(unit, group).images(numbers)
    found = []
    for key in sorted(unit.inputs_of("evaluate"), key=evaluate_range):
        start, stop = evaluate_range(key)
        inside = wanted[(wanted >= start) & (wanted < stop)] - start
        if len(inside):
            with hdf5.open_checked(unit.input(key, EVALUATION)) as file:
                found.append(file[group]["images"][inside])
    return np.concatenate(found)
