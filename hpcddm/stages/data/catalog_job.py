"""Stage catalog: numbers all samples; refuses, or drops, repeated keys, and refuses too many broken samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from hpcddm.config.experiment import Experiment
from hpcddm.data.catalog import Catalog, Part, PictureForm, SplitEntry, Tar, blocks_of, write_catalog
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.data.duplicates import repeated
from hpcddm.data.samples import evaluation_numbers
from hpcddm.data.tables import Table
from hpcddm.errors import UserError, require
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import BROKEN, CATALOG_FILE, COLUMNS
from hpcddm.runs.layout import relative_to_run
from hpcddm.runs.manifest import DIGESTS, FILE_NAME, Manifest
from hpcddm.runs.passed_over import Count, Counts, lines, merged
from hpcddm.runs.ranges import HELDOUT, SPLITS, split_of
from hpcddm.runs.stored_results import all_names
from hpcddm.runs.unit_keys import name_of

NAMED = 5
"""Number of duplicate keys, and of broken samples, that are named."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write where the tars and the columns of each split lie; samples are numbered by tar, and in a tar by member."""
    entries = {split: _entry(settings, unit, split) for split in SPLITS}
    passed_over = merged(shard.results["passed_over"] for shard in unit.inputs.values())
    broken = _check_broken(
        settings, unit, sum(part.samples for entry in entries.values() for part in entry.parts), passed_over
    )
    passed_over = merged([passed_over, _other_rows(settings, unit)])
    entries, dropped, files = _with_unique_keys(settings, unit, entries)
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    for split, catalog in catalogs.items():
        require(len(catalog) > 0, f"data: no {split} sample is left; see data.keep and data.source.heldout")
    write_catalog(unit.folder / CATALOG_FILE, entries)
    described = {
        split: catalog.described(range(len(catalog)), settings.data.num_classes) for split, catalog in catalogs.items()
    }
    names = next(iter(unit.inputs.values())).results["class_names"]
    # Nothing shall be trained that cannot be evaluated.
    evaluation_numbers(catalogs[HELDOUT], settings, all_names(settings, names))
    digests = {split: catalog.digest(range(len(catalog))) for split, catalog in catalogs.items()}
    digests[ALL] = digest(digests)
    results = {"splits": described, DIGESTS: digests, "class_names": names, "broken": broken, "duplicates": dropped}
    results |= {"passed_over": passed_over}
    return Result([CATALOG_FILE, *files], results)


def _entry(settings: Experiment, unit: Unit, split: str) -> SplitEntry:
    """Collect one split of the tars' units; raises `UserError` naming a range whose samples have other columns."""
    shards = {key: shard for key, shard in unit.inputs.items() if split_of(key) == split}
    _check_listings(shards)
    tars, parts, columns = [], [], None
    for key, shard in shards.items():
        # A range without samples has neither classes nor captions.
        if shard.results["images"]:
            names = shard.results["columns"]
            columns = names if columns is None else columns
            require(names == columns, f"data: samples of {key} have {', '.join(names)}, others {', '.join(columns)}")
        tars += _tars(shard, unit.run.unit(key))
        parts.append(Part(name_of(key), f"{key}/{COLUMNS}", shard.results["images"], shard.digest))
    data = settings.data
    form = PictureForm(data.channels, data.image_size, data.transform.model_dump())
    return SplitEntry(columns or [], tars, parts, form if data.source.adopts_tars else None)


def _tars(shard: Manifest, folder: Path) -> list[Tar]:
    """List the tars that a manifest names; raises `UserError` naming it for one that cannot be."""
    try:
        return [Tar(**tar) for tar in shard.results["tars"]]
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{folder / FILE_NAME}: names a tar that cannot be ({error}); remove it, submit again"
        ) from None


def _check_listings(shards: dict[str, Manifest]) -> None:
    """Raise `UserError` where units of a split have seen different images, of which each took its part."""
    # Tars that are adopted have no listing, nor have units of older runs.
    seen = {shard.results["listing"]: key for key, shard in shards.items() if shard.results.get("listing")}
    require(
        len(seen) < 2,
        f"data.source: the images changed while their tars were written ({' and '.join(list(seen.values())[:2])} have"
        " seen different ones), so that some may be missing; submit with --redo shard",
    )


