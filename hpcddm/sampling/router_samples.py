"""Images drawn from the experts, on which a router is trained where the sites keep their data to themselves."""

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
import torch
from jaxtyping import UInt8

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.experiment import Experiment, ExpertSamples
from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.schema import hashed
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.conditions.base import Condition
from hpcddm.diffusion.spaces.base import space_of
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, fresh, inside, reading
from hpcddm.files.atomic import digest
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.attempt import ENDED
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.stopping import Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import DRAWN, ROUTER_SAMPLES
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.unit_keys import expert_keys
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample

FIRST_NUMBER = 1 << 40
"""Number of the first image, from which its noise comes; larger than that of any evaluation's image."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """Plan of the images to draw: `counts` of each class from each expert, int64 (K, classes), and the batch."""

    counts: np.ndarray
    batch: int
    samples: ExpertSamples
    key: str
    """Hash over everything that the images depend on."""

    @classmethod
    def of(cls, settings: Experiment, inputs: dict[str, Manifest]) -> "Plan":
        """Share the images among experts in proportion to their clusters, and among classes as in each cluster.

        Classes are equally frequent for an expert whose class counts are not published.
        Raises `UserError` when the images are too few for an expert to draw a single one, and `ValueError` for an
        experiment whose router is not trained on samples.
        """
        samples, experts = settings.router.samples, [inputs[key] for key in expert_keys(settings)]
        if samples is None:
            raise ValueError("router.samples: this experiment has none")
        sizes = [expert.results["samples"] for expert in experts]
        is_counted = all(isinstance(size, int) and size > 0 for size in sizes)
        require(is_counted, "a manifest of the experts does not count its samples; fetch these units again")
        images = shares(sizes, samples.images * len(experts))
        even = [1] * (settings.data.num_classes or 1)
        by_class = [expert.results.get("class_counts", even) for expert in experts]
        for number, counts in enumerate(by_class):
            is_usable = len(counts) == len(even) and sum(counts) > 0
            require(is_usable, f"expert {number}: its manifest counts no samples, or those of other classes")
        rows = [shares(counts, n) for counts, n in zip(by_class, images, strict=True)]
        for number, count in enumerate(images):
            require(count > 0, f"router.samples.images: {samples.images} leave none for expert {number}; draw more")
        batch, conversion = settings.evaluate.batch, hashed(settings.evaluate.conversion)
        origin = {"experts": [(expert.fingerprint, expert.digest) for expert in experts], "conversion": conversion}
        drawn = {"samples": hashed(samples), "batch": batch, "seed": settings.seed}
        return cls(np.stack(rows), batch, samples, digest(origin | drawn | {"counts": np.stack(rows).tolist()}))

    @property
    def images(self) -> list[int]:
        """Number of images that each expert draws."""
        return self.counts.sum(1).tolist()

    @property
    def labels(self) -> np.ndarray:
        """Classes of all images, expert after expert, (N,)."""
        classes = np.tile(np.arange(self.counts.shape[1]), len(self.counts))
        return np.repeat(classes, self.counts.reshape(-1))

    @property
    def clusters(self) -> np.ndarray:
        """Experts of all images, (N,)."""
        return np.repeat(np.arange(len(self.counts)), self.images)

    def batches(self) -> list[tuple[int, range]]:
        """List the batches that are drawn together, as (expert, rows)."""
        batches, start = [], 0
        for expert, count in enumerate(self.images):
            stop = start + count
            batches += [
                (expert, range(first, min(first + self.batch, stop))) for first in range(start, stop, self.batch)
            ]
            start = stop
        return batches


def shares(proportions: Sequence[int], total: int) -> np.ndarray:
    """Split `total` by `proportions`, by largest remainders: int64, summing to `total`."""
    exact = total * np.asarray(proportions, dtype=np.float64) / np.sum(proportions)
    whole = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")[: total - whole.sum()]
    whole[largest] += 1
    return whole


def draw(settings: Experiment, unit: Unit) -> tuple[ArrayReader, Plan]:
    """Draw the missing images, all ranks together, and open them all: they lie in the unit's folder.

    Every batch that is drawn is stored at once, so that an attempt draws none that an earlier one has stored.
    Raises `Stopped` between two batches when a stop was requested.
    """
    plan = Plan.of(settings, unit.inputs)
    if not _is_there(unit, plan):
        folder = unit.state / f"drawn-{plan.key[:16]}"
        inside.make(folder)
        _draw_own(settings, unit, plan, folder)
        if unit.ranks.rank == 0:
            _pack(settings, unit, plan, folder)
        while not _is_there(unit, plan):
            _wait(unit)
    images = opened(unit.folder / ROUTER_SAMPLES, _shape(settings, sum(plan.images)))
    return ArrayReader(images, plan.labels, plan.clusters), plan


def opened(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "n h w c"]:
    """Map a file of images (npy) of just this shape; raises `Unreadable` for anything else."""
    with open(reading.open_regular(path), "rb") as file:
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


def _shape(settings: Experiment, images: int) -> tuple[int, int, int, int]:
    data = settings.data
    return images, data.image_size, data.image_size, data.channels


def _is_there(unit: Unit, plan: Plan) -> bool:
    record = fresh.read_mapping(unit.folder / DRAWN, dict[str, Any]) or {}
    return record.get("key") == plan.key and (unit.folder / ROUTER_SAMPLES).is_file()


def _draw_own(settings: Experiment, unit: Unit, plan: Plan, folder: Path) -> None:
    """Draw this rank's batches, one expert after the other, so that only one is in memory."""
    mine = plan.batches()[unit.ranks.rank :: unit.ranks.world_size]
    drawn = set(fresh.names(folder))
    missing = [(expert, rows) for expert, rows in mine if _file(folder, rows).name not in drawn]
    if _is_there(unit, plan):
        # Rank 0 found all batches of an earlier attempt, packed them and cleared the folder before this look into it.
        return
    total, device, condition = sum(plan.images), own_device(unit), conditions.build(settings.data)
    for expert, batches in groupby(missing, key=lambda batch: batch[0]):
        ensemble = load_ensemble.load_ensemble(settings, unit.run.unit, [expert_keys(settings)[expert]], device)
        for _, rows in batches:
            unit.stop_if_requested()
            images = _draw_batch(settings, unit, plan, ensemble, condition, expert, rows, device)
            unit.attempt.require_ownership()
            with _whole(_file(folder, rows)) as file:
                np.save(file, images)
            if unit.ranks.rank == 0:
                unit.heartbeat.beat(rows.stop, total)


