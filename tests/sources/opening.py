"""Opens sources of images by name."""

from typing import Any

from hpcddm.config import variants
from hpcddm.config.sources import SourceSettings
from hpcddm.sources.base import Source, Split


def source(name: str, **keys: Any) -> Source:
    """Create a source; `keys` are those of `data.source` in an experiment."""
    return variants.create(Source, SourceSettings.model_validate({"name": name, **keys}))


def split_of(name: str, split: str = "train", **keys: Any) -> Split:
    """Open a split of a source."""
    return source(name, **keys).open_split(split)


def records_of(name: str, split: str = "train", **keys: Any) -> list:
    """Read all records of a split."""
    records = split_of(name, split, **keys)
    return [records[number] for number in range(len(records))]
