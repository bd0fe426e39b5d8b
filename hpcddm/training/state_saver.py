"""Saving of a training on its way, at its end and where it is to stop, as all ranks agree every few steps."""

import time

import torch
import torch.distributed as dist

from hpcddm.config.training import Training
from hpcddm.jobs.stopping import Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.jobs.watchdog import Watchdog
from hpcddm.training import process_group
from hpcddm.training.checkpoints import Checkpoints, PublishedState
from hpcddm.training.engine import Engine
from hpcddm.training.log import TrainingLog
from hpcddm.training.meters import TrainingProgress
from hpcddm.training.step_results import StepResults

INTERVAL_SECONDS = 1.0
"""Longest time between two agreements, as far as steps are not longer: a stop that is requested waits for the next."""


class RankAgreement:
    """Agreement of all ranks on their wishes, by messages between the hosts, so that no GPU is waited for.

    most_steps: most steps between two agreements; fewer where they take longer than `SECONDS`, so that the time that
    Slurm grants before the end of an allocation is left for saving. One rank on its own agrees at every step.
    """

    def __init__(self, most_steps: int) -> None:
        self._group = dist.new_group(backend="gloo")
        self._most_steps = most_steps if dist.get_world_size() > 1 else 1
        self._interval = self._steps = 0
        self._time = time.monotonic()

    def is_due(self) -> bool:
        """Count a step, and tell if the ranks are to agree after it; the same on all ranks."""
        self._steps += 1
        return self._steps > self._interval

    def reach(self, *wishes: bool) -> tuple[bool, ...]:
        """Return for each wish if any rank has it; collective."""
        now = time.monotonic()
        steps = max(1, min(int(INTERVAL_SECONDS * self._steps / max(now - self._time, 1e-9)), self._most_steps))
        self._steps, self._time = 0, now
        if dist.get_world_size() == 1:
            return wishes
        # All ranks go on for as many steps as the first proposes.
        flags = torch.tensor([*wishes, steps if dist.get_rank() == 0 else 0], dtype=torch.int32)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._group)
        *agreed, proposed = flags.tolist()
        self._interval = proposed - 1
        return tuple(map(bool, agreed))


class StateSaver:
    """Saving of one training; a state that takes longer than the watchdog allows lets it end the process."""

    def __init__(
        self, checkpoints: Checkpoints, training: Training, unit: Unit, log: TrainingLog, watchdog: Watchdog
    ) -> None:
        self._checkpoints, self._training, self._unit = checkpoints, training, unit
        self._log, self._watchdog = log, watchdog
        self._agreement = RankAgreement(unit.resources.sync_every_steps)
        self._saved_at = time.time()

    def is_due(self, progress: TrainingProgress) -> bool:
        """Count a step, and return True if the ranks must agree after it; the same on all ranks."""
        return self._agreement.is_due() or progress.images >= self._training.images

    def end_step(self, engine: Engine, steps: StepResults, progress: TrainingProgress, is_due: bool) -> None:
        """Save if any rank must stop, the training ends, or the last state is old enough; collective.

        is_due: result of the method of that name.
        Raises `Stopped`, with everything saved, when a stop was requested.
        """
        seconds = self._checkpoints.saving_seconds
        if seconds is None or seconds < 60 * self._unit.watchdog_minutes:
            self._watchdog.touch()
        if not is_due:
            return
        is_old = time.time() - self._saved_at > 60 * self._training.checkpoint_minutes and seconds is None
        stop, save = self._agreement.reach(self._unit.stop.reason is not None, is_old and self._unit.ranks.rank == 0)
        is_end = stop or progress.images >= self._training.images
        self._report(self._checkpoints.wait() if save or is_end else self._checkpoints.take_published(), progress)
        if save or is_end:
            self._saved_at = time.time()
            self._checkpoints.save(engine, progress.images, steps.state(engine))
        if is_end:
            self._watchdog.touch()
            self._report(self._checkpoints.wait(), progress)
        if stop:
            process_group.leave()
            raise Stopped(self._unit.stop.reason or "a stop was requested of another rank")

    def _report(self, saved: PublishedState | None, progress: TrainingProgress) -> None:
        """Report a published state, if there is one, and leave before the allocation ends in time to write another."""
        if saved is None:
            return
        self._unit.attempt.results["images"] = saved.images
        self._unit.stop.reserve_seconds(2 * saved.seconds)
        self._log.log_saved(progress, saved)
