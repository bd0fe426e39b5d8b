"""Stage catalog: numbers all samples; refuses keys that several share, and too many broken samples."""

from collections.abc import Iterable

from hpcddm.config import Experiment
from hpcddm.data.catalog import Catalog, Part, PictureForm, SplitEntry, Tar, duplicates, write_catalog
from hpcddm.data.samples import evaluation_numbers
from hpcddm.errors import require
from hpcddm.pipeline.catalog import CATALOG_FILE, all_names
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.keys import name_of
from hpcddm.pipeline.ranges import HELDOUT, SPLITS, split_of
from hpcddm.pipeline.shard import BROKEN, COLUMNS
from hpcddm.rundir.manifest import DIGESTS, digest
from hpcddm.runtime.unit import Result, Unit

NAMED = 5
"""Number of duplicate keys, and of broken samples, that are named."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write where the tars and the columns of each split lie; samples are numbered by tar, and in a tar by member."""
    entries = {split: _entry(settings, unit, split) for split in SPLITS}
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    broken = _check_broken(settings, unit, sum(map(len, catalogs.values())))
    for split, catalog in catalogs.items():
        require(len(catalog) > 0, f"data: no {split} sample is left; see data.keep and data.source.heldout")
    _check_keys(settings, catalogs.values())
    write_catalog(unit.folder / CATALOG_FILE, entries)
    described = {
        split: catalog.described(range(len(catalog)), settings.data.num_classes) for split, catalog in catalogs.items()
    }
    names = next(iter(unit.inputs.values())).results["class_names"]
    # Nothing shall be trained that cannot be evaluated.
    evaluation_numbers(catalogs[HELDOUT], settings, all_names(settings, names))
    digests = {split: catalog.digest(range(len(catalog))) for split, catalog in catalogs.items()}
    digests[ALL] = digest(digests)
    results = {"splits": described, DIGESTS: digests, "class_names": names, "broken": broken}
    return Result([CATALOG_FILE], results)


def _entry(settings: Experiment, unit: Unit, split: str) -> SplitEntry:
    """Collect one split of the tars' units; raises `UserError` naming a range whose samples have other columns."""
    shards = {key: shard for key, shard in unit.inputs.items() if split_of(key) == split}
    tars, parts, columns = [], [], None
    for key, shard in shards.items():
        # A range without samples has neither classes nor captions.
        if shard.results["images"]:
            own = shard.results["columns"]
            columns = own if columns is None else columns
            require(own == columns, f"data: samples of {key} have {', '.join(own)}, others have {', '.join(columns)}")
        tars += [Tar(**tar) for tar in shard.results["tars"]]
        parts.append(Part(name_of(key), f"{key}/{COLUMNS}", shard.results["images"], shard.digest))
    data = settings.data
    form = PictureForm(data.channels, data.image_size, data.transform.model_dump())
    return SplitEntry(columns or [], tars, parts, form if data.source.adopts_tars else None)


def _check_keys(settings: Experiment, catalogs: Iterable[Catalog]) -> None:
    """Raise `UserError` naming the first keys that several samples share."""
    shared = duplicates([catalog.texts("key") for catalog in catalogs])
    listed = ", ".join(shared[:NAMED]) + f" and {len(shared) - NAMED} more" * (len(shared) > NAMED)
    advice = (
        "; with data.source.qualified: true, the tar's path stands before every key" * settings.data.source.adopts_tars
    )
    require(not shared, f"data: several samples have the key {listed}; a key names one sample of all data{advice}")


def _check_broken(settings: Experiment, unit: Unit, kept: int) -> int:
    """Count the broken samples; raises `UserError` naming the first where they are more than `data.broken` allows."""
    found = [shard.results["broken"] for shard in unit.inputs.values()]
    count = sum(own["samples"] for own in found)
    samples = kept + sum(shard.results["dropped"]["samples"] for shard in unit.inputs.values())
    first = [f"{sample['tar']}: {sample['key']} ({sample['reason']})" for own in found for sample in own["first"]]
    share, allowed = count / max(count + samples, 1), settings.data.broken
    require(
        share <= allowed,
        f"data.broken: {count} of {count + samples} samples are broken, more than {allowed:g} of them:"
        f" {', '.join(first[:NAMED])}{' ...' * (count > NAMED)}; all stand in {unit.run.root}/shard/*/{BROKEN}: mend"
        " them, or raise data.broken",
    )
    return count
