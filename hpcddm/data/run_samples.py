"""Samples of a run for its stages: readers, lists and orders, by sample number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Integer, UInt8

from hpcddm.config import paths, variants
from hpcddm.config.data import DataSettings
from hpcddm.config.data_variants import AugmentationSettings, OrderSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.config.training import Expert
from hpcddm.data.augmentations.base import source_side
from hpcddm.data.catalog import Catalog, Folders, read_catalog, split_into_blocks
from hpcddm.data.columns import Column
from hpcddm.data.latent_moments import MIRRORED, MOMENTS
from hpcddm.data.loader import Loader
from hpcddm.data.orders.base import EpochOrder, ListOrder, RoundRobin
from hpcddm.data.reader import CatalogReader
from hpcddm.data.readings.base import Reading
from hpcddm.files.checked_reads import read_required_json
from hpcddm.jobs.unit import Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import CLUSTER_ORDER, EXAMPLE_IMAGES, PROBE_IMAGES
from hpcddm.runs.files import CATALOG_FILE, CLUSTERS, FEATURES, LATENTS, list_file, list_name, training_file
from hpcddm.runs.ranges import PROBE_SAMPLES, TRAIN, split_of
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, list_key

NUMBERS, CLUSTER, FEATURE = "numbers", "cluster", "features"
"""Names of the columns in the files of lists, clusters and features."""
NO_LABELS = np.zeros(0, dtype=np.int64)
"""Labels of images without classes."""
READ_TOGETHER = 32
"""Images that one thread reads ahead; a whole block of large images per thread would take gigabytes."""


def open_catalog(run: RunDir, split: str) -> Catalog:
    """Open the catalog of a split of a run.

    Args:
        run: Folder of the run.
        split: 'train' or 'heldout'.

    Raises:
        UserError: The file is missing or damaged.
    """
    return read_catalog(run.unit(CATALOG) / CATALOG_FILE, split, run.root, _adopted_folders(run))


def _adopted_folders(run: RunDir) -> Folders:
    """Return a function that reads the folders of the existing tars from the experiment of a run, once."""

    @cache
    def folders() -> dict[str | None, Path]:
        experiment = read_required_json(run.experiment)
        source = validate(DataSettings, experiment.get("data", {}), str(run.experiment)).source
        return paths.make_absolute(source, run.root).source_folders()

    return folders


def open_unit_catalog(unit: Unit, split: str) -> Catalog:
    """Open the catalog of a split for a unit; raise `KeyError` if the unit does not declare the catalog as an input."""
    unit.input(CATALOG, CATALOG_FILE)
    return open_catalog(unit.run, split)


def range_of(unit: Unit) -> range:
    """Return the numbers of the samples in the range of a unit."""
    return open_unit_catalog(unit, split_of(unit.key)).numbers_in_range(unit.name)


def open_reader(unit: Unit, split: str) -> CatalogReader:
    """Open a reader of a split for a unit; it returns clusters if the expert lists are an input of the unit."""
    catalog = open_unit_catalog(unit, split)
    return CatalogReader(catalog, clusters(catalog) if EXPERT_LISTS in unit.inputs else None)


def prefetch_images(
    reader: CatalogReader, numbers: range, size: int, threads: int
) -> Iterator[tuple[range, UInt8[np.ndarray, "n h w c"]]]:
    """Yield consecutive blocks of samples with their images, which threads read ahead.

    Args:
        reader: Reader of the samples.
        numbers: Numbers of all samples.
        size: Number of samples in a block.
        threads: Number of threads.

    Yields:
        Numbers of a block and its images, (N, H, W, C), uint8.
    """
    parts = (part for block in split_into_blocks(numbers, size) for part in split_into_blocks(block, READ_TOGETHER))
    with Loader(reader.images, parts, threads) as images:
        for block in split_into_blocks(numbers, size):
            yield block, np.concatenate([next(images) for _ in split_into_blocks(block, READ_TOGETHER)])


@contextmanager
def training_reader(
    experiment: Experiment,
    unit: Unit,
    list_numbers: Column | None = None,
    augmentations: Sequence[AugmentationSettings] = (),
) -> Iterator[CatalogReader]:
    """Open a reader of the training samples that reads images by the method `data.read_from`.

    Args:
        experiment: Experiment of the run.
        unit: Unit that trains.
        list_numbers: Numbers of the samples on the unit's list; None for a training on all samples.
        augmentations: Augmentations of the images. Some need larger squares of the pictures in existing tars.

    Yields:
        The reader, valid inside the context.
    """
    catalog, reading = open_unit_catalog(unit, TRAIN), variants.create(Reading, experiment.data.read_from)
    if catalog.image_format is not None:
        size = source_side(augmentations, catalog.image_format.size)
        catalog = catalog.with_image_format(replace(catalog.image_format, size=size))
    with reading.open_images(unit, catalog, list_numbers) as images:
        yield CatalogReader(catalog, clusters(catalog) if EXPERT_LISTS in unit.inputs else None, images)


def clusters(split_catalog: Catalog) -> Column:
    """Map the clusters of all samples of a split, (N,)."""
    return split_catalog.column_of_stage("assign", CLUSTERS, CLUSTER)


def features(split_catalog: Catalog) -> Column:
    """Map the features of all samples of a split that the clustering used, (N, D)."""
    return split_catalog.column_of_stage("encode", FEATURES, FEATURE)


def latents(split_catalog: Catalog) -> Column:
    """Map the moments of the latents of all samples of a split."""
    return split_catalog.column_of_stage("latents", LATENTS, MOMENTS)


def mirrored_latents(split_catalog: Catalog) -> Column:
    """Map the moments of the latents of the mirrored images of a split."""
    return split_catalog.column_of_stage("latents", LATENTS, MIRRORED)


def expert_list(unit: Unit, expert: Expert) -> Column:
    """Map the numbers of an expert's own samples in ascending order; for a cluster's expert, all of the cluster."""
    path = unit.input(list_key(expert), list_file(expert))
    return Column(NUMBERS, {path: list_results(unit.inputs, expert)["samples"]})


def sample_expert_list(unit: Unit, expert: Expert, seed: int, count: int) -> Int64[np.ndarray, " n"]:
    """Draw some of an expert's own samples at random.

    Args:
        unit: Unit that reads the list.
        expert: The expert.
        seed: Seed of the experiment.
        count: Number of samples; all are returned if there are fewer.

    Returns:
        Numbers of the samples in random order; with a larger `count` the result begins with the same numbers.
    """
    numbers = expert_list(unit, expert)
    # Not the first ones: sources are often sorted by class.
    stream = EXAMPLE_IMAGES.format(list_name=list_name(expert))
    return numbers.gather(keyed.random_subset(seed, stream, len(numbers), count)).astype(np.int64)


def probe_samples(heldout: Catalog, experiment: Experiment) -> list[Int64[np.ndarray, " n"]]:
    """Draw the held-out images of every cluster on which experts are probed.

    Args:
        heldout: Catalog of the held-out images.
        experiment: Experiment of the run.

    Returns:
        Numbers of the images by cluster, in random order; empty for a cluster without any.
    """
    of_sample = clusters(heldout).gather(range(len(heldout)))
    own = [np.flatnonzero(of_sample == cluster) for cluster in range(experiment.cluster.experts)]
    # Not the first ones: sources are often sorted by class.
    return [numbers[keyed.random_subset(experiment.seed, PROBE_IMAGES, len(numbers), PROBE_SAMPLES)] for numbers in own]


def training_list(unit: Unit, expert: Expert) -> Column:
    """Map the numbers of an expert's training samples: its own and the `experts.other_clusters_share` of others."""
    results = list_results(unit.inputs, expert)
    if "other_clusters" not in results:
        return expert_list(unit, expert)
    path = unit.input(list_key(expert), training_file(expert))
    return Column(NUMBERS, {path: results["samples"] + results["other_clusters"]})


