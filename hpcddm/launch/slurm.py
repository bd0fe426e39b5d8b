"""Slurm: one array per shape, rendered from the readable template in slurm/, carried by submitit.

What renders and what carries is imported when something is submitted: looking at the queue needs neither.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.launch.base import SCHEDULER_PREFIXES, ArraySpec, Job, Launcher
from hpcddm.launch.chunks import Limits
from hpcddm.launch.client import Silent, ask, call, words
from hpcddm.launch.cluster import UNLIMITED, Cluster
from hpcddm.launch.items import write_map
from hpcddm.launch.sbatch import FULL, TRANSIENT, Sbatch
from hpcddm.launch.template import render
from hpcddm.rundir import atomic
from hpcddm.rundir.journal import Submission, current, job_name
from hpcddm.rundir.layout import RunDir
from hpcddm.share import share_file
from hpcddm.site import Site
from hpcddm.weights import cache_folder

TEMPLATE = "slurm/job.sbatch.j2"
QUEUE_FORMAT = "%F|%K|%T|%r|%N|%S|%j"
PASSED_OVER = re.compile("already complet|Invalid job id|Job/step already|is pending")
"""What scancel says of jobs that have ended meanwhile, and of those that have nothing yet that a signal could reach."""


class Slurm(Launcher):
    """The site's Slurm."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self._cluster = Cluster()

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when no controller answers, or when one of these shapes would be refused or never start."""
        shapes = {array.resources: array for array in arrays}
        try:
            for array in shapes.values():
                self._check_partition(array)
        except Silent as why:
            raise UserError(f"site {self.site.name}: no Slurm answers here ({why}); submit from a login node") from None
        for array in shapes.values():
            try:
                answer = call("sbatch", "--test-only", script=self._text(array))
            except subprocess.TimeoutExpired:
                raise UserError(f"site {self.site.name}: Slurm answers too slowly now; try again later") from None
            # A queue that is full now says nothing about the shape.
            if answer.returncode != 0 and not FULL.search(words(answer)):
                raise UserError(f"site {self.site.name}: sbatch would refuse {array.name}: {words(answer)}")

    def _check_partition(self, array: ArraySpec) -> None:
        """Refuse what Slurm takes and never starts."""
        asked, partitions = array.resources, self._cluster.partitions
        default = [one.name for one in partitions.values() if one.is_default]
        names = asked.partition.split(",") if asked.partition else default
        for name in names:
            if name not in partitions:
                raise self._refusal(array, "partition", f"invalid partition {name}, there are {', '.join(partitions)}")
        known = [partitions[name] for name in names]
        longest = max((one.max_minutes for one in known), default=UNLIMITED)
        most = max((one.max_nodes for one in known), default=UNLIMITED)
        if asked.minutes > longest and not asked.qos:
            # A QOS may lift the partition's limits; then sbatch knows better.
            text = f"{asked.minutes} minutes, partition {names[0]} allows {longest}"
            raise self._refusal(array, "minutes", text)
        if asked.nodes > most and not asked.qos:
            raise self._refusal(array, "nodes", f"{asked.nodes} nodes, partition {names[0]} allows {most}")

    def _refusal(self, array: ArraySpec, field: str, why: str) -> UserError:
        key = _site_key(self.site, "/".join(array.keys[0].split("/")[-2:]), field)
        return UserError(f"site {self.site.name}: sbatch would refuse {array.name}: {why}; change the site key {key}")

    def limits(self, wanted: int) -> Limits:
        """What the controller says, or Slurm's own defaults when nobody answers, as in a dry run elsewhere."""
        try:
            return self._cluster.limits(self.site, wanted)
        except Silent:
            return Limits()

    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script of an array into the run; a dry run writes the same bytes.

        Raises `UserError` naming the template when it has a mistake.
        """
        path = self.run.scripts / script
        atomic.write_text(path, self._text(array), durable=False)
        return path

    def _text(self, array: ArraySpec) -> str:
        source = share_file(TEMPLATE)
        return render(
            source.read_text(),
            str(source),
            self.site,
            array.resources,
            array=array,
            run=self.run.root.resolve(),
            jobs=str(self.run.jobs.resolve()),
            code=self.code.folder,
            cache=cache_folder(),
            scheduler_prefixes=SCHEDULER_PREFIXES,
            passing_refusals=f"{TRANSIENT.pattern}|{FULL.pattern}",
        )

    def submit(self, array: ArraySpec, token: str, script: str) -> str:
        """Submit through sbatch; the job's name carries the token, so that a lost answer can be looked up.

        Everything that the jobs read is there before sbatch is called: one that it accepts and does not tell of runs.
        """
        from hpcddm.launch.executor import TemplateExecutor

        self.code.make()
        folder = self.run.jobs.resolve()
        write_map(array.specs, folder, token)
        sbatch = Sbatch(self.render(array, script), job_name(array.name, token), array.after, self.site.has_sacct)
        return TemplateExecutor(folder, token, sbatch).submit_elements()

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """One squeue call, whoever submitted; ids are used again and by other clusters too, so the token tells ours."""
        units = {one.uuid: one.units for one in current(submissions)}
        names = ",".join(one.job_name for one in submissions if one.uuid in units)
        # One word of a command line may be 128 KiB long.
        wanted = [f"--name={names}"] if len(names) < 100_000 else []
        try:
            text = ask("squeue", "--all", "--noheader", "--array", *wanted, f"--format={QUEUE_FORMAT}")
        except Silent:
            return None
        found = {}
        for line in text.splitlines():
            job, element, state, reason, nodes, start, name = line.split("|", 6)
            token = name.rsplit("-", 1)[-1]
            if token in units and element.isdigit() and int(element) < len(units[token]):
                starts = start if state == "PENDING" and start != "N/A" else ""
                unit = units[token][int(element)]
                others = (found[unit].id, *found[unit].others) if unit in found else ()
                found[unit] = Job(f"{job}_{element}", state.lower(), nodes or reason, starts, others)
        return found

    def dismiss(self, *jobs: str) -> None:
        """Send USR2 to the ranks, and to the batch script, which tells those whom no signal reaches."""
        _scancel(jobs, "--signal=USR2")
        _scancel(jobs, "--signal=USR2", "--batch")

    def cancel(self, *jobs: str) -> None:
        """One scancel for all elements; those that have ended meanwhile are passed over."""
        _scancel(jobs)


def _scancel(jobs: tuple[str, ...], *flags: str) -> None:
    elements = defaultdict(list)
    for job in jobs:
        array, _, element = job.partition("_")
        elements[array].append(element)
    if not jobs:
        return
    try:
        answer = call("scancel", *flags, *(f"{array}_[{','.join(some)}]" for array, some in elements.items()))
    except subprocess.TimeoutExpired:
        raise UserError("scancel gave no answer; look at 'hpcddm status' and repeat the command") from None
    refusals = [line for line in answer.stderr.splitlines() if not PASSED_OVER.search(line)]
    if answer.returncode != 0 and refusals:
        raise UserError(f"scancel: {' '.join(refusals)}")


def _site_key(site: Site, unit: str, field: str) -> str:
    """Which key of the site gives a unit one of its resources."""
    for place in (unit, unit.split("/")[0]):
        if field in site.stages.get(place, {}):
            return f"stages.{place}.{field}"
    if field in Site.model_fields and getattr(site.resources, field) is None:
        return field
    return f"resources.{field}"


def create(site: Site, run: RunDir) -> Launcher:
    """The launcher of a site."""
    return Slurm(site, run)