def _draw_batch(
    settings: Experiment,
    unit: Unit,
    plan: Plan,
    ensemble: Ensemble,
    condition: Condition[ConditionSettings],
    expert: int,
    rows: range,
    device: torch.device,
) -> np.ndarray:
    """Draw images of one expert, uint8 (N, H, W, C), by Euler's method, with the conversion of the evaluation."""
    space, samples = space_of(settings.data, unit.input), plan.samples
    sampler = SamplerSettings(steps=samples.steps, guidance=samples.guidance, conversion=settings.evaluate.conversion)
    numbers = range(FIRST_NUMBER + rows.start, FIRST_NUMBER + rows.stop)
    asked = condition.of_classes(plan.labels[rows.start : rows.stop].tolist()).to(device)
    return space.to_images(
        sample(ensemble.field(f"expert-{expert}", sampler), settings.seed, numbers, asked, space, sampler)
    )


def _pack(settings: Experiment, unit: Unit, plan: Plan, folder: Path) -> None:
    """Pack all batches into one file, once the other ranks have drawn theirs."""
    batches = plan.batches()
    files = [_file(folder, rows) for _, rows in batches]
    while not {file.name for file in files} <= set(fresh.names(folder)):
        _wait(unit)
    unit.attempt.require_ownership()
    header = {"descr": "|u1", "fortran_order": False, "shape": _shape(settings, sum(plan.images))}
    with _whole(unit.folder / ROUTER_SAMPLES) as target:
        np.lib.format.write_array_header_1_0(target, header)
        for file, (_, rows) in zip(files, batches, strict=True):
            target.write(opened(file, _shape(settings, len(rows))).tobytes())
    drawn = {"key": plan.key, "counts": plan.counts.tolist(), **hashed(plan.samples)}
    atomic.write_json(unit.folder / DRAWN, drawn)
    with suppress(OSError):
        inside.remove(folder, unit.folder)


def _wait(unit: Unit) -> None:
    """Wait a moment for the other ranks; raises `Stopped` on request, or when rank 0 has left."""
    unit.stop_if_requested()
    if unit.ranks.rank > 0 and fresh.exists(unit.attempt.folder / ENDED):
        raise Stopped("rank 0 has left, or failed")
    time.sleep(POLL_SECONDS)


def _file(folder: Path, rows: range) -> Path:
    return folder / f"{rows.start:09d}-{rows.stop:09d}.npy"


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name once it is complete; raises `UserError` when the disk takes no more."""
    try:
        with atomic.replacing(path) as staged, open(staged, "wb") as file:
            yield file
    except OSError as error:
        raise UserError(f"{path}: cannot write the experts' samples: {error.strerror}") from error
