"""Submission to a queueing scheduler: arrays chained by `afterany`, as many as the cluster takes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddm.config.site import Site
from hpcddm.jobs.input_gate import seconds_to_next_check
from hpcddm.launch.array_items import Item, array_name, array_spec, arrays, submit_array
from hpcddm.launch.base import ArraySpec, Job, Limits, QueueFull, QueueLauncher
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir


@dataclass(frozen=True)
class PlannedArray:
    """One array that is to be submitted."""

    items: list[Item]
    number: int
    throttle: int
    blocking_array: int | None
    """Index in the list of the array that must have ended before, beside those that it reads; None for none."""

    @property
    def script(self) -> str:
        """Name under which its batch script is kept."""
        return f"{self.number:04d}-{array_name(self.items[0])}.sbatch"


@dataclass(frozen=True)
class Submitted:
    """One array: its job id, its elements, and the jobs that it waits for."""

    job: JobId
    keys: list[str]
    script: str
    after: list[JobId]
    begin_seconds: int = 0
    """Seconds to wait before the first check of inputs from another cluster."""


@dataclass(frozen=True)
class Before:
    """An array that another one may wait for."""

    job: JobId
    """Its job; that of a dry run has the cluster only."""
    label: str
    """Name of its script, or of the job where that was in the queue before."""


@dataclass(frozen=True)
class Chunk:
    """The elements [start, stop) of an array, as a 0-based array of their own."""

    start: int
    stop: int
    throttle: int
    """Number of them that may run at the same time."""
    blocking_chunk: int | None
    """Index of the chunk that must have ended first, so that no more elements than allowed run; None for none."""


def chunks(count: int, max_array: int, max_parallel: int) -> list[Chunk]:
    """Cut `count` elements into as few chunks as possible, of nearly the same size, never empty.

    Whatever runs at the same time adds up to `max_parallel` at most.
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
    items: Sequence[Item], home: RunDir, launcher: QueueLauncher, keeps_place: bool = False
) -> tuple[list[PlannedArray], str]:
    """Plan arrays of the items that fit into the queue now; return them and the reason why the others do not.

    No submitted item needs one that is left out. The numbers of the scripts go on over submissions, so none is
    overwritten.

    keeps_place: leaves room for one more job where not everything fits.
    """
    site = launcher.site
    counts = Counter(cluster_of(item, site) for item in items)
    limits = {cluster: launcher.limits(count, cluster) for cluster, count in counts.items()}
    if keeps_place:
        limits = {cluster: _less_one(limit, counts[cluster]) for cluster, limit in limits.items()}
    number = len(Journal(home.journal).submissions())
    planned: list[PlannedArray] = []
    for group in arrays(_fitting(items, limits, site), site):
        first, limit = len(planned), limits[cluster_of(group[0], site)]
        for chunk in chunks(len(group), limit.max_array, site.max_parallel):
            blocking_array = None if chunk.blocking_chunk is None else first + chunk.blocking_chunk
            items = group[chunk.start : chunk.stop]
            planned.append(PlannedArray(items, number + len(planned) + 1, chunk.throttle, blocking_array))
    return planned, "; ".join(dict.fromkeys(limit.reason for limit in limits.values() if limit.reason))


def _less_one(limit: Limits, num_jobs: int) -> Limits:
    if limit.room is None or num_jobs <= limit.room:
        return limit
    return replace(limit, room=max(limit.room - 1, 0))


def cluster_of(item: Item, site: Site) -> str | None:
    """Return the cluster to which the site gives a unit."""
    return site.resources_for(*item.unit.key.split("/")).cluster


