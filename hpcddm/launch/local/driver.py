"""Driver for runs on this machine without a queue: runs as many units at a time as the machine has cores and GPUs."""

import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from hpcddm.config.site import Resources
from hpcddm.errors.printing import printable
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.failure_cause import read_tails
from hpcddm.jobs.fruitless_attempts import FRUITLESS
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.stopping import SAVING_SECONDS
from hpcddm.launch.array_items import ArrayItem, make_array_spec, submit_array
from hpcddm.launch.base import DirectLauncher
from hpcddm.launch.local.progress import ProgressDisplay
from hpcddm.runs import manifest
from hpcddm.runs.job import JobId
from hpcddm.runs.run_dir import RunDir

POLL_SECONDS = 0.2


class EmbeddedDriver:
    """Driver of one run, or of the runs of a sweep, until no unit remains that can run here.

    Args:
        items: Units to run, each after its inputs.
        home: The run, or the folder of a sweep.
        launcher: Launcher of this machine.
        complete: Number of units that are already complete.
        absent: Names of incomplete units that are not in `items`.
    """

    def __init__(
        self, items: Sequence[ArrayItem], home: RunDir, launcher: DirectLauncher, complete: int, absent: Collection[str]
    ) -> None:
        self.home, self.launcher = home, launcher
        self.waiting = list(items)
        self.absent = set(absent)
        """Names of incomplete units that do not run here."""
        self.running: dict[JobId, ArrayItem] = {}
        self.failed: dict[str, str] = {}
        self.deaths: dict[str, tuple[int, int]] = {}
        """Images of the newest training state, and deaths in a row since then, of units whose process was killed."""
        self.progress = ProgressDisplay(complete + len(items), complete)

    def drive(self) -> dict[str, str]:
        """Run all units.

        On Ctrl-C the running units save and exit; a second Ctrl-C kills them.

        Returns:
            The reason for each unit that failed, by name.
        """
        try:
            with self.progress:
                while self.waiting or self.running:
                    self._collect()
                    self._start_what_fits()
                    if not self.running:
                        break
                    self.progress.show(list(self.running.values()))
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self._leave()
            raise
        return self.failed

    def _start_what_fits(self) -> None:
        free = self.launcher.cores - sum(map(self._cores, self.running.values()))
        unfinished = {item.name for item in (*self.waiting, *self.running.values())}
        free_gpus = len(self.launcher.gpus.free(self.running))
        for item in [item for item in self.waiting if self._is_ready(item, unfinished)]:
            needed_gpus = self.launcher.gpus.needed(item.unit.key, self._resources(item))
            # A unit that requests more cores than the machine has runs alone, and more slowly.
            if (self._cores(item) <= free or not self.running) and needed_gpus <= free_gpus:
                self.waiting.remove(item)
                job = submit_array([item], self.home, self.launcher, make_array_spec([item], self.launcher.site), "")
                self.running[job] = item
                free -= self._cores(item)
                free_gpus -= needed_gpus

    def _collect(self) -> None:
        for job in [job for job in self.running if not self.launcher.is_running(job)]:
            item = self.running.pop(job)
            last = read_activity(item.run, item.unit.key)
            # A unit that runs again and fails early still has its old manifest.
            present = manifest.read_if_usable(item.run.unit(item.unit.key))
            if present and last.outcome not in (Outcome.FAILED, Outcome.WAITING):
                self.progress.completed(item.name)
                continue
            saved = (last.progress.saved_images if last.progress else None) or 0
            if last.is_open and self._may_try_again(item.name, saved):
                self.progress.say(f"{item.name}: {self._last_error(job)}; it is tried again")
                self.waiting.insert(0, item)
                continue
            self.failed[item.name] = last.reason or self._last_error(job)
            self.progress.failed(item.name, self.failed[item.name])

    def _last_error(self, job: JobId) -> str:
        """Return the error that a process without a record printed last; its log is kept beside the run's jobs."""
        *_, line = ["", *read_tails([self.home.jobs / f"{job}_0_log.out"], 0.0).splitlines()]
        if not line.startswith("error: "):
            return "the process died without a word"
        return printable(line.removeprefix("error: "))

    def _may_try_again(self, name: str, saved: int) -> bool:
        """Count the deaths of a unit without progress, as the batch script does; saved: images of its newest state."""
        reached, deaths = self.deaths.get(name, (0, 0))
        self.deaths[name] = max(saved, reached), 1 if saved > reached else deaths + 1
        return self.deaths[name][1] < FRUITLESS

    def _is_ready(self, item: ArrayItem, unfinished: Collection[str]) -> bool:
        if any(name in unfinished for name in item.needs):
            return False
        names = zip(item.unit.inputs, item.needs, strict=True)
        return not item.unit.missing_inputs({key for key, name in names if name in self.absent or name in self.failed})

    def _resources(self, item: ArrayItem) -> Resources:
        return self.launcher.site.resources_for(*item.unit.key.split("/"))

    def _cores(self, item: ArrayItem) -> int:
        resources = self._resources(item)
        return resources.ranks * resources.cpus_per_rank

    def _leave(self) -> None:
        self.progress.say("interrupted; the running units save and leave (Ctrl-C again ends them at once)")
        self.launcher.cancel(*self.running)
        deadline = time.time() + SAVING_SECONDS
        with suppress(KeyboardInterrupt):
            while time.time() < deadline and any(map(self.launcher.is_running, self.running)):
                time.sleep(POLL_SECONDS)
        for job in self.running:
            self.launcher.kill(job)
