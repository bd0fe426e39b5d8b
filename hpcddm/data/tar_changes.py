"""Adopted tars that are no longer those that a run has indexed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hpcddm.config import paths, variants
from hpcddm.config.data import DataSettings
from hpcddm.data.catalog import stamp_of
from hpcddm.data.sources.base import SPLITS, TarSource
from hpcddm.files import reading
from hpcddm.runs import manifest
from hpcddm.runs.layout import RunDir


@dataclass(frozen=True)
class StoredData:
    """Types of the numbers of tars in a run's experiment."""

    __pydantic_config__: ClassVar = reading.OPEN

    shards: int = 0
    heldout_shards: int = 0


@dataclass(frozen=True)
class StoredExperiment:
    """Types of what is read of a run's experiment."""

    __pydantic_config__: ClassVar = reading.OPEN

    data: StoredData = field(default_factory=StoredData)


def first_change(data: DataSettings, run: RunDir, before: str) -> str:
    """Say which tar, the first by its path, was changed, was added or is missing since a run has indexed its source.

    data: as it is now; before: hash of the tars as they were indexed. Empty where the manifests tell of no change.
    """
    indexed, is_complete = _indexed(run, before)
    if not indexed:
        return ""
    source = variants.create(TarSource, paths.located(data, run.root).source)
    present = {(tar.collection, tar.name): tar.path for split in SPLITS for tar in source.tars(split)}
    folders = source.folders()
    for file in sorted(indexed.keys() | present.keys(), key=str):
        path = folders.get(file[0], Path()) / file[1]
        if file not in present:
            return f"{path} is missing"
        if file not in indexed:
            # Nothing is known of those that wait for being indexed.
            if is_complete:
                return f"{path} was added"
        elif stamp_of(path) != indexed[file]:
            return f"{path} was changed"
    return "" if is_complete else "one that was not indexed yet"


def _indexed(run: RunDir, content: str) -> tuple[dict[tuple[str | None, str], tuple[int, int]], bool]:
    """Return size and time of the tars that a run has adopted, by path; and whether these are all that there were."""
    shards = filter(None, map(manifest.read_if_usable, sorted(run.root.glob("shard/*"))))
    tars = [tar for shard in shards if shard.settings.get("data.content") == content for tar in shard.results["tars"]]
    stored: StoredExperiment | None = reading.read_json(run.experiment, StoredExperiment, reading.MANIFEST_BYTES)
    is_complete = len(tars) == (stored.data.shards + stored.data.heldout_shards if stored else 0)
    adopted = (tar for tar in tars if tar["changed"] is not None)
    stamps = {(tar.get("collection"), tar["file"]): (tar["size"], tar["changed"]) for tar in adopted}
    return stamps, is_complete
