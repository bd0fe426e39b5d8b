"""Slurm: one array per shape, rendered from the readable template in slurm/, carried by submitit.

jinja2 and submitit are imported by `submit` and `render` only: a query of the queue needs neither.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpcddm.config import vouching
from hpcddm.config.package_data import share_folder
from hpcddm.config.pretrained import cache_folder
from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, inside, reading
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.node_faults import MOST_FAULTS
from hpcddm.jobs.requeue_policy import FRUITLESS
from hpcddm.launch.array_items import write_map
from hpcddm.launch.base import SCHEDULER_PREFIXES, ArraySpec, Job, Limits, QueueFull, QueueLauncher, Refused
from hpcddm.launch.script_template import functions, render
from hpcddm.launch.slurm.client import SlurmUnavailable, call, error_text, on, query
from hpcddm.launch.slurm.cluster import UNLIMITED, SlurmCluster
from hpcddm.launch.slurm.sbatch import FULL, TRANSIENT, Sbatch
from hpcddm.launch.slurm.shared_folder import prove
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal, Submission, current, job_name
from hpcddm.runs.layout import RunDir
from hpcddm.runs.links import complaint

TEMPLATE = "slurm/job.sbatch.j2"
QUEUE_FORMAT = "%F|%K|%T|%r|%N|%S|%j"
PASSED_OVER = re.compile("already complet|Invalid job id|Job/step already|is pending")
"""Messages of scancel about jobs that have ended meanwhile, or that a signal cannot reach yet."""


class Slurm(QueueLauncher):
    """Launcher of a site's Slurm."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self._clusters: dict[str | None, SlurmCluster] = {}

    def _cluster(self, name: str | None) -> SlurmCluster:
        """Return a cluster by its name; its attributes are queried once."""
        return self._clusters.setdefault(name, SlurmCluster(name))

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when no controller answers, or when one of these shapes would be refused or never start.

        Before that, over files in the run that Slurm would write to behind their names.
        """
        _require_own_files(self.run.jobs)
        shapes = {array.resources: array for array in arrays}
        try:
            for array in shapes.values():
                self._check_partition(array)
        except SlurmUnavailable as error:
            raise UserError(
                f"site {self.site.name}: no Slurm answers here ({error}); submit from a login node"
            ) from None
        for array in shapes.values():
            try:
                process = call("sbatch", *on(array.resources.cluster), "--test-only", script=self._text(array))
            except subprocess.TimeoutExpired as error:
                # On a full cluster it looks for a place for the job first; sbatch itself does not.
                remark = f"'sbatch --test-only' gave no answer in {error.timeout:.0f} s"
                print(f"warning: {remark}; the shape of {array.name} is not checked", file=sys.stderr)
                return
            # A queue that is full now says nothing about the shape.
            if process.returncode != 0 and not FULL.search(error_text(process)):
                refusal = f"{error_text(process)}{self._way_out(array, error_text(process))}"
                raise UserError(f"site {self.site.name}: sbatch would refuse {array.name}: {refusal}")

    def _check_partition(self, array: ArraySpec) -> None:
        """Refuse shapes that Slurm accepts and never starts."""
        resources, cluster = array.resources, self._cluster(array.resources.cluster)
        partitions, names = cluster.partitions, cluster.partitions_of(resources.partition)
        for name in names:
            if name not in partitions:
                raise self._refusal(array, "partition", f"invalid partition {name}, there are {', '.join(partitions)}")
        chosen = [partitions[name] for name in names]
        longest = max((partition.max_minutes for partition in chosen), default=UNLIMITED)
        most = max((partition.max_nodes for partition in chosen), default=UNLIMITED)
        if resources.minutes > longest and not resources.qos:
            # A QOS may lift the partition's limits; then sbatch knows better.
            text = f"{resources.minutes} minutes, partition {names[0]} allows {longest}"
            raise self._refusal(array, "minutes", text)
        if resources.nodes > most and not resources.qos:
            raise self._refusal(array, "nodes", f"{resources.nodes} nodes, partition {names[0]} allows {most}")

    def _refusal(self, array: ArraySpec, field: str, reason: str) -> UserError:
        key = _site_key(self.site, "/".join(array.keys[0].split("/")[-2:]), field)
        return UserError(
            f"site {self.site.name}: sbatch would refuse {array.name}: {reason}; change the site key {key}"
        )

    def limits(self, num_jobs: int, cluster: str | None = None) -> Limits:
        """Return the controller's limits, or Slurm's defaults when it does not answer, as in a dry run elsewhere."""
        try:
            return self._cluster(cluster).limits(self.site, num_jobs)
        except SlurmUnavailable:
            return Limits()

    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script of an array into the run; a dry run writes the same bytes.

        Raises `UserError` naming the template when it has a mistake.
        """
        path = self.run.scripts / script
        atomic.write_text(path, self._text(array), durable=False)
        self._write_functions()
        return path

    def _write_functions(self) -> None:
        """Write the file of functions beside the scripts, unless it is there: a job may be reading it."""
        text, digest = functions(self.template_parts)
        path = self._functions_file(digest)
        with suppress(FileNotFoundError, Unreadable):
            if reading.read_bytes(path, reading.RECORD_BYTES) == text.encode():
                return
        atomic.write_text(path, text, durable=False)

    def _functions_file(self, digest: str) -> Path:
        # Jobs of an earlier submission with other functions keep theirs.
        return self.run.scripts.resolve() / f"functions-{digest}.sh"

    def _takes_no_arrays(self, cluster: str | None) -> bool:
        try:
            return self._cluster(cluster).max_array == 0
        except SlurmUnavailable:
            return False

    def _text(self, array: ArraySpec) -> str:
        parts = self.template_parts
        place = share_folder() / TEMPLATE
        functions_digest = functions(parts)[1]
        return render(
            parts.get(TEMPLATE) or place.read_text(),
            TEMPLATE if TEMPLATE in parts else str(place),
            self.site,
            self._resources(array),
            parts,
            array=array,
            plain=self._takes_no_arrays(array.resources.cluster),
            run=self.run.root.resolve(),
            jobs=str(self.run.jobs.resolve()),
            code=self.code.folder,
            functions=self._functions_file(functions_digest),
            functions_digest=functions_digest,
            fruitless=FRUITLESS,
            most_faults=MOST_FAULTS,
            submitted=vouching.digests(self.site.model_dump(mode="json"), parts),
            digest="" if self.code.is_live else self.code.folder.name,
            variants=self.code.variants,
            cache=cache_folder(),
            scheduler_prefixes=SCHEDULER_PREFIXES,
            passing_refusals=f"{TRANSIENT.pattern}|{FULL.pattern}",
        )

    def _resources(self, array: ArraySpec) -> Resources:
        """Return an array's resources, with the nodes excluded on which the newest jobs ended before Python began."""
        excluded = ",".join(filter(None, (array.resources.exclude, *self._lost_nodes(array))))
        return array.resources.model_copy(update={"exclude": excluded or None})

    def _lost_nodes(self, array: ArraySpec) -> list[str]:
        """List the nodes that an array avoids because they lost jobs, as far as its partition has others."""
        most, cluster = self.site.max_excluded_nodes, array.resources.cluster
        lost = Journal(self.run.journal).lost_nodes(self.site.name, cluster) if most else []
        if not lost:
            return []
        with suppress(SlurmUnavailable):
            most = min(most, self._cluster(cluster).spare_nodes(array.resources))
        return lost[-most:] if most else []

    def _way_out(self, array: ArraySpec, refusal: str) -> str:
        """Return advice where sbatch refuses because of nodes while some are avoided; '' elsewhere."""
        lost = self._lost_nodes(array) if "node" in refusal.lower() else []
        if not lost:
            return ""
        return f"; it avoids {','.join(lost)}, where jobs ended early: the site key max_excluded_nodes: 0 allows them"

    def prove_folder(self, arrays: list[ArraySpec]) -> None:
        """Let every cluster show that it sees the run, where the site has several."""
        if len(self.site.clusters) > 1:
            shapes = {array.resources.cluster: array for array in arrays}
            prove(self.run, {cluster: self._text(array) for cluster, array in shapes.items() if cluster})

    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Submit through sbatch; the job's name carries the token, by which a job is found when the answer is lost.

        Everything that the jobs read is written before sbatch is called: a job whose id is lost runs all the same.
        """
        from hpcddm.launch.slurm.executor import TemplateExecutor

        self.code.ensure()
        inside.make(self.run.jobs)
        folder, cluster = self.run.jobs.resolve(), array.resources.cluster
        write_map(array.specs, folder, token)
        name = job_name(array.name, token)
        sbatch = Sbatch(self.render(array, script), name, _start(array), self.site.has_sacct, cluster)
        try:
            return JobId.of(TemplateExecutor(folder, token, sbatch).submit_elements(), cluster)
        except QueueFull:
            raise
        except Refused as refusal:
            raise Refused(f"{refusal}{self._way_out(array, str(refusal))}") from None

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Query the jobs of all users, one squeue per cluster; ids are reused, so tokens identify the jobs."""
        latest = current(submissions)
        jobs: dict[str, Job] = {}
        for cluster in dict.fromkeys(submission.cluster for submission in latest):
            try:
                rows = list(_queue(cluster, [submission for submission in latest if submission.cluster == cluster]))
            except SlurmUnavailable:
                return None
            for unit, job in rows:
                others = (jobs[unit].id, *jobs[unit].others) if unit in jobs else ()
                jobs[unit] = replace(job, others=others)
        return jobs

    def dismiss(self, *jobs: JobId) -> None:
        """Send USR2 to the ranks, and to the batch script, which makes a stop file for ranks without signals."""
        _scancel(jobs, "--signal=USR2")
        _scancel(jobs, "--signal=USR2", "--batch")

    def cancel(self, *jobs: JobId) -> None:
        """Cancel jobs with one scancel per cluster; those that have ended meanwhile are passed over."""
        _scancel(jobs)


