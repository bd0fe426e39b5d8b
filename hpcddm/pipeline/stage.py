"""Contract of a stage: its units, their inputs, their fingerprints and their resources, from settings alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, ClassVar

from hpcddm.config import variant_files
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.runs.initial_weights import InitRequest


class Gpus(StrEnum):
    """GPUs that a stage can use."""

    NONE = "none"
    ONE = "one, that of its only working rank"
    NODE = "all of one node"
    RANKS = "one for every rank"


@dataclass(frozen=True)
class DiskSpace:
    """Disk space that one unit needs, or several together."""

    kept: int = 0
    """Bytes that stay when it is complete."""
    working: int = 0
    """Further bytes while it runs, removed at its end: training states."""
    files: int = 0
    """Number of files and folders, those of the training states included."""
    last_state: int = 0
    """Bytes, among `working`, of the state with which a longer training would go on."""

    def __add__(self, other: "DiskSpace") -> "DiskSpace":
        return DiskSpace(
            self.kept + other.kept,
            self.working + other.working,
            self.files + other.files,
            self.last_state + other.last_state,
        )

    def with_last_state(self) -> "DiskSpace":
        """Return what is needed where that state stays."""
        return DiskSpace(self.kept + self.last_state, self.working - self.last_state, self.files)


class Stage(ABC):
    """One stage of the pipeline; `name` is that of its file; `<name>_job.py` beside it makes its units."""

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]
    """Stages whose units it may read; it stands after them in the order of the stages."""
    gpus: ClassVar[Gpus] = Gpus.NONE
    """GPUs that it can use at most."""
    is_collective: ClassVar[bool] = False
    """True for a training: all ranks take part, and a later attempt continues it; elsewhere one rank works."""
    is_made_everywhere: ClassVar[bool] = False
    """True for a function of the data that every site computes for itself, bit for bit."""

    @abstractmethod
    def units(self, experiment: Experiment) -> list[str]:
        """List the keys of its units, long ones before short ones."""

    @abstractmethod
    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """List the units that the unit `key` reads."""

    @abstractmethod
    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Return the settings of which the unit's outputs are a function, beside its inputs."""

    @abstractmethod
    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the disk space of a unit's outputs and states; images: numbers of 'train' and 'heldout' images."""

    def lengths(self, experiment: Experiment, key: str) -> Sequence[str]:
        """Return the beginnings of settings from which nothing but the number of images of a training follows."""
        return ()

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Return, of required units of which a part alone counts in the fingerprint, that part; '' where nothing does.

        A part is named in the results of the unit that makes it, under `digests`.
        """
        return {}

    def optional(self, experiment: Experiment) -> list[str]:
        """List earlier units that it reads where they are there; `evaluate.min_experts` of them are enough."""
        return []

    def extras(self, experiment: Experiment) -> list[str]:
        """List earlier units that it reads where they are there, and does without where they are not."""
        return []

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return the GPUs that it can use in one experiment, where those may be fewer than `gpus`."""
        return self.gpus

    def batch(self, experiment: Experiment, key: str) -> int:
        """Return the images of one training step, which the ranks share; 0 for a unit that does not train."""
        return 0

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the site that the experiment gives a unit to; None for wherever the run is submitted."""
        return None if self.is_made_everywhere else experiment.site

    def initial_weights(self, experiment: Experiment, key: str) -> InitRequest | None:
        """Return the weights that a unit's training starts from; None for random ones."""
        return None


def stage_in(module: ModuleType) -> Stage:
    """Create the stage that a file of `stages/` defines; raises `ConfigError` naming the file without one."""
    defined = variant_files.defined(module, Stage)
    name = module.__name__.rpartition(".")[2]
    if len(defined) != 1 or defined[0].name != name:
        raise ConfigError(f"{module.__file__}: needs one subclass of Stage whose name is '{name}'")
    return defined[0]()
