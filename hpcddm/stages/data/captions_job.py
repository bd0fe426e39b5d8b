"""Stage captions: the distinct captions of both splits, and the number of every sample's, as columns."""

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.captions import CAPTION, NUMBER_TYPE, write_distinct
from hpcddm.errors import require
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CAPTIONS_FILE, INDEX, numbers_file
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.unit_keys import name_of
from hpcddm.stages.data.captions import texts_keys
from hpcddm.stages.data.texts import CAPTIONS_AT_ONCE


def run(settings: Experiment, unit: Unit) -> Result:
    """Number the distinct captions, and divide them into ranges for the stage texts."""
    catalogs = {split: samples.catalog(unit, split) for split in SPLITS}
    for split, catalog in catalogs.items():
        require(
            catalog.has(CAPTION),
            f"data.condition: the {split} images have no captions; say where they are in data.source, or take another"
            " condition",
        )
    total = sum(map(len, catalogs.values()))
    require(total <= 1 << 8 * NUMBER_TYPE.itemsize, f"data: {total} samples are too many for captions of one run")

    def advance(done: int) -> None:
        unit.stop_if_requested()
        unit.heartbeat.beat(done, total)

    columns = {split: catalog.texts(CAPTION) for split, catalog in catalogs.items()}
    count = write_distinct(
        columns, unit.folder / CAPTIONS_FILE, lambda split: unit.folder / numbers_file(split), advance
    )
    names = [name_of(key) for key in texts_keys(settings)]
    described = {"captions": count, "samples": {split: len(own) for split, own in catalogs.items()}}
    atomic.write_json(unit.folder / INDEX, described | {"ranges": ranges(count, names)})
    print(f"{count} different captions of {total} samples", flush=True)
    return Result([CAPTIONS_FILE, INDEX, *map(numbers_file, catalogs)], described)


def ranges(count: int, names: list[str]) -> dict[str, tuple[int, int]]:
    """Divide so many captions into ranges of whole blocks: what is encoded together does not depend on the ranges."""
    blocks = -(-count // CAPTIONS_AT_ONCE)
    edges = [min(blocks * part // len(names) * CAPTIONS_AT_ONCE, count) for part in range(len(names) + 1)]
    return {name: (edges[part], edges[part + 1]) for part, name in enumerate(names)}
