"""Launcher for Slurm: one array per set of resources, from the template in slurm/, submitted through submitit.

Only `submit` and `render` import jinja2 and submitit, because a query of the queue needs neither.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.config.package_data import find_data_folder
from hpcddm.config.pretrained import cache_folder
from hpcddm.config.site import Resources, Site
from hpcddm.errors import SchedulerUnreachable, UserError, require
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.fruitless_attempts import FRUITLESS
from hpcddm.jobs.node_faults import MAX_FAULTS
from hpcddm.launch.array_items import write_element_map
from hpcddm.launch.base import SCHEDULER_PREFIXES, ArraySpec, Job, Limits, QueueFull, QueueLauncher, SubmissionRefused
from hpcddm.launch.script_template import read_functions, render
from hpcddm.launch.slurm.client import SlurmMissing, SlurmUnavailable, call_slurm, cluster_flag, error_text
from hpcddm.launch.slurm.queue_jobs import jobs_in_queue
from hpcddm.launch.slurm.sbatch import FULL, TRANSIENT, Sbatch
from hpcddm.launch.slurm.shared_folder import check_all_clusters
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster, site_key
from hpcddm.runs import contracts, state_seals
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal, Submission, job_name, select_current
from hpcddm.runs.links import refusal_reason
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import key_in_run

TEMPLATE = "slurm/job.sbatch.j2"
SILENT = re.compile(f"{TRANSIENT.pattern}|gave no answer", re.IGNORECASE)
"""Pattern of errors that pass when the controller answers again."""
IGNORED_ERRORS = re.compile("already complet|Invalid job id|Job/step already|is pending")
"""Pattern of scancel's messages about jobs that have ended or that a signal cannot reach yet."""


