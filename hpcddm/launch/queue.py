"""Submitting to a queueing scheduler: arrays chained by `afterany`, as many as the cluster takes, then leave."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcddm.launch.base import Job, Launcher
from hpcddm.launch.chunks import chunks
from hpcddm.launch.items import Item, array_name, array_spec, arrays, submit_array
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir


@dataclass(frozen=True)
class Batch:
    """One array that is to be submitted, in the order of their dependencies."""

    items: list[Item]
    script: str
    throttle: int
    behind: int | None
    """The number of the batch that must have ended before, beside those that it reads."""


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
            number += 1
            script = f"{number:04d}-{array_name(group[0])}.sbatch"
            behind = None if chunk.behind is None else first + chunk.behind
            found.append(Batch(group[chunk.start : chunk.stop], script, chunk.throttle, behind))
    return found, limits.reason


def submit_batches(
    batches: Sequence[Batch], home: RunDir, launcher: Launcher, active: Mapping[str, Job]
) -> Iterator[Submitted]:
    """Submit array after array, each behind the jobs of what it reads; what was submitted is told at once.

    Raises `QueueFull` when the scheduler takes no more, `UserError` with its words when it refuses.
    """
    job_of = {name: job.id.split("_")[0] for name, job in active.items()}
    jobs: list[str] = []
    for batch in batches:
        needed = [job_of[name] for item in batch.items for name in item.needs if name in job_of]
        needed += [] if batch.behind is None else [jobs[batch.behind]]
        after = list(dict.fromkeys(needed))
        spec = array_spec(batch.items, launcher.site, after, batch.throttle)
        job = submit_array(batch.items, home, launcher, spec, batch.script)
        jobs.append(job)
        job_of |= dict.fromkeys(spec.keys, job)
        yield Submitted(job, spec.keys, batch.script, after)


def render_batches(batches: Sequence[Batch], launcher: Launcher) -> Iterator[Submitted]:
    """Write the scripts that `submit_batches` would hand over, byte for byte, and submit nothing."""
    for batch in batches:
        spec = array_spec(batch.items, launcher.site, (), batch.throttle)
        launcher.render(spec, batch.script)
        yield Submitted("", spec.keys, batch.script, [])
