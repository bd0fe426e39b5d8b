"""Batches of a training: one rank's images of one step, with all that a loss uses; read, decoded and drawn here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.draws import Draws
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader

B = TypeVar("B", bound="Batch")
M = TypeVar("M", bound="NoisyBatch")


@dataclass(frozen=True)
class Batch:
    """Images of one step on one rank.

    sample_indices: N indices of the images in the order of training, from which all randomness comes;
    x0: uint8 (N, H, W, C) as it is read, x on the device, float32 (N, C, H, W).
    """

    sample_indices: range
    x0: Tensor

    def to(self: B, device: torch.device, to_model: Callable[[Tensor], Tensor]) -> B:
        """Move the batch to a device, without waiting where its memory is pinned, and convert the images to x there.

        to_model: the way from images into the space of x.
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


class Batches(ABC, Generic[B]):
    """Batches of one training, each a function of its samples' indices alone; threads read several at once.

    augmentations: of the images, in the order in which they are applied.
    """

    def __init__(self, reader: Reader, order: Order, draws: Draws, augmentations: Sequence[Augmentation] = ()) -> None:
        self._reader, self.order, self._draws, self._augmentations = reader, order, draws, augmentations

    def read(self, sample_indices: range) -> B:
        """Read, decode and draw the batch of these indices in the order of training."""
        numbers = self.order.rows(sample_indices)
        images = torch.from_numpy(self._reader.images(numbers))
        for augmentation in self._augmentations:
            images = augmentation.augmented(images, sample_indices, self._draws)
        return self._batch(sample_indices, numbers, images)

    @abstractmethod
    def _batch(self, sample_indices: range, numbers: np.ndarray, images: Tensor) -> B:
        """Make the batch of these indices, whose samples have these numbers (N,) and images, uint8 (N, H, W, C)."""


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
        augmentations: Sequence[Augmentation] = (),
    ) -> None:
        super().__init__(reader, order, draws, augmentations)
        self._condition_of, self._condition_on_device = condition_of, condition_on_device
        self._dropout, self._shape = dropout, shape

    def _batch(self, sample_indices: range, numbers: np.ndarray, images: Tensor) -> NoisyBatch:
        return NoisyBatch(
            sample_indices,
            images,
            condition=self._condition_of(numbers, self._draws.dropped(sample_indices, self._dropout)),
            clusters=self._reader.clusters(numbers),
            noise=self._draws.noise(sample_indices, self._shape),
            time=self._draws.times(sample_indices),
            condition_on_device=self._condition_on_device,
        )


class LabelledBatches(Batches[LabelledBatch]):
    """Batches with classes."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, images: Tensor) -> LabelledBatch:
        return LabelledBatch(sample_indices, images, self._reader.labels(numbers))


class TurnedBatches(Batches[LabelledBatch]):
    """Batches of images without classes: each is turned by some quarters of a turn at random, which is its class."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, images: Tensor) -> LabelledBatch:
        turns = self._draws.turns(sample_indices, 4)
        return LabelledBatch(sample_indices, turned(images, turns), turns)


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn every square image (N, H, W, C) by its own number of quarters of a turn."""
    return torch.stack([image.rot90(int(turn)) for image, turn in zip(images, turns, strict=True)])
