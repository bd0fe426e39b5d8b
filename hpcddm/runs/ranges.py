"""Ranges of tars: each stage that processes all samples has one unit per range, at most `MAX_RANGES` per split."""

from typing import TYPE_CHECKING

from hpcddm.runs.unit_keys import unit_name

if TYPE_CHECKING:
    # Code that reads a column does not need the schema.
    from hpcddm.config.experiment import Experiment

PROBE_SAMPLES = 64
"""Held-out images of every cluster in a probe, at most; sites agree on them in their contract."""
TRAIN, HELDOUT = "train", "heldout"
SPLITS = (TRAIN, HELDOUT)
MAX_RANGES = 256
"""Largest number of units per stage and split: `status` reads all their manifests, and every reader maps them all."""


def range_keys(experiment: "Experiment", stage: str, splits: tuple[str, ...] = SPLITS) -> list[str]:
    """List the units of a stage that processes ranges of tars.

    Args:
        experiment: The experiment, which sets the number of tars per split.
        stage: Name of the stage.
        splits: Splits to list, in this order.

    Returns:
        The keys of the units, as `stage/split-number`.

    Examples:
        >>> from hpcddm.loading.load_experiment import load_experiment
        >>> experiment = load_experiment("quickstart", ("data.shards=2",))
        >>> range_keys(experiment, "encode")
        ['encode/train-000', 'encode/train-001', 'encode/heldout-000']
        >>> tars_of(experiment, "encode/train-001")
        range(1, 2)
    """
    return [
        f"{stage}/{split}-{number:03d}"
        for split in splits
        for number in range(min(_tars(experiment, split), MAX_RANGES))
    ]


def split_of(key: str) -> str:
    """Return the split that a unit's range belongs to."""
    return unit_name(key).split("-")[0]


def tars_of(experiment: "Experiment", key: str) -> range:
    """Return the numbers of the tars in a unit's range, within their split."""
    tars = _tars(experiment, split_of(key))
    return _share(tars, int(unit_name(key).split("-")[1]), min(tars, MAX_RANGES))


def images_of_tar(experiment: "Experiment", split: str, tar: int, images: int) -> range:
    """Return the numbers of the images in one tar.

    Args:
        experiment: The experiment, which sets the number of tars per split.
        split: `train` or `heldout`.
        tar: Number of the tar within the split.
        images: Number of images in the split.
    """
    return _share(images, tar, _tars(experiment, split))


def images_of_range(experiment: "Experiment", key: str, images: dict[str, int]) -> int:
    """Count the images in a unit's range.

    Args:
        experiment: The experiment, which sets the number of tars per split.
        key: The unit, as `stage/split-number`.
        images: Number of images in each split.
    """
    split = split_of(key)
    return sum(len(images_of_tar(experiment, split, tar, images[split])) for tar in tars_of(experiment, key))


def _tars(experiment: "Experiment", split: str) -> int:
    return {TRAIN: experiment.data.shards, HELDOUT: experiment.data.heldout_shards}[split]


def _share(total: int, part: int, parts: int) -> range:
    return range(total * part // parts, total * (part + 1) // parts)


def tags_keys(experiment: "Experiment", splits: tuple[str, ...] = SPLITS) -> list[str]:
    """List the units of the stage `concept_tags` for some splits; empty if the experiment has no `concepts`."""
    return range_keys(experiment, "concept_tags", splits) if experiment.concepts else []
