"""Stage copy_lists: copies the samples of an expert's list into tars, for its training, a partner or a store."""

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.copies import files_of, write_copy
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.ranges import TRAIN
from hpcddm.stages.data.copy_lists import copied_expert
from hpcddm.stages.progress import advance


def run(experiment: Experiment, unit: Unit) -> Result:
    """Copy the samples of a list; an attempt that continues another one keeps the tars that are complete."""
    numbers = run_samples.training_list(unit, copied_expert(unit.key)).as_array()

    catalog, reading = run_samples.open_unit_catalog(unit, TRAIN), experiment.data.read_from
    copy = write_copy(unit.folder, catalog, numbers, lambda done: advance(unit, done, len(numbers)), reading.drops_exif)
    return Result(files_of(copy), {"samples": len(copy)})
