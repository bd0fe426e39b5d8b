"""Unit of a stage on which a process works, as the stages see it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcddm.config.job_resources import JobResources
from hpcddm.jobs.attempt import Attempt
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.runs import training_states
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.training_states import StateSeal


@dataclass(frozen=True)
class Unit:
    """One unit as its stage sees it, without the settings of the experiment."""

    key: str
    """The unit, as `stage/unit`."""
    run: RunDir
    ranks: Ranks
    attempt: Attempt
    heartbeat: HeartbeatWriter
    stop: StopFlag
    inputs: dict[str, Manifest]
    """Manifests of the input units, by key."""
    trajectory: str
    """Hash of the settings and inputs that determine the unit's training states."""
    network_interface: str | None = None
    watchdog_minutes: float = 20
    gpus: int = 0
    """Number of GPUs that the unit has on each of its nodes."""
    resources: JobResources = JobResources()
    data_threads: int = 1
    """Number of threads with which a rank reads samples ahead of its training."""
    seal: Callable[[], StateSeal | None] = lambda: None
    """Function that returns the seal of the unit's training states; None in a run without a contract."""

    @property
    def name(self) -> str:
        """Name of the unit within its stage."""
        return self.key.split("/")[1]

    @property
    def folder(self) -> Path:
        """Folder of the unit's outputs."""
        return self.run.unit(self.key)

    @property
    def state(self) -> Path:
        """Folder of the unit's training states."""
        return self.folder / training_states.FOLDER

    def input(self, key: str, path: str) -> Path:
        """Return the path of an output of an input unit.

        Args:
            key: The input unit, as `stage/unit`.
            path: Path of the output, relative to that unit's folder.

        Raises:
            KeyError: If the unit is not an input.
        """
        if key not in self.inputs:
            raise KeyError(f"{self.key} reads {key} without declaring it in its file in stages/")
        return self.run.output(key, path)

    def inputs_of(self, stage: str) -> dict[str, Manifest]:
        """Return the manifests of all input units of one stage, by key."""
        return {key: manifest for key, manifest in self.inputs.items() if key.split("/")[0] == stage}

    def stop_if_requested(self) -> None:
        """Stop here if the job was asked to stop; for stages of one process, at a point where no work is lost.

        Raises:
            Stopped: If the job was asked to stop.
        """
        if self.stop.reason:
            raise Stopped(self.stop.reason)


@dataclass(frozen=True)
class Result:
    """Result of a stage.

    Args:
        outputs: Paths of the output files, relative to the unit's folder.
        results: Results for later stages and for users, which the manifest stores.
        digests: SHA-256 of outputs as they were written, by path; with other bytes the unit does not become complete.
    """

    outputs: list[str]
    results: dict
    digests: dict[str, str] = field(default_factory=dict)
