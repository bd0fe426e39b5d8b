"""Samples of a run for its stages: readers, lists, orders and the evaluation set, by sample number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from jaxtyping import Int64, Integer, UInt8

from hpcddm.config import variants
from hpcddm.config.data import AugmentationSettings, OrderSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.data import draws, evaluation_set
from hpcddm.data.augmentations.base import source_side
from hpcddm.data.catalog import Catalog, blocks_of, open_catalog
from hpcddm.data.columns import Column
from hpcddm.data.latents import MIRRORED, MOMENTS
from hpcddm.data.loader import Loader
from hpcddm.data.orders.base import EpochOrder, Listed, Turns
from hpcddm.data.reader import TarReader
from hpcddm.data.readings.base import Reading
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import CATALOG_FILE, CLUSTERS, FEATURES, LATENTS, list_file, list_name, training_file
from hpcddm.runs.ranges import HELDOUT, TRAIN, split_of
from hpcddm.runs.stored_results import class_names, list_results
from hpcddm.runs.unit_keys import CATALOG, LISTS, list_key

NUMBERS, CLUSTER, FEATURE = "numbers", "cluster", "features"
"""Columns of a list, of the clusters and of the features."""
READ_TOGETHER = 32
"""Images that one thread reads ahead: of large ones a whole block for each thread would take gigabytes."""


def catalog(unit: Unit, split: str) -> Catalog:
    """Open the catalog of a split; raises `KeyError` for a unit that does not declare that it reads it."""
    unit.input(CATALOG, CATALOG_FILE)
    return open_catalog(unit.run, split)


def range_of(unit: Unit) -> range:
    """Return the numbers of the samples in the range of a unit."""
    return catalog(unit, split_of(unit.key)).numbers_of(unit.name)


def reader(unit: Unit, split: str) -> TarReader:
    """Open a reader of a split; it knows the clusters where the unit reads the lists."""
    own = catalog(unit, split)
    return TarReader(own, clusters(own) if LISTS in unit.inputs else None)


def images_ahead(
    reader: TarReader, numbers: range, size: int, threads: int
) -> Iterator[tuple[range, UInt8[np.ndarray, "n h w c"]]]:
    """Yield consecutive blocks of samples with their images, which threads read ahead of their use."""
    parts = (part for block in blocks_of(numbers, size) for part in blocks_of(block, READ_TOGETHER))
    with Loader(reader.images, parts, threads) as images:
        for block in blocks_of(numbers, size):
            yield block, np.concatenate([next(images) for _ in blocks_of(block, READ_TOGETHER)])


@contextmanager
def training_reader(
    settings: Experiment,
    unit: Unit,
    listed: Column | None = None,
    augmented: Sequence[AugmentationSettings] = (),
) -> Iterator[TarReader]:
    """Open a reader of the training samples as `data.reading` has it; listed: those of the list that is trained on.

    augmented: augmentations of the images, which may want larger squares of the pictures in adopted tars.
    """
    own, reading = catalog(unit, TRAIN), variants.create(Reading, settings.data.reading)
    if own.form is not None:
        own = own.seen_in(replace(own.form, size=source_side(augmented, own.form.size)))
    with reading.opened(unit, own, listed) as images:
        yield TarReader(own, clusters(own) if LISTS in unit.inputs else None, images)


def clusters(own: Catalog) -> Column:
    """Map the clusters of all samples of a split."""
    return own.made_by("assign", CLUSTERS, CLUSTER)


def features(own: Catalog) -> Column:
    """Map the features of all samples of a split, by which they were clustered."""
    return own.made_by("encode", FEATURES, FEATURE)


def latents(own: Catalog) -> Column:
    """Map the moments of the latents of all samples of a split."""
    return own.made_by("latents", LATENTS, MOMENTS)


def mirrored(own: Catalog) -> Column:
    """Map the moments of the latents of all samples of a split, mirrored."""
    return own.made_by("latents", LATENTS, MIRRORED)


def expert_list(unit: Unit, expert: Expert) -> Column:
    """Map the numbers of an expert's own samples, of a cluster all of them, in ascending order."""
    path = unit.input(list_key(expert), list_file(expert))
    return Column(NUMBERS, {path: list_results(unit.inputs, expert)["samples"]})


def drawn_from(unit: Unit, expert: Expert, seed: int, count: int) -> Int64[np.ndarray, " n"]:
    """Draw the numbers of some of an expert's own samples at random, or of all; those of a larger count begin so."""
    own = expert_list(unit, expert)
    # Not the first ones: sources are often sorted by class.
    return own.gather(draws.chosen(seed, f"shown/{list_name(expert)}", len(own), count)).astype(np.int64)


def training_list(unit: Unit, expert: Expert) -> Column:
    """Map the numbers of the samples that an expert is trained on: its own, and those of `experts.foreign_share`."""
    described = list_results(unit.inputs, expert)
    if "foreign" not in described:
        return expert_list(unit, expert)
    path = unit.input(list_key(expert), training_file(expert))
    return Column(NUMBERS, {path: described["samples"] + described["foreign"]})


def order_of(settings: Experiment, seed: int, stream: str, size: int) -> EpochOrder[OrderSettings]:
    """Return the order of `data.order` for a training on so many samples."""
    return variants.create(EpochOrder, settings.data.order, seed, stream, size)


def list_order(settings: Experiment, stream: str, numbers: Column | Integer[np.ndarray, " n"]) -> Listed:
    """Return the order of `data.order` for a training on a list of samples."""
    return Listed(numbers, order_of(settings, settings.seed, stream, len(numbers)))


def balanced_order(settings: Experiment, stream: str, lists: Sequence[Column | Integer[np.ndarray, " _"]]) -> Turns:
    """Return an order that takes the clusters in turn; within a cluster every sample is seen equally often.

    So its images and classes keep their own frequencies. lists: the samples of every cluster; those without any are
    left out.
    """
    present = [(cluster, numbers) for cluster, numbers in enumerate(lists) if len(numbers)]
    return Turns([list_order(settings, f"{stream}/cluster-{cluster}", numbers) for cluster, numbers in present])


def evaluated(unit: Unit, settings: Experiment, split: str = HELDOUT) -> Int64[np.ndarray, " n"]:
    """Return the numbers of the samples of a split by the place that the evaluation has them at, from place 0 on."""
    return evaluation_numbers(catalog(unit, split), settings, class_names(settings, unit.inputs))


def evaluation_numbers(own: Catalog, settings: Experiment, names: Sequence[str]) -> Int64[np.ndarray, " n"]:
    """Choose those of a split's samples that the evaluation takes: balanced over classes where there are any.

    Those of the places before its first one are among them. names: of the classes. Raises `UserError` when there are
    too few.
    """
    count = settings.evaluate.first + settings.evaluate.images
    if settings.data.num_classes is None:
        return evaluation_set.drawn(len(own), count, settings.seed)
    return evaluation_set.balanced(own.column("label"), names, count)
