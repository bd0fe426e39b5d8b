"""Estimates of what a run will write, from its settings alone: bytes and files (inodes) per unit, without torch."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.paths import make_absolute
from hpcddm.config.site import Site
from hpcddm.files.atomic import free_bytes, nearest_existing
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.checks import quotas
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.unit_graph import kind_of
from hpcddm.runs import manifest
from hpcddm.runs.passed_over import Counts, count_items, merge_counts
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import split_results
from hpcddm.runs.unit_keys import CATALOG

MANIFEST_BYTES = 8_000
"""Bytes of the small files of every unit: manifest, spec, heartbeat, records of the attempt, HDF5's own headers."""
LOG_BYTES = 20_000
"""Bytes of the log of one rank in one attempt: a few lines per state that is saved."""
UNIT_FILES = 6
"""The unit's folder, its manifest, lease and spec, the folder of its logs and its share of script and journal."""
ATTEMPT_FILES = 14
"""The attempt's folder with owner, begin, heartbeat, end, verdict and meeting; the scheduler's own files."""
RANK_FILES = 2


def image_counts(experiment: Experiment, run: RunDir) -> dict[str, int]:
    """Count the images of 'train' and 'heldout', by the catalog's manifest, else by the source.

    Raises `UserError` that names the fault in the source.
    """
    from hpcddm.sources.base import Source

    if (catalog := manifest.read_if_usable(run.unit(CATALOG))) is not None:
        return {split: split_results({CATALOG: catalog}, split)["samples"] for split in SPLITS}
    opened = variants.create(Source, make_absolute(experiment.data.source, run.root))
    return {split: len(opened.open_split(split)) for split in SPLITS}


def count_passed_over(experiment: Experiment, run: RunDir) -> Counts:
    """Count skipped samples, from the catalog's manifest or else from the source's quick estimate."""
    from hpcddm.sources.base import Source
    from hpcddm.sources.filtering import Filter

    if (catalog := manifest.read(run.unit(CATALOG))) is not None:
        return catalog.results.get("passed_over", {})
    data = make_absolute(experiment.data, run.root)
    opened = variants.create(Source, data.source)
    splits = [opened.open_split(split) for split in SPLITS]
    without_row = Filter.from_settings(data).samples_without_row(splits, opened.prefix)
    return merge_counts(map(count_items, [*(records.passed_over for records in splits), without_row]))


def estimate_unit(
    unit: PlannedUnit, experiment: Experiment, site: Site, counts: dict[str, int], attempts: int = 1
) -> DiskSpace:
    """Estimate the disk space that a unit needs in so many attempts."""
    ranks = site.resources_for(*unit.key.split("/")).ranks
    stage_need = kind_of(unit.key).disk(experiment, unit.key, counts, ranks)
    if site.keep_states:
        stage_need = stage_need.with_last_state()
    logs = LOG_BYTES * attempts * ranks
    files = UNIT_FILES + attempts * (ATTEMPT_FILES + RANK_FILES * ranks)
    return stage_need + DiskSpace(MANIFEST_BYTES + logs, 0, files)


def still_needed(
    units: list[PlannedUnit], experiment: Experiment, site: Site, run: RunDir, counts: dict[str, int]
) -> DiskSpace:
    """Estimate the peak disk space of these units, less the space that their folders already use.

    All results stay; checkpoints exist for as many units as may train at the same time.
    """
    needs = [estimate_unit(unit, experiment, site, counts) for unit in units]
    parallel = site.max_parallel if site.scheduler == "slurm" else (site.cores or os.cpu_count() or 1)
    working = sum(sorted((need.working for need in needs), reverse=True)[:parallel])
    there = [status for unit in units for status in _statuses(run.unit(unit.key))]
    present = sum(status.st_size for status in there)
    total = sum(needs, DiskSpace())
    return DiskSpace(max(total.kept + working - present, 0), 0, max(total.files - len(there), 0))


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    for file in folder.rglob("*"):
        # A training that runs renames and removes its states meanwhile.
        with suppress(FileNotFoundError):
            yield file.lstat()


def free_space(folder: Path) -> tuple[int, int | None]:
    """Return free bytes and inodes where `folder` is or will be; None where inodes are not counted.

    Both the disk and the user's quota, where one is known, limit them.
    """
    folder = nearest_existing(folder.resolve())
    statistics, disk = os.statvfs(folder), free_bytes(folder)
    inodes = statistics.f_favail if statistics.f_files else None
    quota_bytes, quota_files = quotas.remaining_quota(folder)
    files = [count for count in (inodes, quota_files) if count is not None]
    return disk if quota_bytes is None else min(disk, quota_bytes), min(files, default=None)


def format_bytes(count: int) -> str:
    """Format bytes for people: '12.3 GB'."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
