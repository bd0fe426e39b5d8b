"""Base of the layouts of checkpoints: names and order of another code's tensors, converted to ours."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from hpcddm.config.conditions import Form
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.variants import S, Variant
from hpcddm.errors import UserError


@dataclass(frozen=True)
class Stored:
    """Contents of a file: tensors in float32 under their names without prefixes, and the JSON stored with them."""

    path: Path
    sha256: str
    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    """config.json of a diffusers folder."""
    description: dict[str, Any] = field(default_factory=dict)
    """Description by hpcddm: the file's metadata, or the manifest beside it."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the training that left the file, such as the public train.py's."""
    notes: tuple[str, ...] = ()
    """Which of the file's weights these are, and what was taken off their names."""


@dataclass(frozen=True)
class CheckpointInfo:
    """Settings of the network that the tensors belong to, and the objective and data of its training."""

    model: Any
    """Settings of the variant `dit`, or of any other denoiser of ours."""
    channels: int
    num_classes: int
    objective: ObjectiveSettings
    image_size: int | None = None
    condition: Form = Form.CLASS
    """Form of the condition that the network sees."""
    encoder: str | None = None
    """Encoder of the text that the network was trained with, where that is known."""
    notes: tuple[str, ...] = ()


class Tensors:
    """State dict that gives up its tensors by name and shape, so that none is missed and none is left over.

    remaining: tensors not yet taken; place: the file that errors name.
    """

    def __init__(self, tensors: Mapping[str, Tensor], place: Path):
        self.remaining, self.place = dict(tensors), place

    def take(self, name: str, *shape: int | None) -> Tensor:
        """Take one tensor; None in `shape` fits every length.

        Raises `UserError` when it is missing or of another shape.
        """
        if name not in self.remaining:
            raise UserError(f"{self.place}: no tensor '{name}'; the file is not complete, or its layout is another one")
        tensor = self.remaining.pop(name)
        if len(tensor.shape) != len(shape) or any(a not in (None, b) for a, b in zip(shape, tensor.shape, strict=True)):
            expected = " x ".join("any" if length is None else str(length) for length in shape)
            raise UserError(f"{self.place}: tensor '{name}' is {tuple(tensor.shape)} and should be {expected}")
        return tensor

    def count(self, prefix: str) -> int:
        """Count the different numbers that follow `prefix` in the names: 'blocks.' counts the blocks."""
        return len({name[len(prefix) :].split(".")[0] for name in self.remaining if name.startswith(prefix)})

    def finish(self) -> None:
        """Raise `UserError` when tensors are left that this layout does not know."""
        if self.remaining:
            more = f" and {len(self.remaining) - 1} more" if len(self.remaining) > 1 else ""
            raise UserError(
                f"{self.place}: unknown tensor '{next(iter(self.remaining))}'{more}; the layout is another one"
            )


class Layout(Variant[S]):
    """A layout of tensors in files."""

    @abstractmethod
    def recognises(self, stored: Stored) -> bool:
        """Tell if these are the tensors of this layout; at most one layout recognises a file."""

    @abstractmethod
    def load(self, stored: Stored, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Convert the tensors to our names and conventions and describe their network.

        like: settings of the target, None for none; what the file does not state is taken from there.
        Raises `UserError` when tensors are missing, unknown, of a wrong shape, or not those of this layout.
        """
