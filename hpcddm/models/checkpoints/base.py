"""Base of the checkpoint layouts: names and order of tensors in other codes, converted to those of hpcddm."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.variants import S, Variant
from hpcddm.errors import UserError


@dataclass(frozen=True)
class CheckpointContent:
    """Content of a file: its tensors in float32, under names without prefixes, and the JSON stored with them."""

    path: Path
    sha256: str
    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    """Content of config.json in a diffusers folder."""
    description: dict[str, Any] = field(default_factory=dict)
    """Description by hpcddm: the file's metadata, or the manifest next to it."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the training that wrote the file, such as those of the public train.py."""
    notes: tuple[str, ...] = ()
    """Notes for the user: the choice among the file's weights, and prefixes removed from names."""


@dataclass(frozen=True)
class CheckpointInfo:
    """Settings of the network that the tensors belong to, and the objective and data of its training."""

    model: Any
    """Settings of the variant `dit` or another denoiser of hpcddm."""
    channels: int
    num_classes: int
    objective: ObjectiveSettings
    image_size: int | None = None
    condition: ConditionForm = ConditionForm.CLASS
    """Form of the network's condition."""
    encoder: str | None = None
    """Text encoder with which the network was trained, if it is known."""
    notes: tuple[str, ...] = ()


class RemainingTensors:
    """State dict from which a layout takes tensors by name and shape, so that no tensor is missed or left over.

    Args:
        tensors: Tensors by name.
        place: File that errors name.
    """

    def __init__(self, tensors: Mapping[str, Tensor], place: Path):
        self.remaining, self.place = dict(tensors), place

    def take(self, name: str, *shape: int | None) -> Tensor:
        """Remove one tensor and return it.

        Args:
            name: Name of the tensor.
            shape: Expected lengths; None matches every length.

        Raises:
            UserError: The tensor is missing or has another shape.
        """
        if name not in self.remaining:
            raise UserError(f"{self.place}: no tensor '{name}'; the file is not complete, or its layout is another one")
        tensor = self.remaining.pop(name)
        if len(tensor.shape) != len(shape) or any(a not in (None, b) for a, b in zip(shape, tensor.shape, strict=True)):
            expected = " x ".join("any" if length is None else str(length) for length in shape)
            raise UserError(f"{self.place}: tensor '{name}' is {tuple(tensor.shape)} and should be {expected}")
        return tensor

    def take_linear(self, ours: str, theirs: str, outputs: int | None, inputs: int) -> dict[str, Tensor]:
        """Return weight and bias of a linear layer, (outputs, inputs) and (outputs,), by our names.

        Args:
            ours: Name of the layer here.
            theirs: Name of the layer in the file.
            outputs: Number of its outputs; None for any.
            inputs: Number of its inputs.
        """
        weight = self.take(f"{theirs}.weight", outputs, inputs)
        return {f"{ours}.weight": weight, f"{ours}.bias": self.take(f"{theirs}.bias", len(weight))}

    def count(self, prefix: str) -> int:
        """Count the different numbers that follow `prefix` in the names; 'blocks.' counts the blocks."""
        return len({name[len(prefix) :].split(".")[0] for name in self.remaining if name.startswith(prefix)})

    def finish(self) -> None:
        """Check that the layout has taken all tensors.

        Raises:
            UserError: A tensor is left over.
        """
        if self.remaining:
            more = f" and {len(self.remaining) - 1} more" if len(self.remaining) > 1 else ""
            raise UserError(
                f"{self.place}: unknown tensor '{next(iter(self.remaining))}'{more}; the layout is another one"
            )


class CheckpointLayout(Variant[S]):
    """Layout of the tensors in files of another code."""

    @abstractmethod
    def recognises(self, stored: CheckpointContent) -> bool:
        """Tell if the file has this layout; at most one layout recognises a file."""

    @abstractmethod
    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Convert the tensors to the names and conventions of hpcddm and describe their network.

        Args:
            stored: Content of the file.
            like: Settings of the target network, which supply what the file does not state; None without a target.

        Returns:
            Converted tensors by name, and the settings and training of their network.

        Raises:
            UserError: A tensor is missing, unknown or of a wrong shape, or the file has another layout.
        """
