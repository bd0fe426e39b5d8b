"""Stage catalog: numbers all samples; refuses, or drops, repeated keys, and refuses too many broken samples."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from hpcddm.config.experiment import Experiment
from hpcddm.data.catalog import Catalog, CatalogPart, ImageFormat, SplitEntry, catalog_as_json, split_into_blocks
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.data.duplicates import find_repeated_keys
from hpcddm.data.evaluation_set import choose_evaluation_samples
from hpcddm.data.sample_file import SampleFile
from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import BROKEN, CATALOG_FILE, COLUMNS
from hpcddm.runs.manifest import DIGESTS, FILE_NAME, Manifest
from hpcddm.runs.passed_over import Count, Counts, count_lines, merge_counts
from hpcddm.runs.ranges import SPLITS, split_of
from hpcddm.runs.run_dir import relative_to_run
from hpcddm.runs.stored_results import all_class_names
from hpcddm.runs.unit_keys import unit_name
from hpcddm.sources.source_files import LACKS
from hpcddm.sources.tables.tables import Table

NAMED = 5
"""Number of duplicate keys, and of broken samples, that are named."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write the paths of the tars and columns of each split; samples are numbered by tar, then by member."""
    entries = {split: _entry(experiment, unit, split) for split in SPLITS}
    lost = merge_counts(_lacking(unit, split) for split in SPLITS)
    passed_over = merge_counts([*(shard.results["passed_over"] for shard in unit.inputs.values()), lost])
    kept = sum(part.samples for entry in entries.values() for part in entry.parts)
    broken = _check_broken(experiment, unit, kept, passed_over, sum(one["count"] for one in lost.values()))
    passed_over = merge_counts([passed_over, _other_rows(experiment, unit)])
    entries, dropped, files = _with_unique_keys(experiment, unit, entries)
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    for split, catalog in catalogs.items():
        require(len(catalog) > 0, f"data: no {split} sample is left; see data.filter and data.source.heldout")
    atomic.write_json(unit.folder / CATALOG_FILE, catalog_as_json(entries))
    described = {
        split: catalog.summary(range(len(catalog)), experiment.data.num_classes) for split, catalog in catalogs.items()
    }
    names = next(iter(unit.inputs.values())).results["class_names"]
    # Nothing shall be trained that cannot be evaluated.
    for split, catalog in catalogs.items():
        choose_evaluation_samples(catalog, experiment, all_class_names(experiment, names), split)
    digests = {split: catalog.digest(range(len(catalog))) for split, catalog in catalogs.items()}
    digests[ALL] = digest(digests)
    results = {"splits": described, DIGESTS: digests, "class_names": names, "broken": broken, "duplicates": dropped}
    results |= {"passed_over": passed_over}
    return Result([CATALOG_FILE, *files], results)


def _entry(experiment: Experiment, unit: Unit, split: str) -> SplitEntry:
    """Collect one split of the tars' units, without the samples of those that lack a column."""
    shards = {key: shard for key, shard in unit.inputs.items() if split_of(key) == split}
    _check_listings(shards)
    tars, parts, columns = [], [], _columns(shards.values())
    for key, shard in shards.items():
        count = shard.results["images"] if shard.results["columns"] == columns else 0
        tars += _tars(shard, unit.run.unit(key))
        parts.append(CatalogPart(unit_name(key), f"{key}/{COLUMNS}", count, shard.digest))
    needs_captions = experiment.data.condition.reads_captions
    require(
        "caption" in columns or not (needs_captions and columns), f"data.condition: no {split} sample has a caption"
    )
    data = experiment.data
    form = ImageFormat(data.channels, data.image_size, data.transform.model_dump())
    return SplitEntry(columns, tars, parts, form if data.source.reads_in_place else None)


def _columns(shards: Collection[Manifest]) -> list[str]:
    """List the columns that samples of any range have; a range without samples has none."""
    return sorted({name for shard in shards if shard.results["images"] for name in shard.results["columns"]})


def _lacking(unit: Unit, split: str) -> Counts:
    """Count the samples of ranges that lack a column, which others have; they are named by their tars."""
    shards = {key: shard for key, shard in unit.inputs.items() if split_of(key) == split}
    columns, counts = _columns(shards.values()), Counts()
    for key, shard in shards.items():
        missing = [name for name in columns if name not in shard.results["columns"]]
        if missing and shard.results["images"]:
            names = [tar.file for tar in _tars(shard, unit.run.unit(key))][:NAMED]
            reason = LACKS.get(missing[0], f"no {missing[0]}, others have one")
            count = Count(count=shard.results["images"], first=names, is_broken=True)
            counts = merge_counts([counts, {reason: count}])
    return counts


def _tars(shard: Manifest, folder: Path) -> list[SampleFile]:
    """List the tars that a manifest names; raises `UserError` naming it for one that cannot be."""
    try:
        return [SampleFile(**tar) for tar in shard.results["tars"]]
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{folder / FILE_NAME}: names a tar that cannot be ({error}); remove it, submit again"
        ) from None