def _require_own_files(jobs: Path) -> None:
    """Refuse links and hard links where Slurm, submitit and the batch script write files named after the jobs' ids.

    The script makes links itself, for submitit, over what has their names. Raises `UserError` naming the file.
    """
    folders = [] if jobs.is_symlink() else [jobs]
    for folder in folders:
        # What a job that runs has removed meanwhile is not written to.
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                path = folder / entry.name
                if entry.is_symlink():
                    require(entry.name.endswith("_submitted.pkl"), complaint(path))
                elif entry.is_dir(follow_symlinks=False):
                    # Of a cluster.
                    folders.append(path)
                elif reason := inside.fault_of(entry.stat(follow_symlinks=False)):
                    raise Unreadable(path, reason)


def _start(array: ArraySpec) -> list[str]:
    """Return the flags of sbatch for the earliest start of an array."""
    if array.after:
        return [f"--dependency=afterany:{':'.join(job.number for job in array.after)}"]
    return [f"--begin=now+{array.begin_seconds}"] if array.begin_seconds else []


def _queue(cluster: str | None, submissions: list[Submission]) -> Iterator[tuple[str, Job]]:
    """Yield (unit, job) for the jobs of these submissions in their cluster's queue; raises `SlurmUnavailable`."""
    units = {submission.uuid: submission.units for submission in submissions}
    names = ",".join(submission.job_name for submission in submissions)
    # One word of a command line may be 128 KiB long.
    some = [f"--name={names}"] if len(names) < 100_000 else []
    text = query("squeue", *on(cluster), "--all", "--noheader", "--array", *some, f"--format={QUEUE_FORMAT}")
    # Some clusters print a notice of their own before the answer.
    for line in (line for line in text.splitlines() if line.count("|") >= QUEUE_FORMAT.count("|")):
        job, element, state, reason, nodes, start, name = line.split("|", QUEUE_FORMAT.count("|"))
        token = name.rsplit("-", 1)[-1]
        # A job that is no array is the element 0 of itself, and Slurm knows it by its bare id.
        number, index = (job, "0") if element == "N/A" else (f"{job}_{element}", element)
        if token in units and index.isdecimal() and int(index) < len(units[token]):
            starts = start if state == "PENDING" and start != "N/A" else ""
            place = JobId.of(number, cluster)
            yield units[token][int(index)], Job(place, state.lower(), nodes or reason, starts)


