"""Tars used in place that changed after the run indexed them."""

from pathlib import Path

from hpcddm.config import paths, variants
from hpcddm.config.data import DataSettings
from hpcddm.data.sample_file import size_and_mtime
from hpcddm.files import checked_reads
from hpcddm.files.foreign_json import ForeignJson
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.sources.base import SPLITS, InPlaceSource


def first_change(data: DataSettings, run: RunDir, before: str) -> str:
    """Name the first tar, by path, that was changed, added or removed since a run indexed its source.

    data: as it is now; before: hash of the tars as they were indexed. Empty where the manifests tell of no change.
    """
    indexed, is_complete = _indexed(run, before)
    if not indexed:
        return ""
    source = variants.create(InPlaceSource, paths.make_absolute(data, run.root).source)
    present = {(tar.collection, tar.name): tar.path for split in SPLITS for tar in source.tars(split)}
    folders = source.settings.source_folders()
    for file in sorted(indexed.keys() | present.keys(), key=str):
        path = folders.get(file[0], Path()) / file[1]
        if file not in present:
            return f"{path} is missing"
        if file not in indexed:
            # Nothing is known of those that wait for being indexed.
            if is_complete:
                return f"{path} was added"
        elif size_and_mtime(path) != indexed[file]:
            return f"{path} was changed"
    return "" if is_complete else "one that was not indexed yet"


def _indexed(run: RunDir, content: str) -> tuple[dict[tuple[str | None, str], tuple[int, int]], bool]:
    """Return size and time of the tars that a run has adopted, by path; and whether these are all that there were."""
    shards = filter(None, map(manifest.read_if_usable, sorted(run.root.glob("shard/*"))))
    tars = [
        tar for shard in shards if shard.settings.get("data.content_hash") == content for tar in shard.results["tars"]
    ]
    values = checked_reads.read_mapping(run.experiment, max_bytes=checked_reads.MANIFEST_BYTES)
    stored = ForeignJson(values or {}, run.experiment)
    is_complete = len(tars) == stored.take("data.shards", int, 0) + stored.take("data.heldout_shards", int, 0)
    adopted = (tar for tar in tars if tar["changed"] is not None)
    stamps = {(tar.get("collection"), tar["file"]): (tar["size"], tar["changed"]) for tar in adopted}
    return stamps, is_complete
