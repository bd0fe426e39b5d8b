"""Stage measure_real: a range of held-out and of training images, measured by one evaluator."""

import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import CatalogReader
from hpcddm.errors import require
from hpcddm.evaluation.evaluators import EncoderEvaluator, ImageEvaluator, Measurements, TrainedEvaluators
from hpcddm.files import atomic
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs import manifest
from hpcddm.runs.files import MEASUREMENTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.stages.evaluation.draw import draw_range
from hpcddm.stages.evaluation.measure_real import OWN, encoders_by_label, evaluator_of, networks_of
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import EVALUATOR, READING, Work, Workload

SPLITS = (HELDOUT, TRAIN)
"""Real images: those that all distances refer to, and those whose distance is the floor."""
MEASURED_AT_ONCE = 256


def run(experiment: Experiment, unit: Unit) -> Result:
    """Measure the real images [start, stop) of the evaluation, held-out ones and training images.

    Measurements that `evaluate.reference` has are copied.
    """
    start, stop = draw_range(unit.key)
    if experiment.evaluate.reference is not None and _copy(unit, RunDir(Path(experiment.evaluate.reference))):
        return Result([MEASUREMENTS], {"images": stop - start, "copied": True})
    evaluator = create_evaluator(experiment, unit)
    measured: dict[str, list[Measurements]] = defaultdict(list)
    for number, split in enumerate(SPLITS):
        reader = run_samples.open_reader(unit, split)
        numbers = evaluation_set.evaluation_samples(unit, experiment, split)
        for rows in split_into_blocks(range(start, stop), MEASURED_AT_ONCE):
            advance(unit, number * (stop - start) + rows.start - start, len(SPLITS) * (stop - start))
            labels, captions = conditions(experiment, reader, numbers[rows.start : rows.stop])
            measured[split].append(evaluator.measure(reader.images(numbers[rows.start : rows.stop]), labels, captions))
    return Result([MEASUREMENTS], {"images": stop - start, "values": write(unit.folder / MEASUREMENTS, measured)})


def _copy(unit: Unit, other: RunDir) -> bool:
    """Copy the measurements of another run; return False if it has none of these images by these networks."""
    require(other.root.is_dir(), f"evaluate.reference: {other.root} is not a folder; name a run, or remove the key")
    folder = other.unit(unit.key)
    made = manifest.read(folder)
    if made is None or made.trajectory != unit.trajectory:
        print(f"{folder}: has no measurements of these images by these networks; they are made here", flush=True)
        return False
    with atomic.replacing(unit.folder / MEASUREMENTS, durable=False) as staged:
        shutil.copyfile(folder / MEASUREMENTS, staged)
        digest = manifest.recorded_digest(folder, MEASUREMENTS)
        require(atomic.sha256(staged) == digest, f"{folder / MEASUREMENTS}: is damaged; remove evaluate.reference")
    return True


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of the real images, and the evaluator's run on them."""
    start, stop = draw_range(key)
    images = len(SPLITS) * (stop - start)
    return [Work(READING, False, images, MEASURED_AT_ONCE), *evaluator_work(workload, key, images)]


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


def conditions(experiment: Experiment, reader: CatalogReader, numbers: np.ndarray) -> tuple[np.ndarray, list[str]]:
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
