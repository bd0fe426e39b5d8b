"""Unit of a stage on which a process works, as the stages see it."""

from dataclasses import dataclass
from pathlib import Path

from hpcddm.config.site import Resources
from hpcddm.jobs.attempt import Attempt
from hpcddm.jobs.environment import Ranks
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.runs import training_states
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.layout import RunDir
from hpcddm.runs.manifest import Manifest


@dataclass(frozen=True)
class Unit:
    """One unit as its stage sees it: everything but the settings of the experiment."""

    key: str
    run: RunDir
    ranks: Ranks
    attempt: Attempt
    heartbeat: HeartbeatWriter
    stop: StopFlag
    inputs: dict[str, Manifest]
    """Manifests of the input units, by key."""
    trajectory: str
    """Hash over what the unit's training states are a function of."""
    network_interface: str | None = None
    watchdog_minutes: float = 20
    gpus: int = 0
    """Number of GPUs that the unit got on each of its nodes."""
    resources: Resources = Resources()
    data_threads: int = 1
    """Number of threads in which a rank reads samples ahead of its training."""

    @property
    def name(self) -> str:
        """The unit's name inside its stage."""
        return self.key.split("/")[1]

    @property
    def folder(self) -> Path:
        """Folder of the outputs."""
        return self.run.unit(self.key)

    @property
    def state(self) -> Path:
        """Folder of the training's states."""
        return self.folder / training_states.FOLDER

    def input(self, key: str, path: str) -> Path:
        """Return the path of an output of an input unit; raises `KeyError` for a unit that is no input of this one."""
        if key not in self.inputs:
            raise KeyError(f"{self.key} reads {key} without declaring it in its file in stages/")
        return self.run.output(key, path)

    def inputs_of(self, stage: str) -> dict[str, Manifest]:
        """Return the manifests of all input units of one stage, by key."""
        return {key: manifest for key, manifest in self.inputs.items() if key.split("/")[0] == stage}

    def stop_if_requested(self) -> None:
        """Raise `Stopped` at a place where nothing is lost; for stages of one process."""
        if self.stop.reason:
            raise Stopped(self.stop.reason)


@dataclass(frozen=True)
class Result:
    """Result of a stage: its output files, relative to the unit's folder, and results for later stages."""

    outputs: list[str]
    results: dict
