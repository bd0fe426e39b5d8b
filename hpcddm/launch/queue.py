"""Submitting to a queueing scheduler: arrays chained by `afterany`, as many as the cluster takes, then leave."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddm.launch.base import Job, Launcher, QueueFull
from hpcddm.launch.chunks import chunks
from hpcddm.launch.items import Item, array_name, array_spec, arrays, submit_array
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir


@dataclass(frozen=True)
class Batch:
    """One array that is to be submitted, in the order of their dependencies."""

    items: list[Item]
    number: int
    throttle: int
    behind: int | None
    """The place in the list of the batch that must have ended before, beside those that it reads."""

    @property
    def script(self) -> str:
        """Under which name its batch script is kept."""
        return f"{self.number:04d}-{array_name(self.items[0])}.sbatch"


@dataclass(frozen=True)
class Submitted:
    """One array: its job id, its elements, and the jobs that it waits for."""

    job: str
    keys: list[str]
    script: str
    after: list[str]


def batches_of(items: Sequence[Item], home: RunDir, launcher: Launcher) -> tuple[list[Batch], str]:
    """Arrays of what fits into the queue now, and why the rest does not.

    Items stand after those that they need, so what is left out is needed by nothing that is submitted. The numbers of
    the scripts go on over submissions, so none is overwritten.
    """
    limits = launcher.limits(len(items))
    number = len(Journal(home.journal).submissions())
    found: list[Batch] = []
    for group in arrays(items[: limits.room], launcher.site):
        first = len(found)
        for chunk in chunks(len(group), limits.max_array, launcher.site.max_parallel):
            behind = None if chunk.behind is None else first + chunk.behind
            items = group[chunk.start : chunk.stop]
            found.append(Batch(items, number + len(found) + 1, chunk.throttle, behind))
    return found, limits.reason


def submit_batches(
    batches: Sequence[Batch], home: RunDir, launcher: Launcher, active: Mapping[str, Job]
) -> Iterator[Submitted]:
    """Submit array after array, each behind the jobs of what it reads; what was submitted is told at once.

    Raises `QueueFull` when the scheduler takes no more, `UserError` with its words when it refuses.
    """
    job_of = {name: job.id.split("_")[0] for name, job in active.items()}
    jobs: list[list[str]] = []
    more = 0
    for batch in batches:
        needed = [job_of[name] for item in batch.items for name in item.needs if name in job_of]
        after = list(dict.fromkeys(needed + ([] if batch.behind is None else jobs[batch.behind])))
        jobs.append([])
        for piece in _pieces(replace(batch, number=batch.number + more), after, home, launcher):
            jobs[-1].append(piece.job)
            job_of |= dict.fromkeys(piece.keys, piece.job)
            yield piece
        more += len(jobs[-1]) - 1


def _pieces(batch: Batch, after: list[str], home: RunDir, launcher: Launcher) -> Iterator[Submitted]:
    """Submit a batch whole, or, where the queue has no room for so many, what goes in of it.

    Not every limit can be read beforehand, and an array that is longer than a limit would never go in whole.
    """
    rest, size = batch.items, len(batch.items)
    while rest:
        piece = replace(batch, items=rest[:size])
        spec = array_spec(piece.items, launcher.site, after, min(piece.throttle, len(piece.items)))
        try:
            job = submit_array(piece.items, home, launcher, spec, piece.script)
        except QueueFull:
            if size == 1:
                raise
            size = size // 2
            continue
        rest, batch = rest[size:], replace(batch, number=batch.number + 1)
        yield Submitted(job, spec.keys, piece.script, after)


def render_batches(batches: Sequence[Batch], launcher: Launcher) -> Iterator[Submitted]:
    """Write the scripts that `submit_batches` would hand over, byte for byte, and submit nothing."""
    for batch in batches:
        spec = array_spec(batch.items, launcher.site, (), batch.throttle)
        launcher.render(spec, batch.script)
        yield Submitted("", spec.keys, batch.script, [])
