"""Estimates of a unit's time from a given speed, from the run's own attempts, or from a benchmark here and now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import psutil

from hpcddm.commands.planning.benchmark import Benchmark, describe_machine
from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.config.site import Resources
from hpcddm.errors import UserError
from hpcddm.jobs.attempt_records import AttemptRecord, read_records
from hpcddm.jobs.devices import visible_gpus
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.pipeline.unit_graph import is_collective
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.run_dir import RunDir
from hpcddm.stages.workload import SAMPLE_WORK, Work

MIN_SHARE_DONE = 0.05
"""Part of its work after which the speed of an attempt counts."""
STEP_FLOPS, MAX_IMAGE_FLOPS = 1e11, 1e12
"""FLOPs to which the batch of a step is reduced on a processor, which does some 1e11 per second, and FLOPs of one image
above which a network is not built there."""
GIVEN, RECORDED, MEASURED, UNKNOWN = "given", "this run", "benchmark", "unknown"


@dataclass(frozen=True)
class CostEstimate:
    """Estimated cost of a unit; None if it is unknown, for the reason in `detail`."""

    flops: int | None
    seconds: float | None
    source: str
    detail: str


class TimeEstimator:
    """Estimates for the units of one run.

    is_here: the jobs will run on this very machine; speed: FLOPs per second of one rank, if given.
    """

    def __init__(
        self, costs: UnitCosts, benchmark: Benchmark, run: RunDir, is_here: bool, speed: float | None = None
    ) -> None:
        self._costs, self._benchmark, self._run, self._is_here, self._speed = costs, benchmark, run, is_here, speed
        self._known_attempts: dict[str, list[tuple[Heartbeat, AttemptRecord]]] = {}

    def estimate(self, key: str, siblings: Sequence[str], resources: Resources) -> CostEstimate:
        """Estimate the cost of a unit; siblings: the units of its kind, whose attempts show their speed."""
        flops, uncounted = self._flops(key)
        if uncounted and not flops:
            return CostEstimate(None, None, UNKNOWN, uncounted)
        ranks = resources.ranks if is_collective(key) else 1
        if self._speed and flops:
            speed = f"{self._speed:.3g} FLOPs per second and rank"
            detail = f"{speed}; not counted: {uncounted}" if uncounted else speed
            return CostEstimate(flops, flops / (self._speed * ranks), GIVEN, detail)
        if uncounted:
            return CostEstimate(flops, None, UNKNOWN, uncounted)
        return CostEstimate(flops, *(self._recorded(key, siblings, ranks) or self._measured(key, resources, ranks)))

    def _flops(self, key: str) -> tuple[int, str]:
        """Count FLOPs, and give reasons for uncountable parts, such as an encoder without its weights."""
        flops, uncounted = 0, ""
        for work in self._costs.work(key):
            try:
                flops += self._costs.flops(work)
            except UserError as error:
                uncounted = str(error)
        return flops, uncounted

    def _recorded(self, key: str, siblings: Sequence[str], ranks: int) -> tuple[float, str, str] | None:
        """Estimate from the newest attempt at the unit itself, else at one of its kind, scaled by the work to do."""
        for group in ([key], siblings):
            if candidates := [(*attempt, unit) for unit in group for attempt in self._attempts(unit)]:
                beat, record, measured = max(candidates, key=lambda candidate: candidate[0].time)
                ranks_then = record.owner.get("ranks") or ranks
                seconds = beat.total / beat.rate * self._weight(key) / self._weight(measured) * ranks_then / ranks
                detail = f"{measured} attempt {record.number}: {beat.rate:.3g} images/s on {ranks_then:g} ranks"
                return seconds, RECORDED, f"{detail}, {beat.host}"
        return None

    def _attempts(self, key: str) -> list[tuple[Heartbeat, AttemptRecord]]:
        """List the attempts that show a unit's speed; read once, because all units of the stage use them."""
        if key not in self._known_attempts:
            attempts = [(record.beat, record) for record in read_records(self._run.logs(key)) if record.beat]
            self._known_attempts[key] = [
                (beat, record)
                for beat, record in attempts
                if beat.rate > 0 and beat.total > 0 and beat.done >= MIN_SHARE_DONE * beat.total
            ]
        return self._known_attempts[key]

    def _measured(self, key: str, resources: Resources, ranks: int) -> tuple[float | None, str, str]:
        if not (work := self._costs.work(key)):
            return None, UNKNOWN, "its own attempts will tell"
        on_gpu = bool(visible_gpus()) if self._is_here else bool(resources.gpus_per_node)
        if on_gpu and not visible_gpus():
            return None, UNKNOWN, "no GPU here: plan on a node like the site's, or give --flops-per-second"
        threads = resources.cpus_per_rank
        try:
            pieces = (self._small(piece, ranks, on_gpu) for piece in work)
            seconds = sum(self._benchmark.seconds(piece, ranks, threads, on_gpu) for piece in pieces)
        except UserError as error:
            return None, UNKNOWN, str(error)
        reading = "" if any(piece.network in SAMPLE_WORK for piece in work) else ", reading"
        text = f"one process of {threads} threads on {describe_machine(on_gpu)}; no communication{reading} or start-up"
        return seconds, MEASURED, text

    def _small(self, work: Work, ranks: int, on_gpu: bool) -> Work:
        """Return a piece of work in batches that a processor measures in seconds.

        Raises `UserError` where one image takes a minute, before its network is built.
        """
        flops = self._costs.flops(work) / max(work.images, 1)
        if on_gpu or not flops:
            return work
        if flops > MAX_IMAGE_FLOPS:
            raise UserError(f"{flops:.1e} FLOPs per image are too many for a measurement here; give --flops-per-second")
        if (needed := self._costs.training_bytes(work)) > psutil.virtual_memory().available:
            text = f"{format_bytes(needed)} are more than this machine has free for a measurement"
            raise UserError(f"{text}; give --flops-per-second")
        return replace(work, batch=min(work.batch, max(int(STEP_FLOPS / flops), 1) * ranks))

    def _weight(self, key: str) -> int:
        work = self._costs.work(key)
        return sum(self._costs.flops(piece) for piece in work) or sum(piece.images for piece in work) or 1