def _fitting(items: Sequence[Item], limits: Mapping[str | None, Limits], site: Site) -> list[Item]:
    """Keep the items for which their cluster has room, and for all that they need; items come after those they need."""
    room = {cluster: len(items) if limit.room is None else limit.room for cluster, limit in limits.items()}
    fitting: list[Item] = []
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
    planned_arrays: Sequence[PlannedArray], home: RunDir, launcher: QueueLauncher, active: Mapping[str, Job]
) -> Iterator[Submitted]:
    """Submit array after array, each after the jobs of its inputs; yield each as soon as it is submitted.

    Raises `QueueFull` when the scheduler takes no more, `UserError` with its words when it refuses.
    """
    array_of = _in_queue(active)
    submitted: list[list[Before]] = []
    more = 0
    for planned in planned_arrays:
        blocking = _blocking(planned, array_of, submitted)
        submitted.append([])
        for piece in _pieces(replace(planned, number=planned.number + more), blocking, home, launcher):
            submitted[-1].append(Before(piece.job, piece.script))
            array_of |= dict.fromkeys(piece.keys, submitted[-1][-1])
            yield piece
        more += len(submitted[-1]) - 1


def _in_queue(active: Mapping[str, Job]) -> dict[str, Before]:
    """Return the arrays that are in the queue already, by the names of their units."""
    return {name: Before(job.id.array, f"job {job.id.array}") for name, job in active.items()}


def _blocking(
    planned: PlannedArray, array_of: Mapping[str, Before], earlier: Sequence[Sequence[Before]]
) -> list[Before]:
    """List the arrays that must have ended before one: those of its inputs, and the one whose place it takes."""
    needed = [array_of[name] for item in planned.items for name in item.needs if name in array_of]
    return list(dict.fromkeys([*needed, *([] if planned.blocking_array is None else earlier[planned.blocking_array])]))


def _spec(planned: PlannedArray, blocking: Sequence[Before], site: Site) -> ArraySpec:
    # No dependency crosses clusters: for jobs of another one it looks by itself, when those of its own have ended.
    after = [before for before in blocking if before.job.cluster == cluster_of(planned.items[0], site)]
    begin = seconds_to_next_check(0, site.recheck_seconds) if blocking and not after else 0
    jobs, labels = [before.job for before in after], [before.label for before in after]
    return array_spec(planned.items, site, jobs, planned.throttle, begin, labels)


def _pieces(
    planned: PlannedArray, blocking: Sequence[Before], home: RunDir, launcher: QueueLauncher
) -> Iterator[Submitted]:
    """Submit an array whole, or, where the queue has no room for so many, by halves that share its throttle.

    Not every limit can be read beforehand, and an array that is longer than a limit would never go in whole.
    """
    spec = _spec(planned, blocking, launcher.site)
    try:
        job = submit_array(planned.items, home, launcher, spec, planned.script)
    except QueueFull:
        if len(planned.items) == 1:
            raise
    else:
        yield Submitted(job, spec.keys, planned.script, spec.after, spec.begin_seconds)
        return
    halves: list[list[Before]] = []
    for half in chunks(len(planned.items), -(-len(planned.items) // 2), planned.throttle):
        before = [] if half.blocking_chunk is None else halves[half.blocking_chunk]
        number = planned.number + sum(map(len, halves))
        piece = PlannedArray(planned.items[half.start : half.stop], number, half.throttle, None)
        halves.append([])
        for submitted in _pieces(piece, [*blocking, *before], home, launcher):
            halves[-1].append(Before(submitted.job, submitted.script))
            yield submitted


def render_planned(
    planned_arrays: Sequence[PlannedArray], launcher: QueueLauncher, active: Mapping[str, Job]
) -> Iterator[tuple[str, ArraySpec]]:
    """Write the scripts that `submit_planned` would submit, byte for byte; yield each one's name, and its array."""
    array_of = _in_queue(active)
    earlier: list[list[Before]] = []
    for planned in planned_arrays:
        spec = _spec(planned, _blocking(planned, array_of, earlier), launcher.site)
        earlier.append([Before(JobId.of("", spec.resources.cluster), planned.script)])
        array_of |= dict.fromkeys(spec.keys, earlier[-1][0])
        launcher.render(spec, planned.script)
        yield planned.script, spec
