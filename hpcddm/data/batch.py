"""Batches of a training: one rank's images of one step, with all that a loss uses; read, decoded and drawn here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.columns import Numbers
from hpcddm.data.draws import Draws
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader

B = TypeVar("B", bound="Batch")
M = TypeVar("M", bound="NoisyBatch")


@dataclass(frozen=True)
class Batch:
    """Images of one step on one rank.

    sample_indices: N indices of the images in the order of training, from which all randomness comes;
    x0: as it is read, images uint8 (N, H, W, C) or what `Inputs` makes of them; x on the device, float32 (N, C, H, W).
    """

    sample_indices: range
    x0: Tensor

    def to(self: B, device: torch.device, to_model: Callable[[Tensor], Tensor]) -> B:
        """Move the batch to a device, without waiting where its memory is pinned, and convert x0 to x there.

        to_model: the way from what is read into the space of x.
        """
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(moved, x0=to_model(moved.x0))

    def split(self: B, parts: int) -> list[B]:
        """Split the batch into equal parts, which must divide the number of its images."""
        size = len(self.sample_indices) // parts
        return [self._rows(slice(start, start + size)) for start in range(0, len(self.sample_indices), size)]

    def pinned(self: B) -> B:
        """Copy the batch to page-locked memory, from which a GPU reads while the processor goes on."""
        return self._each(Tensor.pin_memory)

    def _rows(self: B, rows: slice) -> B:
        return replace(self._each(lambda tensor: tensor[rows]), sample_indices=self.sample_indices[rows])

    def _each(self: B, change: Callable[[Tensor], Tensor]) -> B:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return type(self)(**values | {name: change(tensor) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """Images with their classes; labels: (N,) int64."""

    labels: Tensor


def _unchanged(carried: Tensor) -> Tensor:
    return carried


@dataclass(frozen=True)
class NoisyBatch(Batch):
    """Images with what denoisers and routers are trained on.

    condition: of every image, dropped ones replaced by the null condition, as it is carried, and on the device as
    networks take it; clusters: (N,) int64; noise: standard normal, float32 (N, C, H, W); time: uniform in [0, 1), (N,);
    condition_on_device: the way from the one to the other.
    """

    condition: Tensor
    clusters: Tensor
    noise: Tensor
    time: Tensor
    condition_on_device: Callable[[Tensor], Tensor] = _unchanged

    def to(self: M, device: torch.device, to_model: Callable[[Tensor], Tensor]) -> M:
        """Move the batch to a device as its base does, and make the condition there."""
        moved = super().to(device, to_model)
        return replace(moved, condition=moved.condition_on_device(moved.condition))


@dataclass(frozen=True)
class LatentBatch(Batch):
    """Images with what autoencoders are trained on; noise: standard normal, float32, of the latents' shape."""

    noise: Tensor


class Inputs(ABC):
    """Reader of the x0 of batches: images of samples, or what stands for these."""

    @abstractmethod
    def read(self, sample_indices: Sequence[int], numbers: Numbers, draws: Draws) -> Tensor:
        """Read the samples of these numbers (N,), with the random changes of their indices; from any thread."""


class PixelInputs(Inputs):
    """Images, uint8 (N, H, W, C); augmentations: in the order in which they are applied."""

    def __init__(self, reader: Reader, augmentations: Sequence[Augmentation] = ()) -> None:
        self._reader, self._augmentations = reader, augmentations

    def read(self, sample_indices: Sequence[int], numbers: Numbers, draws: Draws) -> Tensor:
        images = torch.from_numpy(self._reader.images(numbers))
        for augmentation in self._augmentations:
            images = augmentation.augmented(images, sample_indices, draws)
        return images


class Batches(ABC, Generic[B]):
    """Batches of one training, each a function of its samples' indices alone; threads read several at once.

    inputs: what they hold of the images, by default these as they are.
    """

    def __init__(self, reader: Reader, order: Order, draws: Draws, inputs: Inputs | None = None) -> None:
        self._reader, self.order, self._draws, self._inputs = reader, order, draws, inputs or PixelInputs(reader)

    def read(self, sample_indices: range) -> B:
        """Read, decode and draw the batch of these indices in the order of training."""
        numbers = self.order.rows(sample_indices)
        return self._batch(sample_indices, numbers, self._inputs.read(sample_indices, numbers, self._draws))

    @abstractmethod
    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> B:
        """Make the batch of these indices, whose samples have these numbers (N,) and inputs (N, ...)."""


class NoisyBatches(Batches[NoisyBatch]):
    """Batches with condition, noise and time.

    condition_of: function from sample numbers, and whether each one's condition is dropped, to what a batch carries;
    condition_on_device: function from that to conditions; dropout: probability of the null condition;
    shape: (C, H, W) of x.
    """

    def __init__(
        self,
        reader: Reader,
        order: Order,
        draws: Draws,
        condition_of: Callable[[np.ndarray, Tensor], Tensor],
        condition_on_device: Callable[[Tensor], Tensor],
        dropout: float,
        shape: tuple[int, int, int],
        inputs: Inputs | None = None,
    ) -> None:
        super().__init__(reader, order, draws, inputs)
        self._condition_of, self._condition_on_device = condition_of, condition_on_device
        self._dropout, self._shape = dropout, shape

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> NoisyBatch:
        return NoisyBatch(
            sample_indices,
            x0,
            condition=self._condition_of(numbers, self._draws.dropped(sample_indices, self._dropout)),
            clusters=self._reader.clusters(numbers),
            noise=self._draws.noise(sample_indices, self._shape),
            time=self._draws.times(sample_indices),
            condition_on_device=self._condition_on_device,
        )


class LatentBatches(Batches[LatentBatch]):
    """Batches with noise; shape: (C, H, W) of the latents."""

    def __init__(
        self, reader: Reader, order: Order, draws: Draws, shape: tuple[int, int, int], inputs: Inputs | None = None
    ) -> None:
        super().__init__(reader, order, draws, inputs)
        self._shape = shape

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LatentBatch:
        return LatentBatch(sample_indices, x0, self._draws.latent_noise(sample_indices, self._shape))


class LabelledBatches(Batches[LabelledBatch]):
    """Batches with classes."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LabelledBatch:
        return LabelledBatch(sample_indices, x0, self._reader.labels(numbers))


class TurnedBatches(Batches[LabelledBatch]):
    """Batches of images without classes: each is turned by some quarters of a turn at random, which is its class."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LabelledBatch:
        turns = self._draws.turns(sample_indices, 4)
        return LabelledBatch(sample_indices, turned(x0, turns), turns)


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn every square image (N, H, W, C) by its own number of quarters of a turn."""
    return torch.stack([image.rot90(int(turn)) for image, turn in zip(images, turns, strict=True)])
