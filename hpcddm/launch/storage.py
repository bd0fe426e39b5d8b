"""Estimates of what a run will write, from its settings alone: bytes and files (inodes) per unit, without torch."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcddm import plugins
from hpcddm.config import Experiment, Training
from hpcddm.launch import quotas
from hpcddm.pipeline import CLASSIFIER, EXTRACTOR, PlannedUnit, evaluate_range, expert_number
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.site import Site

TAR_BLOCK, PNG_CHUNKS = 512, 80
LABELS = 16
"""Class and cluster of a sample of the experts."""
INDEX_ROW = 32
"""Bytes of one row of `data.tar.SAMPLE`."""
KEY_BYTES = 48
MANIFEST_BYTES = 8_000
"""Bytes of the small files of every unit: manifest, spec, heartbeat, records of the attempt, HDF5's own headers."""
LOG_BYTES = 20_000
"""Bytes of the log of one rank in one attempt: a few lines per state that is saved."""
CURVE_POINT = 80
"""Bytes of one point of a loss curve, as JSON and as TensorBoard event."""
KEPT_STATES, STAGED_STATES = 2, 1
REPORT_BYTES, CLUSTER_PICTURES, GALLERY_PICTURES = 200_000, 48, 20
"""The page's plots and text; pictures per cluster, and in the gallery per arm and per expert."""
UNIT_FILES = 6
"""The unit's folder, its manifest, lease and spec, the folder of its logs and its share of script and journal."""
ATTEMPT_FILES = 14
"""The attempt's folder with owner, begin, heartbeat, end, verdict and meeting; the scheduler's own files."""
RANK_FILES = 2
STATE_FILES = 6
"""Files of a training state of one rank; every further rank writes two more."""


@dataclass(frozen=True)
class Need:
    """Disk space that one unit needs, or several together."""

    kept: int = 0
    """Bytes that stay when it is complete."""
    working: int = 0
    """Further bytes while it runs, removed at its end: training states."""
    files: int = 0
    """Number of files and folders, those of the training states included."""

    def __add__(self, other: "Need") -> "Need":
        return Need(self.kept + other.kept, self.working + other.working, self.files + other.files)


def image_counts(experiment: Experiment, run: RunDir) -> dict[str, int]:
    """Count the images of 'train' and 'heldout', by the shards' manifests, else by the source.

    Raises `UserError` naming what is wrong with the source.
    """
    data, counts = experiment.data, {}
    for split, parts in (("train", data.shards), ("heldout", data.heldout_shards)):
        shards = [manifest.read(run.unit(f"shard/{split}-{part:03d}")) for part in range(parts)]
        if all(shards):
            counts[split] = sum(shard.results["images"] for shard in shards)
        else:
            source = data.source.model_copy(update={"folder": str((run.root / data.source.folder).resolve())})
            counts[split] = len(plugins.load("data/sources", data.source.name).open_split(source, split))
    return counts


def estimate(unit: PlannedUnit, experiment: Experiment, site: Site, counts: dict[str, int], attempts: int = 1) -> Need:
    """Estimate the disk space that a unit needs in so many attempts."""
    ranks = site.resources_for(*unit.key.split("/")).ranks
    stage_need = _ESTIMATES[unit.stage](unit.key, experiment, counts, ranks)
    logs = LOG_BYTES * attempts * ranks
    files = UNIT_FILES + attempts * (ATTEMPT_FILES + RANK_FILES * ranks)
    return stage_need + Need(MANIFEST_BYTES + logs, 0, files)


def still_needed(
    units: list[PlannedUnit], experiment: Experiment, site: Site, run: RunDir, counts: dict[str, int]
) -> Need:
    """Estimate the most that these units need at the same time, less what lies in their folders already.

    Every result stays; states are there for as many units as may train together.
    """
    needs = [estimate(unit, experiment, site, counts) for unit in units]
    parallel = site.max_parallel if site.scheduler == "slurm" else (site.cores or os.cpu_count() or 1)
    working = sum(sorted((need.working for need in needs), reverse=True)[:parallel])
    there = [status for unit in units for status in _statuses(run.unit(unit.key))]
    present = sum(status.st_size for status in there)
    total = sum(needs, Need())
    return Need(max(total.kept + working - present, 0), 0, max(total.files - len(there), 0))


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    for file in folder.rglob("*"):
        # A training that runs renames and removes its states meanwhile.
        with suppress(FileNotFoundError):
            yield file.lstat()


def free(folder: Path) -> tuple[int, int | None]:
    """Return free bytes and inodes where `folder` is or will be; None where inodes are not counted.

    Both the disk and the user's quota, where one is known, limit them.
    """
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    statistics = os.statvfs(folder)
    inodes = statistics.f_favail if statistics.f_files else None
    disk = statistics.f_bavail * statistics.f_frsize
    quota_bytes, quota_files = quotas.remaining(folder)
    files = [count for count in (inodes, quota_files) if count is not None]
    return disk if quota_bytes is None else min(disk, quota_bytes), min(files, default=None)


