"""The embedded site: runs the pipeline here, as many units at once as the machine carries, and waits."""

import time

from hpcddm.config import Experiment
from hpcddm.launch.items import submit_unit
from hpcddm.launch.local import Local
from hpcddm.launch.progress import Progress
from hpcddm.launch.submission import Decision
from hpcddm.pipeline import PlannedUnit
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.stopping import SAVING_SECONDS
from hpcddm.status import activity

POLL_SECONDS = 0.2


class Embedded:
    """Drives one run until nothing is left that can be done here."""

    def __init__(self, experiment: Experiment, run: RunDir, launcher: Local, decision: Decision) -> None:
        self.experiment, self.run, self.launcher = experiment, run, launcher
        self.waiting = list(decision.to_run)
        self.absent = {*decision.elsewhere, *decision.blocked}
        self.running: dict[str, PlannedUnit] = {}
        self.failed: dict[str, str] = {}
        total = len(decision.complete) + len(decision.to_run)
        self.progress = Progress(run, total, len(decision.complete))

    def drive(self) -> dict[str, str]:
        """Run everything and return the units that failed, with the reason.

        On Ctrl-C the units save and leave first; a second Ctrl-C ends them at once.
        """
        try:
            with self.progress:
                while self.waiting or self.running:
                    self._collect()
                    self._start_what_fits()
                    if not self.running:
                        break
                    self.progress.show([unit.key for unit in self.running.values()])
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self._leave()
            raise
        return self.failed

    def _start_what_fits(self) -> None:
        free = self.launcher.cores - sum(self._cores(unit) for unit in self.running.values())
        for unit in [unit for unit in self.waiting if self._is_ready(unit)]:
            # A unit that asks for more than the machine has runs alone, slower.
            if self._cores(unit) <= free or not self.running:
                self.waiting.remove(unit)
                job = submit_unit(unit, self.experiment, self.run, self.launcher)
                self.running[job] = unit
                free -= self._cores(unit)

    def _collect(self) -> None:
        for job in [job for job in self.running if not self.launcher.is_running(job)]:
            unit = self.running.pop(job)
            last = activity(self.run, unit.key)
            # A unit that is made anew and fails early still has its old manifest.
            if last.outcome != "failed" and manifest.read(self.run.unit(unit.key)):
                self.progress.completed(unit.key)
                continue
            self.failed[unit.key] = last.reason or "the process died without a word"
            self.progress.failed(unit.key, self.failed[unit.key])

    def _is_ready(self, unit: PlannedUnit) -> bool:
        unfinished = {other.key for other in (*self.waiting, *self.running.values())}
        return not unfinished.intersection(unit.reads) and not unit.lacks({*self.absent, *self.failed})

    def _cores(self, unit: PlannedUnit) -> int:
        resources = self.launcher.site.resources_for(*unit.key.split("/"))
        return resources.ranks * resources.cpus_per_rank

    def _leave(self) -> None:
        self.progress.say("interrupted; the running units save and leave (Ctrl-C again ends them at once)")
        self.launcher.cancel(*self.running)
        deadline = time.time() + SAVING_SECONDS
        try:
            while time.time() < deadline and any(map(self.launcher.is_running, self.running)):
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            pass
        for job in self.running:
            self.launcher.kill(job)
