"""Submission to a scheduler with a queue: arrays linked by `afterany`, up to the limits of the cluster."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddm.config.site import Site
from hpcddm.jobs.input_gate import seconds_to_next_check
from hpcddm.launch.array_items import ArrayItem, array_name, group_into_arrays, make_array_spec, submit_array
from hpcddm.launch.base import ArraySpec, Job, Limits, QueueFull, QueueLauncher
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir


@dataclass(frozen=True)
class PlannedArray:
    """One array to submit."""

    items: list[ArrayItem]
    number: int
    """Number of its batch script."""
    throttle: int
    """Maximum number of elements that run at the same time."""
    blocking_array: int | None
    """Index of an earlier planned array that must end first, in addition to its inputs; None for none."""

    @property
    def script(self) -> str:
        """Name of its batch script."""
        return f"{self.number:04d}-{array_name(self.items[0])}.sbatch"


@dataclass(frozen=True, kw_only=True)
class SubmittedArray(ArraySpec):
    """One submitted array, its script, and the id of its job, which in a dry run names the cluster alone."""

    job: JobId
    script: str


@dataclass(frozen=True)
class BlockingArray:
    """An array for which another array may wait."""

    job: JobId
    """Id of its job; in a dry run only the cluster is known."""
    label: str
    """Name of its script, or of its job if the job was already in the queue."""


@dataclass(frozen=True)
class Chunk:
    """The elements [start, stop) of an array, which are submitted as a separate array."""

    start: int
    stop: int
    throttle: int
    """Maximum number of elements of the chunk that run at the same time."""
    blocking_chunk: int | None
    """Index of the chunk that must end first, so that not too many elements run; None for none."""


def split_into_chunks(count: int, max_array: int, max_parallel: int) -> list[Chunk]:
    """Split an array into as few chunks as possible, of nearly equal size.

    Args:
        count: Number of elements.
        max_array: Maximum number of elements per chunk.
        max_parallel: Maximum number of elements that run at the same time, over all chunks.

    Examples:
        >>> [(chunk.start, chunk.stop, chunk.throttle) for chunk in split_into_chunks(10, 4, 6)]
        [(0, 4, 2), (4, 7, 2), (7, 10, 2)]
    """
    number = -(-count // max_array)
    lanes = min(number, max_parallel)
    pieces, start = [], 0
    for index in range(number):
        # The longer chunks come first, and so do the larger shares of the throttle.
        stop = start + count // number + (index < count % number)
        lane = index % lanes
        share = max_parallel // lanes + (lane < max_parallel % lanes)
        pieces.append(Chunk(start, stop, min(share, stop - start), index - lanes if index >= lanes else None))
        start = stop
    return pieces


def plan_arrays(
    items: Sequence[ArrayItem], home: RunDir, launcher: QueueLauncher, keeps_place: bool = False
) -> tuple[list[PlannedArray], str]:
    """Plan arrays for the items that currently fit into the queue.

    An item is omitted if it needs an omitted item. Scripts are numbered across submissions, so none is overwritten.

    Args:
        items: Items to submit, each after the items that it needs.
        home: The run, or the folder of a sweep.
        launcher: Launcher of the site.
        keeps_place: True to leave room for one more job if not all items fit.

    Returns:
        The arrays, and the reason why other items do not fit; '' without a limit.
    """
    site = launcher.site
    counts = Counter(cluster_of(item, site) for item in items)
    limits = {cluster: launcher.limits(count, cluster) for cluster, count in counts.items()}
    if keeps_place:
        limits = {cluster: _less_one(limit, counts[cluster]) for cluster, limit in limits.items()}
    number = len(Journal(home.journal).submissions())
    planned: list[PlannedArray] = []
    for group in group_into_arrays(_select_fitting(items, limits, site), site):
        first, limit = len(planned), limits[cluster_of(group[0], site)]
        for chunk in split_into_chunks(len(group), limit.max_array, site.max_parallel):
            blocking_array = None if chunk.blocking_chunk is None else first + chunk.blocking_chunk
            items = group[chunk.start : chunk.stop]
            planned.append(PlannedArray(items, number + len(planned) + 1, chunk.throttle, blocking_array))
    return planned, "; ".join(dict.fromkeys(limit.reason for limit in limits.values() if limit.reason))


def _less_one(limit: Limits, num_jobs: int) -> Limits:
    if limit.free_jobs is None or num_jobs <= limit.free_jobs:
        return limit
    return replace(limit, free_jobs=max(limit.free_jobs - 1, 0))


def cluster_of(item: ArrayItem, site: Site) -> str | None:
    """Return the cluster of the site that runs a unit; None if the site names none."""
    return site.resources_for(*item.unit.key.split("/")).cluster


def _select_fitting(items: Sequence[ArrayItem], limits: Mapping[str | None, Limits], site: Site) -> list[ArrayItem]:
    """Select the items for which the clusters have room, including room for the items that they need."""
    room = {cluster: len(items) if limit.free_jobs is None else limit.free_jobs for cluster, limit in limits.items()}
    fitting: list[ArrayItem] = []
    omitted: set[str] = set()
    for item in items:
        cluster = cluster_of(item, site)
        if room[cluster] and omitted.isdisjoint(item.needs):
            room[cluster] -= 1
            fitting.append(item)
        else:
            omitted.add(item.name)
    return fitting


def submit_planned(
    planned_arrays: Sequence[PlannedArray],
    home: RunDir,
    launcher: QueueLauncher,
    active: Mapping[str, Job],
    is_dry_run: bool = False,
) -> Iterator[SubmittedArray]:
    """Submit arrays one by one, each with a dependency on the jobs of its inputs.

    Args:
        planned_arrays: Arrays, as `plan_arrays` returns them.
        home: The run, or the folder of a sweep.
        launcher: Launcher of the site.
        active: Jobs in the queue, by the names of their units.
        is_dry_run: True to write the batch scripts alone, byte for byte.

    Yields:
        Each array as soon as it is submitted.

    Raises:
        QueueFull: If the scheduler accepts no more jobs.
        SubmissionRefused: If the scheduler refuses an array.
    """
    array_of = {name: BlockingArray(job.id.array, f"job {job.id.array}") for name, job in active.items()}
    submitted: list[list[BlockingArray]] = []
    submit = _render if is_dry_run else submit_array
    more = 0
    for planned in planned_arrays:
        blocking = _blocking(planned, array_of, submitted)
        submitted.append([])
        planned = replace(planned, number=planned.number + more)
        for piece in _submit_in_halves(planned, blocking, home, launcher, submit):
            submitted[-1].append(BlockingArray(piece.job, piece.script))
            array_of |= dict.fromkeys(piece.keys, submitted[-1][-1])
            yield piece
        more += len(submitted[-1]) - 1


def _render(items: Sequence[ArrayItem], home: RunDir, launcher: QueueLauncher, spec: ArraySpec, script: str) -> JobId:
    """Write the batch script of an array, with the arguments of `submit_array`."""
    launcher.render(spec, script)
    return JobId.on_cluster("", spec.resources.cluster)


def _blocking(
    planned: PlannedArray, array_of: Mapping[str, BlockingArray], earlier: Sequence[Sequence[BlockingArray]]
) -> list[BlockingArray]:
    """List the arrays that must end before a planned array: the arrays of its inputs, and its blocking array."""
    needed = [array_of[name] for item in planned.items for name in item.needs if name in array_of]
    return list(dict.fromkeys([*needed, *([] if planned.blocking_array is None else earlier[planned.blocking_array])]))


def _spec(planned: PlannedArray, blocking: Sequence[BlockingArray], site: Site) -> ArraySpec:
    # Dependencies cannot cross clusters: the job checks other clusters itself after the jobs of its own have ended.
    after = [before for before in blocking if before.job.cluster == cluster_of(planned.items[0], site)]
    begin = seconds_to_next_check(0, site.recheck_seconds) if blocking and not after else 0
    jobs, labels = [before.job for before in after], [before.label for before in after]
    return make_array_spec(planned.items, site, jobs, planned.throttle, begin, labels)


def _submit_in_halves(
    planned: PlannedArray,
    blocking: Sequence[BlockingArray],
    home: RunDir,
    launcher: QueueLauncher,
    submit: Callable[..., JobId],
) -> Iterator[SubmittedArray]:
    """Submit an array as a whole, or in halves that share its throttle if the queue has no room for all elements.

    Some limits cannot be queried, and the scheduler would never accept an array that is longer than such a limit.
    """
    spec = _spec(planned, blocking, launcher.site)
    try:
        job = submit(planned.items, home, launcher, spec, planned.script)
    except QueueFull:
        if len(planned.items) == 1:
            raise
    else:
        yield SubmittedArray(**vars(spec), job=job, script=planned.script)
        return
    halves: list[list[BlockingArray]] = []
    for half in split_into_chunks(len(planned.items), -(-len(planned.items) // 2), planned.throttle):
        before = [] if half.blocking_chunk is None else halves[half.blocking_chunk]
        number = planned.number + sum(map(len, halves))
        piece = PlannedArray(planned.items[half.start : half.stop], number, half.throttle, None)
        halves.append([])
        for submitted in _submit_in_halves(piece, [*blocking, *before], home, launcher, submit):
            halves[-1].append(BlockingArray(submitted.job, submitted.script))
            yield submitted