def order_of(experiment: Experiment, seed: int, stream: str, size: int) -> EpochOrder[OrderSettings]:
    """Return the order `data.order` of a training.

    Args:
        experiment: Experiment of the run.
        seed: Seed of the order.
        stream: Stream of the training.
        size: Number of samples.
    """
    return variants.create(EpochOrder, experiment.data.order, seed, stream, size)


def list_order(experiment: Experiment, stream: str, numbers: Column | Integer[np.ndarray, " n"]) -> ListOrder:
    """Return the order `data.order` of a training on a list of samples.

    Args:
        experiment: Experiment of the run.
        stream: Stream of the training.
        numbers: Numbers of the samples on the list, (N,).
    """
    return ListOrder(numbers, order_of(experiment, experiment.seed, stream, len(numbers)))


def balanced_order(
    experiment: Experiment, stream: str, lists: Sequence[Column | Integer[np.ndarray, " _"]]
) -> RoundRobin:
    """Return an order that takes a sample of each cluster in turn.

    Within a cluster, every sample comes equally often, so images and classes keep their frequencies.

    Args:
        experiment: Experiment of the run.
        stream: Stream of the training.
        lists: Numbers of the samples of every cluster; empty clusters are omitted.
    """
    present = [
        (f"{stream}/{CLUSTER_ORDER.format(cluster=cluster)}", numbers)
        for cluster, numbers in enumerate(lists)
        if len(numbers)
    ]
    return RoundRobin([list_order(experiment, part, numbers) for part, numbers in present])


def read_labels(experiment: Experiment, reader: CatalogReader, numbers: Int64[np.ndarray, " n"]) -> np.ndarray:
    """Read the classes of some samples, (N,) int64; empty where the images have no classes."""
    return NO_LABELS if experiment.data.num_classes is None else reader.labels(numbers).numpy()