class SlurmLauncher(QueueLauncher):
    """Launcher for a site with Slurm."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self._clusters: dict[str | None, SlurmCluster] = {}

    def _cluster(self, name: str | None) -> SlurmCluster:
        """Return a cluster by name; its properties are queried only once."""
        return self._clusters.setdefault(name, SlurmCluster(name))

    def check(self, arrays: list[ArraySpec]) -> None:
        """Check that no file of the run is a link, and that Slurm would accept and start the arrays.

        Raises:
            UserError: If a check fails, or no Slurm controller answers.
        """
        _require_own_files(self.run.jobs)
        shapes = {array.resources: array for array in arrays}
        try:
            for array in shapes.values():
                self._check_partition(array)
        except SlurmMissing as error:
            raise UserError(f"site {self.site.name}: no Slurm is here ({error}); submit from a login node") from None
        except SlurmUnavailable as error:
            if SILENT.search(str(error)):
                raise self._unreachable(str(error)) from None
            raise UserError(f"site {self.site.name}: Slurm refuses to answer: {error}") from None
        for array in shapes.values():
            try:
                cluster = cluster_flag(array.resources.cluster)
                process = call_slurm("sbatch", *cluster, "--test-only", script=self._text(array))
            except subprocess.TimeoutExpired as error:
                # On a full cluster --test-only first searches for resources; a real submission does not.
                remark = f"'sbatch --test-only' gave no answer in {error.timeout:.0f} s"
                print(f"warning: {remark}; the shape of {array.name} is not checked", file=sys.stderr)
                return
            # A full queue does not mean that the shape is invalid.
            if process.returncode != 0 and TRANSIENT.search(error_text(process)):
                raise self._unreachable(error_text(process))
            if process.returncode != 0 and not FULL.search(error_text(process)):
                refusal = f"{error_text(process)}{self._exclusion_advice(array, error_text(process))}"
                raise UserError(f"site {self.site.name}: sbatch would refuse {array.name}: {refusal}")

    def _unreachable(self, why: str) -> SchedulerUnreachable:
        return SchedulerUnreachable(f"site {self.site.name}: Slurm does not answer ({why}); submit again when it does")

    def _check_partition(self, array: ArraySpec) -> None:
        """Refuse resources that Slurm would accept but never start."""
        if fault := self._cluster(array.resources.cluster).find_fault(array.resources):
            key = site_key(self.site, key_in_run(array.keys[0]), fault[0])
            refusal = f"sbatch would refuse {array.name}: {fault[1]}; change the site key {key}"
            raise UserError(f"site {self.site.name}: {refusal}")

    def limits(self, num_jobs: int, cluster: str | None = None) -> Limits:
        """Return the limits of a cluster, or Slurm's defaults if it does not answer, as in a dry run elsewhere."""
        with suppress(SlurmUnavailable):
            return self._cluster(cluster).limits(self.site, num_jobs)
        return Limits()

    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script of an array into the run; a dry run writes the same bytes."""
        path = self.run.scripts / script
        atomic.write_text(path, self._text(array), durable=False)
        self._write_functions()
        return path

    def _write_functions(self) -> None:
        """Write the file of shell functions next to the scripts unless it exists, because a job may be reading it."""
        text, digest = read_functions(self.template_parts)
        path = self._functions_file(digest)
        with suppress(FileNotFoundError, Unreadable):
            if checked_reads.read_bytes(path, checked_reads.RECORD_BYTES) == text.encode():
                return
        atomic.write_text(path, text, durable=False)

    def _functions_file(self, digest: str) -> Path:
        # Jobs of an earlier submission keep their version of the functions.
        return self.run.scripts.resolve() / f"functions-{digest}.sh"

    def _takes_no_arrays(self, cluster: str | None) -> bool:
        with suppress(SlurmUnavailable):
            return self._cluster(cluster).max_array == 0
        return False

    def _text(self, array: ArraySpec) -> str:
        parts = self.template_parts
        place = find_data_folder() / TEMPLATE
        functions_digest = read_functions(parts)[1]
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
            most_faults=MAX_FAULTS,
            submitted=trusted_submissions.digests(
                self.site.model_dump(mode="json"), parts, *contracts.vouched_here(self.run, self.site.name)
            ),
            digest=self.code.folder.name,
            cache=cache_folder(),
            scheduler_prefixes=SCHEDULER_PREFIXES,
            passing_refusals=f"{TRANSIENT.pattern}|{FULL.pattern}",
        )

    def _resources(self, array: ArraySpec) -> Resources:
        """Return an array's resources, with additional exclusion of nodes that recently ended jobs."""
        excluded = ",".join(filter(None, (array.resources.exclude, *self._lost_nodes(array))))
        return array.resources.model_copy(update={"exclude": excluded or None})

    def _lost_nodes(self, array: ArraySpec) -> list[str]:
        """List the nodes that an array avoids because they ended jobs, as far as its partition has spare nodes."""
        most, cluster = self.site.max_excluded_nodes, array.resources.cluster
        lost = Journal(self.run.journal).lost_nodes(self.site.name, cluster) if most else []
        if not lost:
            return []
        with suppress(SlurmUnavailable):
            most = min(most, self._cluster(cluster).spare_nodes(array.resources))
        return lost[-most:] if most else []

    def _exclusion_advice(self, array: ArraySpec, refusal: str) -> str:
        """Return advice if sbatch refuses because of nodes while some are avoided; otherwise ''."""
        lost = self._lost_nodes(array) if "node" in refusal.lower() else []
        if not lost:
            return ""
        return f"; it avoids {','.join(lost)}, where jobs ended early: the site key max_excluded_nodes: 0 allows them"

    def check_shared_folder(self, arrays: list[ArraySpec]) -> None:
        """Check that every cluster sees the run's folder, if the site has several clusters."""
        if len(self.site.clusters) > 1:
            shapes = {array.resources.cluster: array for array in arrays}
            check_all_clusters(self.run, {cluster: self._text(array) for cluster, array in shapes.items() if cluster})

    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Submit an array through sbatch.

        The job's name contains the token, so that a job can be found if sbatch's answer is lost. All files that the
        jobs read are written before sbatch is called, so that a job with a lost id can run.
        """
        from hpcddm.launch.slurm.executor import TemplateExecutor

        self.code.ensure()
        guarded_writes.make_folder(self.run.jobs)
        folder, cluster = self.run.jobs.resolve(), array.resources.cluster
        write_element_map(array.specs, folder, token)
        name = job_name(array.name, token)
        # Not in the script, which stays in the run.
        variables = state_seals.job_variables(self.run)
        sbatch = Sbatch(self.render(array, script), name, _begin_flags(array), self.site.has_sacct, cluster, variables)
        try:
            return JobId.on_cluster(TemplateExecutor(folder, token, sbatch).submit_elements(), cluster)
        except QueueFull:
            raise
        except SubmissionRefused as refusal:
            raise SubmissionRefused(f"{refusal}{self._exclusion_advice(array, str(refusal))}") from None

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Query the jobs of all users with one squeue per cluster; tokens identify the jobs, because ids are reused."""
        latest = select_current(submissions)
        jobs: dict[str, Job] = {}
        for cluster in dict.fromkeys(submission.cluster for submission in latest):
            try:
                rows = list(jobs_in_queue(cluster, [one for one in latest if one.cluster == cluster]))
            except SlurmUnavailable:
                return None
            for unit, job in rows:
                others = (jobs[unit].id, *jobs[unit].others) if unit in jobs else ()
                jobs[unit] = replace(job, others=others)
        return jobs

    def signal_stop(self, *jobs: JobId) -> None:
        """Send USR2 to the ranks and to the batch script, which creates a stop file for ranks that miss the signal."""
        _scancel(jobs, "--signal=USR2")
        _scancel(jobs, "--signal=USR2", "--batch")

    def cancel(self, *jobs: JobId) -> None:
        """Cancel jobs with one scancel per cluster; jobs that have ended are ignored."""
        _scancel(jobs)


