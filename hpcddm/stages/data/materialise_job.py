"""Stage materialise: the samples of an expert's list as tars of their own, for its training, a partner or a store."""

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.copies import files_of, write_copy
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.ranges import TRAIN
from hpcddm.stages.data.materialise import copied_expert


def run(settings: Experiment, unit: Unit) -> Result:
    """Copy the samples of a list; an attempt that continues another one keeps the tars that are complete."""
    numbers = samples.training_list(unit, copied_expert(unit.key)).mapped()

    def advance(done: int) -> None:
        unit.stop_if_requested()
        unit.heartbeat.beat(done, len(numbers))

    catalog, reading = samples.catalog(unit, TRAIN), settings.data.reading
    copy = write_copy(unit.folder, catalog, numbers, advance, reading.drops_exif)
    return Result(files_of(copy), {"samples": len(copy)})
