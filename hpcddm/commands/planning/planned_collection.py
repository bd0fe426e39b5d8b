"""Collection in a plan: files and bytes of the images, the time of their index and of one expert's epoch."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcddm.commands.planning.benchmark import Benchmark, describe_machine
from hpcddm.commands.planning.read_amplification import bytes_per_byte
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.data.sample_file import size_and_mtime
from hpcddm.errors import UserError
from hpcddm.runs.ranges import SPLITS, TRAIN
from hpcddm.runs.unit_keys import expert_key
from hpcddm.sources.base import InPlaceSource
from hpcddm.stages.workload import READING, Work

SAMPLES = 256
"""Samples by which the speed of reading is measured, for each rank."""


@dataclass(frozen=True)
class PlannedCollection:
    """The files that a run reads, its own tars or existing files; None means unknown."""

    files: int
    bytes: int | None
    """Bytes of existing tars, or the most that the run's own tars may have; unknown for pictures read in place."""
    samples: dict[str, int]
    """Samples of 'train' and 'heldout'; of tars that are not indexed yet, by the first one."""
    index_units: int
    index_hours: float | None
    """Hours of the longest unit of the stage shard, which finds the samples, and decodes every picture once."""
    epoch_samples: int
    """Samples of an expert, on average."""
    epoch_hours: float | None
    """Hours in which all ranks of an expert read its samples once, without training."""
    epoch_detail: str
    bytes_per_byte: float | None
    """Bytes that an expert reads for each byte of its images."""


def plan_collection(
    experiment: Experiment,
    counts: dict[str, int],
    site: Site,
    benchmark: Benchmark,
    index: tuple[int, float | None],
    bytes_written: int,
) -> PlannedCollection:
    """Describe the images of an experiment.

    counts: samples by split; index: number of units of the stage shard, and hours of the longest; bytes_written: the
    most that this stage writes.
    """
    files, size = _stored(experiment, counts, bytes_written)
    samples = -(-counts[TRAIN] // experiment.cluster.experts)
    hours, detail = _epoch(samples, site, benchmark)
    ratio = None
    with suppress(UserError):
        ratio = bytes_per_byte(experiment)
    return PlannedCollection(files, size, counts, *index, samples, hours, detail, ratio)


def _stored(experiment: Experiment, counts: dict[str, int], bytes_written: int) -> tuple[int, int | None]:
    """Count the tars and their bytes; None for adopted ones that are not here.

    Where their number is assumed, their samples are taken to be as large as those that are here.
    """
    data = experiment.data
    if data.source.reads_in_place and not data.source.uses_existing_tars:
        return sum(counts.values()), None
    if not data.source.uses_existing_tars:
        return data.shards + data.heldout_shards, bytes_written
    source = variants.create(InPlaceSource, data.source)
    try:
        train, heldout = ({tar.path for tar in source.tars(split)} for split in SPLITS)
        samples = len(source.open_split(TRAIN))
    except UserError:
        return data.shards, None
    if len(train) == data.shards:
        return len(train | heldout), _size(train | heldout)
    files = data.shards + (0 if train & heldout else data.heldout_shards)
    return files, _size(train) * sum(counts.values()) // samples if samples else None


def _size(paths: set[Path]) -> int:
    """Return the bytes of some tars together."""
    return sum(size_and_mtime(path)[0] for path in paths)


def _epoch(samples: int, site: Site, benchmark: Benchmark) -> tuple[float | None, str]:
    """Return the hours in which an expert's ranks read so many samples, and how they were measured, or why not."""
    resources = site.resources_for(*expert_key(0).split("/"))
    ranks, threads = resources.ranks, resources.cpus_per_rank
    try:
        seconds = benchmark.seconds(Work(READING, False, samples, SAMPLES * ranks), ranks, threads, False)
    except UserError as error:
        return None, str(error)
    text = f"{SAMPLES} samples by one process of {threads} threads on {describe_machine(False)}, past the page cache"
    return seconds / 3600, f"{text}; {ranks} ranks read at once"
