"""Ranges of tars: the units of the stages that go through all samples, a few hundred whatever the number of tars."""

from typing import TYPE_CHECKING

from hpcddm.runs.unit_keys import name_of

if TYPE_CHECKING:
    # Who reads a column needs no schema.
    from hpcddm.config.experiment import Experiment

TRAIN, HELDOUT = "train", "heldout"
SPLITS = (TRAIN, HELDOUT)
MOST_RANGES = 256
"""Largest number of units of one stage and split: every status reads the manifests of all, every reader maps them."""


def range_keys(experiment: "Experiment", stage: str, splits: tuple[str, ...] = SPLITS) -> list[str]:
    """List the units of a stage by ranges: training images first, then held-out ones."""
    return [
        f"{stage}/{split}-{number:03d}"
        for split in splits
        for number in range(min(_tars(experiment, split), MOST_RANGES))
    ]


def split_of(key: str) -> str:
    """Return the split that a unit's range is part of."""
    return name_of(key).split("-")[0]


def tars_of(experiment: "Experiment", key: str) -> range:
    """Return the numbers of the tars in a unit's range, within their split."""
    tars = _tars(experiment, split_of(key))
    return _share(tars, int(name_of(key).split("-")[1]), min(tars, MOST_RANGES))


def images_of_tar(experiment: "Experiment", split: str, tar: int, images: int) -> range:
    """Return the images of one tar among so many of a split."""
    return _share(images, tar, _tars(experiment, split))


def images_of_range(experiment: "Experiment", key: str, images: dict[str, int]) -> int:
    """Count the images of a unit's range."""
    split = split_of(key)
    return sum(len(images_of_tar(experiment, split, tar, images[split])) for tar in tars_of(experiment, key))


def _tars(experiment: "Experiment", split: str) -> int:
    return {TRAIN: experiment.data.shards, HELDOUT: experiment.data.heldout_shards}[split]


def _share(total: int, part: int, parts: int) -> range:
    return range(total * part // parts, total * (part + 1) // parts)


def tags_keys(experiment: "Experiment", splits: tuple[str, ...] = SPLITS) -> list[str]:
    """List the units of the stage: the ranges of some splits, or nothing."""
    return range_keys(experiment, "concept_tags", splits) if experiment.concepts else []