def _scancel(jobs: tuple[JobId, ...], *flags: str) -> None:
    elements: dict[JobId, list[str]] = defaultdict(list)
    for job in jobs:
        elements[job.array] += [job.array_index] if job.array_index else []
    # A job that is no array has no elements.
    names = {array: f"{array.number}_[{','.join(some)}]" if some else array.number for array, some in elements.items()}
    for cluster in dict.fromkeys(array.cluster for array in elements):
        some = [name for array, name in names.items() if array.cluster == cluster]
        try:
            process = call("scancel", *on(cluster), *flags, *some)
        except subprocess.TimeoutExpired:
            raise UserError("scancel gave no answer; look at 'hpcddm status' and repeat the command") from None
        refusals = [line for line in process.stderr.splitlines() if not PASSED_OVER.search(line)]
        if process.returncode != 0 and refusals:
            raise UserError(f"scancel: {' '.join(refusals)}")


def _site_key(site: Site, unit: str, field: str) -> str:
    """Return the site key that gives a unit one of its resources."""
    for place in (unit, unit.split("/")[0]):
        if field in site.stages.get(place, {}):
            return f"stages.{place}.{field}"
    if field in Site.model_fields and getattr(site.resources, field) is None:
        return field
    return f"resources.{field}"


def create(site: Site, run: RunDir) -> QueueLauncher:
    """Create the launcher of a site."""
    return Slurm(site, run)
