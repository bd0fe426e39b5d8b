"""Stage reference: a range of held-out and of training images, measured by one evaluator."""

import shutil
from collections import defaultdict
from pathlib import Path

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.errors import require
from hpcddm.evaluation.evaluators import Measurements
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs import manifest
from hpcddm.runs.files import MEASUREMENTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.stages.evaluation.measuring import (
    MEASURED_AT_ONCE,
    blocks,
    conditions,
    create_evaluator,
    evaluator_work,
    places,
    write,
)
from hpcddm.stages.workload import READING, Work, Workload

SPLITS = (HELDOUT, TRAIN)
"""Real images: those that all distances refer to, and those whose distance is the floor."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Measure the real images [start, stop) of the evaluation, held-out ones and training images.

    Measurements that `evaluate.reference` has are copied.
    """
    if experiment.evaluate.reference is not None and _copy(unit, RunDir(Path(experiment.evaluate.reference))):
        return Result([MEASUREMENTS], {"images": places(unit.key)[1] - places(unit.key)[0], "copied": True})
    evaluator, (start, stop) = create_evaluator(experiment, unit), places(unit.key)
    measured: dict[str, list[Measurements]] = defaultdict(list)
    for number, split in enumerate(SPLITS):
        reader, numbers = run_samples.open_reader(unit, split), run_samples.evaluation_samples(unit, experiment, split)
        for rows in blocks(start, stop):
            unit.stop_if_requested()
            unit.heartbeat.beat(number * (stop - start) + rows.start - start, len(SPLITS) * (stop - start))
            labels, captions = conditions(experiment, reader, numbers[rows.start : rows.stop])
            images = reader.images(numbers[rows.start : rows.stop])
            measured[split].append(evaluator.measure(images, labels, captions))
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
    start, stop = places(key)
    images = len(SPLITS) * (stop - start)
    return [Work(READING, False, images, MEASURED_AT_ONCE), *evaluator_work(workload, key, images)]
