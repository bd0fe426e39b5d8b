"""What the stages reference and measure have in common: a range of images, measured by one evaluator."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.evaluation.evaluators import EncoderEvaluator, ImageEvaluator, Measurements, TrainedEvaluators
from hpcddm.files import atomic
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Unit
from hpcddm.stages.evaluation.reference import OWN, encoders_by_label, evaluator_of, networks_of, range_name
from hpcddm.stages.workload import EVALUATOR, Work, Workload

MEASURED_AT_ONCE = 256


def evaluator_work(workload: Workload, key: str, images: int) -> list[Work]:
    """List the runs of an evaluator's networks on so many images."""
    label = evaluator_of(key)
    names = [unit.split("/")[1] for unit in networks_of(workload.experiment, label)] or [f"{EVALUATOR}{label}"]
    return [Work(name, False, images, MEASURED_AT_ONCE) for name in names]


def create_evaluator(experiment: Experiment, unit: Unit) -> ImageEvaluator:
    """Create the evaluator of a unit, on the device of its process."""
    device, label = choose_device(unit), evaluator_of(unit.key)
    if label == OWN:
        return TrainedEvaluators(experiment, unit.run.unit, device)
    return EncoderEvaluator(label, encoders_by_label(experiment)[label])


def places(key: str) -> tuple[int, int]:
    """Parse the range [start, stop) of a unit, places in the evaluation set."""
    start, stop = range_name(key).split("-")
    return int(start), int(stop)


def blocks(start: int, stop: int) -> Iterator[range]:
    """Cut a range into blocks that are measured at once."""
    return (range(first, min(first + MEASURED_AT_ONCE, stop)) for first in range(start, stop, MEASURED_AT_ONCE))


def conditions(
    experiment: Experiment, reader: run_samples.TarReader, numbers: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Read the classes and captions of some real images; empty where the experiment has none."""
    labels = run_samples.read_labels(experiment, reader, numbers)
    return labels, reader.captions(numbers) if experiment.data.condition.reads_captions else []


def write(path: Path, measured: Mapping[str, list[Measurements]]) -> list[str]:
    """Store measurements by arm or split; return the names of the values."""
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        for group, parts in measured.items():
            for name in parts[0]:
                file.create_dataset(f"{group}/{name}", data=np.concatenate([part[name] for part in parts]))
    return sorted(next(iter(measured.values()))[0])
