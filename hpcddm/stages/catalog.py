"""Stage catalog: numbers all samples, and refuses keys that several of them share."""

from hpcddm.config import Experiment
from hpcddm.data.catalog import Catalog, Part, SplitEntry, Tar, duplicates, write_catalog
from hpcddm.data.samples import evaluation_numbers
from hpcddm.errors import require
from hpcddm.pipeline.catalog import CATALOG_FILE, all_names
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.keys import name_of
from hpcddm.pipeline.ranges import HELDOUT, SPLITS, split_of, tars_of
from hpcddm.pipeline.shard import COLUMNS, tar_file
from hpcddm.rundir.manifest import DIGESTS, digest
from hpcddm.runtime.unit import Result, Unit

NAMED = 5
"""Number of duplicate keys that are named."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write where the tars and the columns of each split lie; samples are numbered by tar, and in a tar by member."""
    entries = {split: _entry(settings, unit, split) for split in SPLITS}
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    shared = duplicates([catalog.texts("key") for catalog in catalogs.values()])
    listed = ", ".join(shared[:NAMED]) + f" and {len(shared) - NAMED} more" * (len(shared) > NAMED)
    require(not shared, f"data: several samples have the key {listed}; a key names one sample of the whole data set")
    write_catalog(unit.folder / CATALOG_FILE, entries)
    described = {
        split: catalog.described(range(len(catalog)), settings.data.num_classes) for split, catalog in catalogs.items()
    }
    names = next(iter(unit.inputs.values())).results["class_names"]
    # Nothing shall be trained that cannot be evaluated.
    evaluation_numbers(catalogs[HELDOUT], settings, all_names(settings, names))
    digests = {split: catalog.digest(range(len(catalog))) for split, catalog in catalogs.items()}
    digests[ALL] = digest(digests)
    return Result([CATALOG_FILE], {"splits": described, DIGESTS: digests, "class_names": names})


def _entry(settings: Experiment, unit: Unit, split: str) -> SplitEntry:
    """Collect one split of the tars' units; raises `UserError` naming a range whose samples have other columns."""
    shards = {key: shard for key, shard in unit.inputs.items() if split_of(key) == split}
    tars, parts, columns = [], [], None
    for key, shard in shards.items():
        own = shard.results["columns"]
        columns = own if columns is None else columns
        require(own == columns, f"data: samples of {key} have {', '.join(own)}, others have {', '.join(columns)}")
        sizes = {output.path: output.size for output in shard.outputs}
        tars += [Tar(f"{key}/{name}", sizes[name]) for name in map(tar_file, tars_of(settings, key))]
        parts.append(Part(name_of(key), f"{key}/{COLUMNS}", shard.results["images"], shard.digest))
    return SplitEntry(columns or [], tars, parts)
