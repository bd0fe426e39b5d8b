"""Small jobs of a site with Slurm: rendering, submitting, waiting, cancelling."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hpcddm.config.package_data import AROUND, find_data_file
from hpcddm.config.pretrained import cache_folder
from hpcddm.config.site import Resources, Site
from hpcddm.files import atomic
from hpcddm.launch.script_paths import check_path
from hpcddm.launch.script_template import render
from hpcddm.launch.selftest import sbatch_refusals
from hpcddm.launch.selftest.checks import requeue
from hpcddm.launch.selftest.evidence import Element, Evidence, TrialJob
from hpcddm.launch.selftest.node import SPEC
from hpcddm.launch.slurm.client import SlurmUnavailable, call_slurm, cluster_flag, query_slurm

TEMPLATE = "slurm/selftest.sbatch.j2"
GONE_SECONDS = 5
"""Seconds until a job's file may become visible here after the job has left the queue."""
MAX_PAUSE_SECONDS = 10
HOPELESS = re.compile(
    "Partition(Time|Node)Limit|InvalidAccount|InvalidQOS|BadConstraints|JobHeld(Admin|User)|requeued held"
)
"""Pattern of the reasons for which a job waits for ever."""
HOPELESS_SECONDS = 5
"""Seconds for which such a reason must last: Slurm shows some for a second and then runs the job."""


class SlurmTrial:
    """Two arrays of one job name: three elements of one node each, and one element over all nodes of a training."""

    def __init__(self, site: Site, folder: Path, cluster: str | None = None) -> None:
        self.evidence = Evidence(site, folder, cluster=cluster)
        self._on = cluster_flag(cluster)
        self._name = f"hpcddm-{folder.name}"
        self._shapes = {TrialJob.ARRAY: self.evidence.element_resources, TrialJob.NODES: self.evidence.resources}

    def text(self, part: str, resources: Resources) -> str:
        """Render the batch script of a part.

        Raises `UserError` naming the template when it has a mistake.
        """
        source = find_data_file(TEMPLATE)
        return render(
            source.read_text(),
            str(source),
            self.evidence.site,
            resources,
            part=part,
            elements=Element.COUNT if part == TrialJob.ARRAY else 1,
            element=Element,
            folder=self.evidence.folder,
            run=self.evidence.folder,
            code=AROUND,
            cache=cache_folder(),
        )

    def prepare(self) -> None:
        """Write the spec that the jobs read, and their scripts; raises `ConfigError` over the path of the package."""
        check_path(AROUND, f"the package's folder {AROUND}")
        site, folder = self.evidence.site, self.evidence.folder
        gpus = self.evidence.element_resources.gpus_per_node
        spec = {"network_interface": site.network_interface, "scratch": site.scratch, "gpus": gpus}
        spec["gpus_per_node"] = self.evidence.resources.gpus_per_node
        atomic.write_json(folder / SPEC, spec)
        for part, resources in self._shapes.items():
            script = self.text(part, resources.model_copy(update={"minutes": self.evidence.minutes}))
            atomic.write_text(self._script(part), script)

    def submit(self) -> str:
        """Submit both parts and return '', or the error of sbatch about one of them."""
        (self.evidence.folder / "submitted").touch()
        for part in self._shapes:
            try:
                completed = call_slurm(
                    "sbatch", *self._on, "--parsable", f"--job-name={self._name}", str(self._script(part))
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
            job = completed.stdout.strip().split(";")[0]
            if completed.returncode or not job.isdecimal():
                return sbatch_refusals.sbatch_error(completed)
            self.evidence.submitted[part] = job
        return ""

    def wait(self, minutes: float, say: Callable[[str], None]) -> str:
        """Wait until every job has answered or has left the queue, but not longer than `minutes`.

        Returns '', or the reason why a job would wait for ever. The evidence then lists the jobs still in the queue.
        """
        deadline, pause, next_check = time.time() + 60 * minutes, 0.5, 0.0
        gone_since: dict[str, float] = {}
        hopeless_since: float | None = None
        while open_parts := [part for part in self.evidence.submitted if not self._has_answered(part)]:
            if (now := time.time()) > next_check:
                pause = min(1.2 * pause, MAX_PAUSE_SECONDS)
                next_check = now + pause
                self._poll(gone_since)
                hopeless = next((text for text in self.evidence.waiting.values() if _is_hopeless(text)), None)
                hopeless_since = (hopeless_since or now) if hopeless else None
                if hopeless_since is not None and now - hopeless_since >= HOPELESS_SECONDS:
                    return f"accepted, but {hopeless}"
            say(", ".join(f"{part}: {self.evidence.waiting.get(part, 'ended')}" for part in open_parts))
            if now > deadline or all(now - gone_since.get(part, now) > GONE_SECONDS for part in open_parts):
                return ""
            time.sleep(0.3)
        return ""

    def _poll(self, gone_since: dict[str, float]) -> None:
        """Query the queue, and record since when a part is not there any more."""
        try:
            lines = query_slurm(
                "squeue", *self._on, "--all", "-h", "-r", f"--name={self._name}", "-o", "%F|%t|%r|%N"
            ).splitlines()
        except SlurmUnavailable as error:
            self.evidence.waiting.update(dict.fromkeys(self.evidence.submitted, f"unknown: {error}"))
            return
        for part in self.evidence.submitted:
            states = [_describe(*rest) for job, *rest in (line.split("|") for line in lines) if self._part(job) == part]
            if states:
                # A pending job delays the result.
                self.evidence.waiting[part] = min(states)
                gone_since.pop(part, None)
            else:
                self.evidence.waiting.pop(part, None)
                gone_since.setdefault(part, time.time())

    def _part(self, job: str) -> str:
        """Return the part of a job; a job that was not submitted here is an element that resubmitted itself."""
        return TrialJob.NODES if job == self.evidence.submitted.get(TrialJob.NODES) else TrialJob.ARRAY

    def _has_answered(self, part: str) -> bool:
        if part == TrialJob.NODES:
            has = [self.evidence.last(part)]
        else:
            has = [self.evidence.last(part, element) for element in (Element.ENVIRONMENT, Element.SIGNALS)]
        answered = all(start is not None and start.is_done for start in has)
        if answered and (part == TrialJob.NODES or requeue.is_settled(self.evidence)):
            self.evidence.waiting.pop(part, None)
            return True
        return False

    def _script(self, part: str) -> Path:
        return self.evidence.folder / f"{part}.sbatch"

    def cancel(self) -> None:
        """Cancel the remaining jobs by their unique name, an element that resubmitted itself included."""
        call_slurm("scancel", *self._on, f"--user={os.getuid()}", f"--name={self._name}")


def _is_hopeless(text: str) -> bool:
    return HOPELESS.search(text) is not None


def _describe(state: str, reason: str, nodes: str) -> str:
    if state != "PD":
        return f"running on {nodes}"
    return "pending" if reason == "None" else f"pending because ({reason})"