def _check_listings(shards: dict[str, Manifest]) -> None:
    """Raise `UserError` if the units of a split took their parts from different lists of images."""
    # Adopted tars have no listing, nor have units of older runs.
    seen = {shard.results["listing"]: key for key, shard in shards.items() if shard.results.get("listing")}
    require(
        len(seen) < 2,
        f"data.source: the images changed while their tars were written ({' and '.join(list(seen.values())[:2])} read"
        " different ones), so that some may be missing; submit with --redo shard",
    )


def _with_unique_keys(
    experiment: Experiment, unit: Unit, entries: dict[str, SplitEntry]
) -> tuple[dict[str, SplitEntry], int, list[str]]:
    """Drop the samples whose key a sample before them has, training samples first, where `data.duplicates` says so.

    Returns the entries, the number of dropped samples, and the files of the columns that were written for it. Raises
    `UserError` naming the first keys where they are to be refused.
    """
    catalogs = {split: Catalog(unit.run.root, entry) for split, entry in entries.items()}
    columns = [catalog.texts("key") for catalog in catalogs.values() if len(catalog)]
    places = find_repeated_keys(columns, unit.folder)
    if experiment.data.duplicates == "refuse":
        _refuse(experiment, columns, places)
    unique: dict[str, SplitEntry] = {}
    files: list[str] = []
    start = 0
    for split, catalog in catalogs.items():
        inside = places[(places >= start) & (places < start + len(catalog))] - start
        unique[split], written = _without(unit, entries[split], catalog, inside)
        start, files = start + len(catalog), files + written
    return unique, len(places), files


def _refuse(experiment: Experiment, columns: list[TextColumn], places: Int64[np.ndarray, " n"]) -> None:
    """Raise `UserError` naming the first keys that are repeated; places: through all columns."""
    keys: list[str] = []
    for column in columns:
        keys += column.gather(places[(places >= 0) & (places < len(column))][:NAMED])
        places = places - len(column)
    shared = list(dict.fromkeys(keys))
    listed = ", ".join(shared[:NAMED]) + " ..." * (len(places) > NAMED)
    advice = "; where several tars have it, data.source.prefix_keys: true puts the tar's path before every key" * any(
        "prefix_keys" in type(source).model_fields for source in experiment.data.source.each
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
    parts: list[CatalogPart] = []
    files: list[str] = []
    for part in entry.parts:
        numbers = catalog.numbers_in_range(part.name)
        missing = dropped[(dropped >= numbers.start) & (dropped < numbers.stop)]
        if len(missing):
            kept = np.setdiff1d(np.arange(numbers.start, numbers.stop), missing)
            path = unit.folder / f"{part.name}.h5"
            with Spool(unit.folder) as spool:
                for block in split_into_blocks(kept):
                    spool.append({name: catalog.gather(name, block) for name in entry.columns})
                spool.write(path)
            file, cut = relative_to_run(path, unit.run), digest([part.digest, missing.tolist()])
            parts.append(CatalogPart(part.name, file, len(kept), cut))
            files.append(path.name)
        else:
            parts.append(part)
    return replace(entry, parts=parts), files


def _other_rows(experiment: Experiment, unit: Unit) -> Counts:
    """Count the rows of `data.table` without a sample, none where no table is read.

    Raises `UserError` with a key of either side where no sample has a row.
    """
    by_range = [shard.results["table"] for shard in unit.inputs.values() if shard.results.get("table")]
    table = experiment.data.table
    if table is None or not by_range:
        return {}
    with_row, without = (sum(counts[name] for counts in by_range) for name in ("with_row", "without_row"))
    if without and not with_row:
        first = [counts["first_without_row"] for counts in by_range if counts["without_row"]]
        raise UserError(Table(Path(table.file), table.key).no_rows_error(first, without))
    # Where keys are repeated, a row has several samples.
    others = max(counts["rows"] for counts in by_range) - with_row
    count = Count(count=others, first=[Path(table.file).name], is_broken=False)
    return {"rows of data.table without a sample": count} if others > 0 else {}


def _check_broken(experiment: Experiment, unit: Unit, kept: int, passed_over: Counts, lacking: int) -> int:
    """Count the broken samples; raises `UserError` naming the first for more than `data.max_broken_share`.

    kept, lacking: numbers of samples in the ranges that are kept, and in those that are not.
    """
    by_range = [shard.results["broken"] for shard in unit.inputs.values()]
    count = sum(broken["samples"] for broken in by_range) + lacking
    lost = {reason: one for reason, one in passed_over.items() if one["is_broken"]}
    samples = kept + sum(shard.results["dropped"]["samples"] for shard in unit.inputs.values())
    # Those that are passed over are named by their reasons.
    first = [sample for broken in by_range for sample in broken["first"] if sample["reason"] not in lost][:NAMED]
    places = [f"{sample['tar']}{': ' * bool(sample['tar'])}{sample['key']} ({sample['reason']})" for sample in first]
    named, others = ", ".join([*count_lines(lost), *places]), count - sum(one["count"] for one in lost.values())
    share, allowed = count / max(count + samples, 1), experiment.data.max_broken_share
    require(
        share <= allowed,
        f"data.max_broken_share: {count} of {count + samples} samples are broken, more than {allowed:g} of them:"
        f" {named}{' ...' * (others > NAMED)}; {unit.run.root}/shard/*/{BROKEN} lists all: repair"
        " them, or raise data.max_broken_share",
    )
    return count
