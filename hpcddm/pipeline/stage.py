"""Base class of the stages: units, inputs, fingerprints and resources, from an experiment's settings alone."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from operator import add
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError


class GpuUse(StrEnum):
    """GPUs that a unit can use."""

    NONE = "none"
    ONE = "one, that of its only working rank"
    NODE = "all of one node"
    RANKS = "one for every rank"


@dataclass(frozen=True)
class DiskSpace:
    """Disk space of one unit, or the sum over several units.

    Examples:
        >>> DiskSpace(kept=1000, working=300, files=2) + DiskSpace(kept=500)
        DiskSpace(kept=1500, working=300, files=2, last_state=0)
    """

    kept: int = 0
    """Bytes that stay after the unit is complete."""
    working: int = 0
    """Additional bytes while the unit runs, such as training states."""
    files: int = 0
    """Number of files and folders, including training states."""
    last_state: int = 0
    """Bytes of `working` for the training state from which a longer training would continue."""

    def __add__(self, other: "DiskSpace") -> "DiskSpace":
        return DiskSpace(*map(add, astuple(self), astuple(other)))

    def with_last_state(self) -> "DiskSpace":
        """Return the disk space if the last training state is kept."""
        return DiskSpace(self.kept + self.last_state, self.working - self.last_state, self.files)


class UnitKind(ABC):
    """Kind of units in a stage: inputs, fingerprint and resources of each unit."""

    gpus: ClassVar[GpuUse] = GpuUse.NONE
    """Maximum of the GPUs that one of these units can use."""
    runs_at_every_site: ClassVar[bool] = False
    """True if every site computes these units from the data, with bit-identical results."""

    @abstractmethod
    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """List the units that a unit reads and needs.

        Args:
            experiment: The experiment.
            key: The reading unit, as `stage/unit`.
        """

    @abstractmethod
    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Return the settings that, together with the inputs, determine a unit's outputs."""

    @abstractmethod
    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the disk space of a unit.

        Args:
            experiment: The experiment.
            key: The unit, as `stage/unit`.
            images: Number of images in each split, `train` and `heldout`.
            ranks: Number of ranks that run the unit.
        """

    def lengths(self, experiment: Experiment, key: str) -> Sequence[str]:
        """Return the prefixes of settings that affect only the number of images of a training."""
        return ()

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Return the parts of required units that count in the fingerprint, by unit.

        Other required units count as a whole. The part '' means that nothing of the unit counts. The unit that makes a
        part lists its digest in its results under `digests`.
        """
        return {}

    def optional(self, experiment: Experiment) -> list[str]:
        """List earlier units that a unit reads if they exist; it needs `evaluate.min_experts` of them."""
        return []

    def extras(self, experiment: Experiment) -> list[str]:
        """List earlier units that a unit reads if they exist but does not need."""
        return []

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return the GPUs that these units can use in an experiment, at most `gpus`."""
        return self.gpus

    def batch_size(self, experiment: Experiment, key: str) -> int:
        """Return the number of images per training step over all ranks; 0 for a unit that does not train."""
        return 0

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the site that the experiment names for a unit; None for the site where the run is submitted."""
        return None if self.runs_at_every_site else experiment.site


class Stage(UnitKind):
    """One stage of the pipeline; `<name>_job.py` next to its file computes its units."""

    name: ClassVar[str]
    """Name of the stage, equal to the name of its file."""
    reads: ClassVar[tuple[str, ...]]
    """Other stages whose units it may read; they determine the order of the stages."""
    is_collective: ClassVar[bool] = False
    """True for a training: all ranks work, and a later attempt continues it. In other stages only one rank works."""
    other_kinds: ClassVar[Mapping[str, UnitKind]] = MappingProxyType({})
    """Units of another kind, by key, such as a unit that merges the results of the stage's ranges."""

    @abstractmethod
    def units(self, experiment: Experiment) -> list[str]:
        """List the keys of the stage's units.

        A unit comes after the units of the stage that it reads; otherwise long units come before short ones.
        """

    def kind(self, key: str) -> UnitKind:
        """Return the kind of a unit of this stage."""
        return self.other_kinds.get(key, self)


def create_stage(module: ModuleType) -> Stage:
    """Create the stage that a file of `stages/` defines.

    Raises:
        ConfigError: If the file does not define exactly one subclass of `Stage` with the file's name.
    """
    defined = variants.classes_defined_in(module, Stage)
    name = module.__name__.rpartition(".")[2]
    if len(defined) != 1 or defined[0].name != name:
        raise ConfigError(f"{module.__file__}: needs one subclass of Stage whose name is '{name}'")
    return defined[0]()
