"""Images drawn from the experts, on which a router is trained if the sites do not share their data."""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import UInt8

from hpcddm.config.experiment import Experiment, ExpertSamples
from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.schema import settings_to_hash
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads, guarded_writes, nfs_reads
from hpcddm.files.atomic import digest
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.attempt import ENDED
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.stopping import Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import ROUTER_SAMPLES, ROUTER_SAMPLES_INFO
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.unit_keys import expert_keys
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.sampler import sample

FIRST_NUMBER = 1 << 40
"""Number of the first image, which determines its noise; larger than the numbers of evaluation images."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class SamplePlan:
    """Plan of the images to draw.

    Args:
        counts: (K, classes) int64 numbers of images per expert and class.
        batch: Number of images drawn together.
        samples: Settings of the router's samples.
        key: Hash of everything that determines the images.
    """

    counts: np.ndarray
    batch: int
    samples: ExpertSamples
    key: str
    """Hash of everything that the images depend on."""

    @classmethod
    def of(cls, experiment: Experiment, inputs: dict[str, Manifest]) -> "SamplePlan":
        """Distribute images over experts in proportion to their clusters, and over classes as in each cluster.

        If an expert does not publish its class counts, its classes are equally frequent.

        Args:
            experiment: Settings of the experiment.
            inputs: Manifests of the experts by unit key.

        Raises:
            UserError: There are too few images for an expert to draw even one, or a manifest lacks counts.
            ValueError: The router of the experiment is not trained on samples.
        """
        samples, experts = experiment.router.samples, [inputs[key] for key in expert_keys(experiment)]
        if samples is None:
            raise ValueError("router.samples: this experiment has none")
        sizes = [expert.results["samples"] for expert in experts]
        is_counted = all(isinstance(size, int) and size > 0 for size in sizes)
        require(is_counted, "a manifest of the experts does not count its samples; fetch these units again")
        images = shares(sizes, samples.images * len(experts))
        even = [1] * (experiment.data.num_classes or 1)
        by_class = [expert.results.get("class_counts", even) for expert in experts]
        for number, counts in enumerate(by_class):
            is_usable = len(counts) == len(even) and sum(counts) > 0
            require(is_usable, f"expert {number}: its manifest counts no samples, or those of other classes")
        rows = [shares(counts, n) for counts, n in zip(by_class, images, strict=True)]
        for number, count in enumerate(images):
            require(count > 0, f"router.samples.images: {samples.images} leave none for expert {number}; draw more")
        batch, conversion = experiment.evaluate.batch, settings_to_hash(experiment.evaluate.conversion)
        origin = {"experts": [(expert.fingerprint, expert.digest) for expert in experts], "conversion": conversion}
        drawn = {"samples": settings_to_hash(samples), "batch": batch, "seed": experiment.seed}
        return cls(np.stack(rows), batch, samples, digest(origin | drawn | {"counts": np.stack(rows).tolist()}))

    @property
    def images(self) -> list[int]:
        """Number of images per expert."""
        return self.counts.sum(1).tolist()

    @property
    def labels(self) -> np.ndarray:
        """Classes of all images, ordered by expert, (N,)."""
        classes = np.tile(np.arange(self.counts.shape[1]), len(self.counts))
        return np.repeat(classes, self.counts.reshape(-1))

    @property
    def clusters(self) -> np.ndarray:
        """Experts of all images, (N,)."""
        return np.repeat(np.arange(len(self.counts)), self.images)

    def batches(self) -> list[tuple[int, range]]:
        """List the batches, each as (expert, image numbers)."""
        batches, start = [], 0
        for expert, count in enumerate(self.images):
            stop = start + count
            batches += [(expert, rows) for rows in split_into_blocks(range(start, stop), self.batch)]
            start = stop
        return batches


def shares(proportions: Sequence[int], total: int) -> np.ndarray:
    """Split `total` in proportion to `proportions` by the largest-remainder method.

    Args:
        proportions: Nonnegative numbers with a positive sum.
        total: Sum of the shares.

    Returns:
        int64 shares, one per proportion, that sum to `total`.

    Examples:
        >>> shares([3, 2, 2], 10).tolist()
        [4, 3, 3]
    """
    exact = total * np.asarray(proportions, dtype=np.float64) / np.sum(proportions)
    whole = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")[: total - whole.sum()]
    whole[largest] += 1
    return whole


def draw_missing(experiment: Experiment, unit: Unit) -> tuple[ArrayReader, SamplePlan]:
    """Draw the missing images into the unit's folder, on all ranks together, and open all images.

    Every batch is stored as soon as it is drawn, so that a later attempt does not draw it again.

    Args:
        experiment: Settings of the experiment.
        unit: Unit of the router.

    Returns:
        Reader of all images, and their plan.

    Raises:
        Stopped: A stop was requested between two batches.
    """
    plan = SamplePlan.of(experiment, unit.inputs)
    if not _is_complete(unit, plan):
        folder = unit.state / f"drawn-{plan.key[:16]}"
        guarded_writes.make_folder(folder)
        _draw_batches_of_rank(experiment, unit, plan, folder)
        if unit.ranks.rank == 0:
            _pack(experiment, unit, plan, folder)
        while not _is_complete(unit, plan):
            _wait(unit)
    images = open_images(unit.folder / ROUTER_SAMPLES, _shape(experiment, sum(plan.images)))
    return ArrayReader(images, plan.labels, plan.clusters), plan


def open_images(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "n h w c"]:
    """Map a file of images (npy) into memory.

    Args:
        path: File of the images.
        shape: Expected shape (N, H, W, C).

    Raises:
        Unreadable: The file does not hold uint8 images of this shape.
    """
    with open(checked_reads.open_regular(path), "rb") as file:
        try:
            # It reads 10,000 bytes at most.
            np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0(file)
        except ValueError as error:
            raise Unreadable(path, f"is not a file of images ({error})") from None
        size, stored = math.prod(shape), os.fstat(file.fileno()).st_size - file.tell()
        if header != (shape, False, np.dtype(np.uint8)) or stored != size:
            raise Unreadable(path, f"holds {header[2]} {list(header[0])} in {stored:,} bytes, not {list(shape)} images")
        return np.memmap(file, np.uint8, "r", file.tell(), shape)


def _shape(experiment: Experiment, images: int) -> tuple[int, int, int, int]:
    data = experiment.data
    return images, data.image_size, data.image_size, data.channels


def _is_complete(unit: Unit, plan: SamplePlan) -> bool:
    record = nfs_reads.read_mapping(unit.folder / ROUTER_SAMPLES_INFO, dict[str, Any]) or {}
    return record.get("key") == plan.key and (unit.folder / ROUTER_SAMPLES).is_file()


def _draw_batches_of_rank(experiment: Experiment, unit: Unit, plan: SamplePlan, folder: Path) -> None:
    """Draw this rank's batches, one expert after the other, so that only one is in memory.

    They are drawn by Euler's method, with the conversion of the evaluation.
    """
    mine = plan.batches()[unit.ranks.rank :: unit.ranks.world_size]
    drawn = set(nfs_reads.list_names(folder))
    missing = [(expert, rows) for expert, rows in mine if _file(folder, rows).name not in drawn]
    if _is_complete(unit, plan):
        # Rank 0 found all batches of an earlier attempt, packed them and cleared the folder before this look into it.
        return
    total, device, condition = sum(plan.images), choose_device(unit), conditions.create_condition(experiment.data)
    space, samples = create_space(experiment.data, unit.input), plan.samples
    sampler = SamplerSettings(steps=samples.steps, guidance=samples.guidance, conversion=experiment.evaluate.conversion)
    for expert, batches in groupby(missing, key=lambda batch: batch[0]):
        ensemble = load_ensemble.load_ensemble(experiment, unit.run.unit, [expert_keys(experiment)[expert]], device)
        for _, rows in batches:
            unit.stop_if_requested()
            numbers = range(FIRST_NUMBER + rows.start, FIRST_NUMBER + rows.stop)
            asked = condition.of_classes(plan.labels[rows.start : rows.stop].tolist()).to(device)
            field = ensemble.field(f"expert-{expert}", sampler)
            images = space.to_images(sample(field, experiment.seed, numbers, asked, space, sampler))
            unit.attempt.require_ownership()
            with _atomic_file(_file(folder, rows)) as file:
                np.save(file, images)
            if unit.ranks.rank == 0:
                unit.heartbeat.beat(rows.stop, total)


def _pack(experiment: Experiment, unit: Unit, plan: SamplePlan, folder: Path) -> None:
    """Pack all batches into one file, after the other ranks have drawn theirs."""
    batches = plan.batches()
    files = [_file(folder, rows) for _, rows in batches]
    while not {file.name for file in files} <= set(nfs_reads.list_names(folder)):
        _wait(unit)
    unit.attempt.require_ownership()
    header = {"descr": "|u1", "fortran_order": False, "shape": _shape(experiment, sum(plan.images))}
    with _atomic_file(unit.folder / ROUTER_SAMPLES) as target:
        np.lib.format.write_array_header_1_0(target, header)
        for file, (_, rows) in zip(files, batches, strict=True):
            target.write(open_images(file, _shape(experiment, len(rows))).tobytes())
    drawn = {"key": plan.key, "counts": plan.counts.tolist(), **settings_to_hash(plan.samples)}
    atomic.write_json(unit.folder / ROUTER_SAMPLES_INFO, drawn)
    with suppress(OSError):
        guarded_writes.remove(folder, unit.folder)


def _wait(unit: Unit) -> None:
    """Wait a moment for the other ranks.

    Raises:
        Stopped: A stop was requested, or rank 0 has ended.
    """
    unit.stop_if_requested()
    if unit.ranks.rank > 0 and nfs_reads.exists(unit.attempt.folder / ENDED):
        raise Stopped("rank 0 has left, or failed")
    time.sleep(POLL_SECONDS)


def _file(folder: Path, rows: range) -> Path:
    return folder / f"{rows.start:09d}-{rows.stop:09d}.npy"


@contextmanager
def _atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is complete.

    Raises:
        UserError: The file cannot be written, for example because the disk is full.
    """
    try:
        with atomic.replacing(path) as staged, open(staged, "wb") as file:
            yield file
    except OSError as error:
        raise UserError(f"{path}: cannot write the experts' samples: {error.strerror}") from error