def readable(count: int) -> str:
    """Format bytes for people: '12.3 GB'."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def state_bytes(parameters: int, training: Training) -> int:
    """Return the bytes of a training state: weights as trained, and in fp32 masters, two AdamW moments and EMA."""
    weight_bytes = 2 if training.precision == "bf16" else 4
    return parameters * (weight_bytes + 4 + 8 + 4)


def _share(count: int, part: int, parts: int) -> int:
    return count * (part + 1) // parts - count * part // parts


def _images_of(key: str, experiment: Experiment, counts: dict[str, int]) -> int:
    """Count the images of one shard."""
    split, part = key.split("/")[1].split("-")
    parts = experiment.data.shards if split == "train" else experiment.data.heldout_shards
    return _share(counts[split], int(part), parts)


def _pixels(experiment: Experiment) -> int:
    return experiment.data.image_size**2 * experiment.data.channels


def _shard(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    # A PNG of pure noise: a byte more per row, and its chunks. Image and class are an entry each, in whole blocks.
    largest = _pixels(experiment) + experiment.data.image_size + PNG_CHUNKS
    entry_bytes = -(-largest // TAR_BLOCK) * TAR_BLOCK
    per_image = entry_bytes + 3 * TAR_BLOCK + INDEX_ROW + KEY_BYTES
    return Need(_images_of(key, experiment, counts) * per_image, 0, 3)


def _encode(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    dimensions = experiment.encode.encoder.dimensions(experiment.data)
    return Need(_images_of(key, experiment, counts) * dimensions * 4, 0, 1)


def _cluster(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    # Every training image stands in two lists: in that of the split, and in its expert's.
    rows = 2 * counts["train"] + counts["heldout"]
    centroids = 4 * 1024 * experiment.encode.encoder.dimensions(experiment.data)
    return Need(rows * INDEX_ROW + centroids, 0, experiment.cluster.experts + 3)


def _trained(parameters: int, training: Training) -> Need:
    states = KEPT_STATES + STAGED_STATES
    curve = CURVE_POINT * (training.images // training.log_images + 1)
    # The folder of the states, weights, curve, TensorBoard's folder and file.
    return Need(4 * parameters + curve, states * state_bytes(parameters, training), 5 + states * (STATE_FILES + 2))


def _train(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    config = experiment.expert_config(expert_number(key))
    parameters = config.model.parameters(experiment.data, None)
    training = experiment.experts.training.model_copy(update={"precision": config.precision})
    return _trained(parameters, training) + _per_rank(ranks)


def _route(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    router = experiment.router
    parameters = router.model.parameters(experiment.data, experiment.cluster.experts)
    if router.training is None:
        return Need(4 * parameters, 0, 1)
    drawn = router.samples.images * experiment.cluster.experts if router.samples else 0
    size = drawn * (_pixels(experiment) + LABELS)
    # While they are drawn they lie there batch by batch, and once more when they are put together.
    samples = Need(size, size, 2 + drawn // experiment.evaluate.batch if drawn else 0)
    return _trained(parameters, router.training) + samples + _per_rank(ranks)


def _measuring(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    network = {EXTRACTOR: experiment.measuring.extractor, CLASSIFIER: experiment.measuring.classifier}[key]
    parameters = network.model.parameters(experiment.data, experiment.data.num_classes)
    return _trained(parameters, network.training) + _per_rank(ranks)


def _per_rank(ranks: int) -> Need:
    """Return the files of further ranks: each writes its own part of every state."""
    return Need(files=(KEPT_STATES + STAGED_STATES) * 2 * (ranks - 1))


def _arms(experiment: Experiment) -> int:
    dense = experiment.monolith.enabled + (experiment.distill is not None)
    return len(experiment.evaluate.strategies) + dense


def _evaluate(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    start, stop = evaluate_range(key)
    features = experiment.measuring.extractor.model.features
    per_image = _pixels(experiment) + 4 * features + 1
    statistics = 8 * (features + 1) ** 2
    # Real images, of the reference and of the floor, are two arms more.
    return Need((_arms(experiment) + 2) * ((stop - start) * per_image + statistics), 0, 1)


def _report(key: str, experiment: Experiment, counts: dict[str, int], ranks: int) -> Need:
    experts = experiment.cluster.experts
    pictures = CLUSTER_PICTURES * experts + GALLERY_PICTURES * (_arms(experiment) + experts)
    # Base64 makes four bytes of three.
    return Need(REPORT_BYTES + pictures * _pixels(experiment) * 4 // 3, 0, 2)


_ESTIMATES = {
    "shard": _shard,
    "encode": _encode,
    "cluster": _cluster,
    "train": _train,
    "distill": _train,
    "route": _route,
    "measuring": _measuring,
    "evaluate": _evaluate,
    "report": _report,
}