def _require_own_files(jobs: Path) -> None:
    """Refuse links and hard links in the folder where Slurm, submitit and the batch script write their files.

    Only the links that the batch script creates for submitit are accepted, because the script replaces them.
    """
    folders = [] if jobs.is_symlink() else [jobs]
    for folder in folders:
        # A running job may remove files meanwhile.
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                path = folder / entry.name
                if entry.is_symlink():
                    require(entry.name.endswith("_submitted.pkl"), refusal_reason(path))
                elif entry.is_dir(follow_symlinks=False):
                    # Each cluster of a site has a subfolder.
                    folders.append(path)
                elif reason := guarded_writes.refusal_reason(entry.stat(follow_symlinks=False)):
                    raise Unreadable(path, reason)


def _begin_flags(array: ArraySpec) -> list[str]:
    """Return the sbatch flags for dependency or earliest start of an array."""
    if array.after:
        return [f"--dependency=afterany:{':'.join(job.number for job in array.after)}"]
    return [f"--begin=now+{array.begin_seconds}"] if array.begin_seconds else []


def _scancel(jobs: tuple[JobId, ...], *flags: str) -> None:
    elements: dict[JobId, list[str]] = defaultdict(list)
    for job in jobs:
        elements[job.array] += [job.array_index] if job.array_index else []
    # A job without an array has no elements.
    names = {array: f"{array.number}_[{','.join(some)}]" if some else array.number for array, some in elements.items()}
    for cluster in dict.fromkeys(array.cluster for array in elements):
        some = [name for array, name in names.items() if array.cluster == cluster]
        try:
            process = call_slurm("scancel", *cluster_flag(cluster), *flags, *some)
        except subprocess.TimeoutExpired:
            raise SchedulerUnreachable("scancel gave no answer; repeat the command when Slurm answers") from None
        refusals = [line for line in process.stderr.splitlines() if not IGNORED_ERRORS.search(line)]
        if process.returncode != 0 and refusals:
            error = SchedulerUnreachable if TRANSIENT.search(" ".join(refusals)) else UserError
            raise error(f"scancel: {' '.join(refusals)}")


def create(site: Site, run: RunDir) -> QueueLauncher:
    """Create the launcher for a site with Slurm."""
    return SlurmLauncher(site, run)