def _with_unique_keys(
    settings: Experiment, unit: Unit, entries: dict[str, SplitEntry]
) -> tuple[dict[str, SplitEntry], int, list[str]]:
    """Drop the samples whose key a sample before them has, training samples first, where `data.duplicates` says so.

    Returns the entries, the number of dropped samples, and the files of the columns that were written for it. Raises
    `UserError` naming the first keys where they are to be refused.
    """
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    columns = [catalog.texts("key") for catalog in catalogs.values() if len(catalog)]
    places = repeated(columns, unit.folder)
    if settings.data.duplicates == "refuse":
        _refuse(settings, columns, places)
    unique: dict[str, SplitEntry] = {}
    files: list[str] = []
    start = 0
    for split, catalog in catalogs.items():
        inside = places[(places >= start) & (places < start + len(catalog))] - start
        unique[split], written = _without(unit, entries[split], catalog, inside)
        start, files = start + len(catalog), files + written
    return unique, len(places), files


def _refuse(settings: Experiment, columns: list[TextColumn], places: Int64[np.ndarray, " n"]) -> None:
    """Raise `UserError` naming the first keys that are repeated; places: through all columns."""
    keys: list[str] = []
    for column in columns:
        keys += column.gather(places[(places >= 0) & (places < len(column))][:NAMED])
        places = places - len(column)
    shared = list(dict.fromkeys(keys))
    listed = ", ".join(shared[:NAMED]) + " ..." * (len(places) > NAMED)
    advice = (
        "; where several tars have it, data.source.qualified: true puts the tar's path before every key"
        * settings.data.source.adopts_tars
    )
    require(
        not shared,
        f"data: {len(places)} samples have a key that another one has, {listed}; a key names one sample of all data;"
        f" with data.duplicates: drop, the first one is kept{advice}",
    )


def _without(
    unit: Unit, entry: SplitEntry, catalog: Catalog, dropped: Int64[np.ndarray, " n"]
) -> tuple[SplitEntry, list[str]]:
    """Return the entry without some samples, and the files that were written: columns of the parts that had them."""
    parts: list[Part] = []
    files: list[str] = []
    for part in entry.parts:
        numbers = catalog.numbers_of(part.name)
        missing = dropped[(dropped >= numbers.start) & (dropped < numbers.stop)]
        if len(missing):
            kept = np.setdiff1d(np.arange(numbers.start, numbers.stop), missing)
            path = unit.folder / f"{part.name}.h5"
            with Spool(unit.folder) as spool:
                for block in blocks_of(kept):
                    spool.append({name: catalog.rows(name, block) for name in entry.columns})
                spool.write(path)
            file, cut = relative_to_run(path, unit.run), digest([part.digest, missing.tolist()])
            parts.append(Part(part.name, file, len(kept), cut))
            files.append(path.name)
        else:
            parts.append(part)
    return replace(entry, parts=parts), files


def _other_rows(settings: Experiment, unit: Unit) -> Counts:
    """Count the rows of `data.table` without a sample, none where no table is read.

    Raises `UserError` with a key of either side where no sample has a row.
    """
    by_range = [shard.results["table"] for shard in unit.inputs.values() if shard.results.get("table")]
    table = settings.data.table
    if table is None or not by_range:
        return {}
    with_row, without = (sum(counts[name] for counts in by_range) for name in ("with_row", "without_row"))
    if without and not with_row:
        first = [counts["first_without_row"] for counts in by_range if counts["without_row"]]
        raise UserError(Table(Path(table.file), table.key).lacks_all(first, without))
    # Where keys are repeated, a row has several samples.
    others = max(counts["rows"] for counts in by_range) - with_row
    count = Count(count=others, first=[Path(table.file).name], is_broken=False)
    return {"rows of data.table without a sample": count} if others > 0 else {}


def _check_broken(settings: Experiment, unit: Unit, kept: int, passed_over: Counts) -> int:
    """Count the broken samples; raises `UserError` naming the first where they are more than `data.broken` allows."""
    by_range = [shard.results["broken"] for shard in unit.inputs.values()]
    count = sum(broken["samples"] for broken in by_range)
    lost = {reason: one for reason, one in passed_over.items() if one["is_broken"]}
    samples = kept + sum(shard.results["dropped"]["samples"] for shard in unit.inputs.values())
    # Those that are passed over are named by their reasons.
    first = [sample for broken in by_range for sample in broken["first"] if sample["reason"] not in lost][:NAMED]
    places = [f"{sample['tar']}{': ' * bool(sample['tar'])}{sample['key']} ({sample['reason']})" for sample in first]
    named, others = ", ".join([*lines(lost), *places]), count - sum(one["count"] for one in lost.values())
    share, allowed = count / max(count + samples, 1), settings.data.broken
    require(
        share <= allowed,
        f"data.broken: {count} of {count + samples} samples are broken, more than {allowed:g} of them:"
        f" {named}{' ...' * (others > NAMED)}; all stand in {unit.run.root}/shard/*/{BROKEN}: mend"
        " them, or raise data.broken",
    )
    return count
