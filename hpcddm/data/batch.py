"""Batches of a training: the images of one step on one rank, with all other inputs of the loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.columns import Numbers
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader
from hpcddm.randomness.keyed import RandomDraws

B = TypeVar("B", bound="Batch")
M = TypeVar("M", bound="NoisyBatch")


@dataclass(frozen=True)
class Batch:
    """Images of one step on one rank.

    Attributes:
        sample_indices: Indices of the N images in the order of training; all random numbers are functions of them.
        x0: Images as read, (N, H, W, C), uint8, or what `BatchInputs` returns; after `to`, x, (N, C, H, W), float32.
    """

    sample_indices: range
    x0: Tensor

    def to(self: B, device: torch.device, to_model: Callable[[Tensor], Tensor]) -> B:
        """Move the batch to a device and convert x0 to x there; copies from pinned memory are asynchronous.

        Args:
            device: Target device.
            to_model: Function that converts what was read to the space of x.
        """
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=True))
        return replace(moved, x0=to_model(moved.x0))

    def split(self: B, parts: int) -> list[B]:
        """Split the batch into equal parts.

        Args:
            parts: Number of parts, which must divide the number of images.
        """
        size = len(self.sample_indices) // parts
        return [self._rows(slice(start, start + size)) for start in range(0, len(self.sample_indices), size)]

    def pinned(self: B) -> B:
        """Copy the batch to page-locked memory, from which a GPU copies asynchronously."""
        return self._each(Tensor.pin_memory)

    def _rows(self: B, rows: slice) -> B:
        return replace(self._each(lambda tensor: tensor[rows]), sample_indices=self.sample_indices[rows])

    def _each(self: B, change: Callable[[Tensor], Tensor]) -> B:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return type(self)(**values | {name: change(tensor) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """Images with their classes.

    Attributes:
        labels: Class numbers, (N,), int64.
    """

    labels: Tensor


def _unchanged(stored: Tensor) -> Tensor:
    return stored


@dataclass(frozen=True)
class NoisyBatch(Batch):
    """Images with the inputs of the loss of denoisers and routers.

    Attributes:
        condition: Conditions of the images as they are stored in a batch, (N, ...); the null condition replaces dropped
            conditions. After `to`, the conditions in the form that networks take.
        clusters: Cluster numbers, (N,), int64.
        noise: Standard normal noise, (N, C, H, W), float32.
        time: Times, uniform in [0, 1), (N,).
        condition_on_device: Function that converts the stored conditions to the form that networks take.
    """

    condition: Tensor
    clusters: Tensor
    noise: Tensor
    time: Tensor
    condition_on_device: Callable[[Tensor], Tensor] = _unchanged

    def to(self: M, device: torch.device, to_model: Callable[[Tensor], Tensor]) -> M:
        """Move the batch to a device and convert x0 and the condition there.

        Args:
            device: Target device.
            to_model: Function that converts what was read to the space of x.
        """
        moved = super().to(device, to_model)
        return replace(moved, condition=moved.condition_on_device(moved.condition))


@dataclass(frozen=True)
class LatentBatch(Batch):
    """Images with the noise that autoencoders draw latents with.

    Attributes:
        noise: Standard normal noise with the shape of the latents, (N, C, H, W), float32.
    """

    noise: Tensor


class BatchInputs(ABC):
    """Reader of the x0 of batches: images or latents of samples."""

    @abstractmethod
    def read(self, sample_indices: Sequence[int], numbers: Numbers, draws: RandomDraws) -> Tensor:
        """Read the inputs of some samples, with random changes that depend on the sample indices alone; thread-safe.

        Args:
            sample_indices: N indices in the order of training.
            numbers: (N,) numbers of the samples at these indices.
            draws: Random numbers of the training.

        Returns:
            Inputs, (N, ...).
        """


class PixelInputs(BatchInputs):
    """Images of samples after augmentation.

    Args:
        reader: Reader of the samples.
        augmentations: Augmentations in the order in which they are applied.
    """

    def __init__(self, reader: Reader, augmentations: Sequence[Augmentation] = ()) -> None:
        self._reader, self._augmentations = reader, augmentations

    def read(self, sample_indices: Sequence[int], numbers: Numbers, draws: RandomDraws) -> Tensor:
        """Read and augment the images of some samples, (N, H, W, C), uint8."""
        images = torch.from_numpy(self._reader.images(numbers))
        for augmentation in self._augmentations:
            images = augmentation.augment(images, sample_indices, draws)
        return images


@dataclass(eq=False)
class Batches(ABC, Generic[B]):
    """Batches of one training, each a function of its sample indices alone; threads may read several at once.

    Args:
        reader: Reader of the samples.
        order: Order in which the training visits the samples.
        draws: Random numbers of the training.
        inputs: Reader of x0; by default images without augmentation.
    """

    reader: Reader
    order: Order
    draws: RandomDraws
    inputs: BatchInputs | None = field(default=None, kw_only=True)

    def read(self, sample_indices: range) -> B:
        """Read and decode the samples of a batch and draw its random numbers.

        Args:
            sample_indices: Indices in the order of training.
        """
        numbers = self.order.sample_numbers(sample_indices)
        inputs = self.inputs or PixelInputs(self.reader)
        return self._batch(sample_indices, numbers, inputs.read(sample_indices, numbers, self.draws))

    @abstractmethod
    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> B:
        """Make the batch of these indices from their sample numbers, (N,), and inputs, (N, ...)."""


@dataclass(eq=False)
class NoisyBatches(Batches[NoisyBatch]):
    """Batches with condition, clusters, noise and time.

    Args:
        reader: Reader of the samples.
        order: Order in which the training visits the samples.
        draws: Random numbers of the training.
        condition_of: Function from sample numbers, (N,), and a mask of dropped conditions, (N,), to conditions in the
            form in which a batch stores them.
        condition_on_device: Function from stored conditions to those that networks take.
        dropout: Probability of the null condition.
        shape: Shape (C, H, W) of x.
        inputs: Reader of x0; by default images without augmentation.
    """

    condition_of: Callable[[np.ndarray, Tensor], Tensor]
    condition_on_device: Callable[[Tensor], Tensor]
    dropout: float
    shape: tuple[int, int, int]

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> NoisyBatch:
        return NoisyBatch(
            sample_indices,
            x0,
            condition=self.condition_of(numbers, self.draws.dropout_mask(sample_indices, self.dropout)),
            clusters=self.reader.clusters(numbers),
            noise=self.draws.noise(sample_indices, self.shape),
            time=self.draws.times(sample_indices),
            condition_on_device=self.condition_on_device,
        )


@dataclass(eq=False)
class LatentBatches(Batches[LatentBatch]):
    """Batches with the noise of latents.

    Args:
        reader: Reader of the samples.
        order: Order in which the training visits the samples.
        draws: Random numbers of the training.
        shape: Shape (C, H, W) of the latents.
        inputs: Reader of x0; by default images without augmentation.
    """

    shape: tuple[int, int, int]

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LatentBatch:
        return LatentBatch(sample_indices, x0, self.draws.latent_noise(sample_indices, self.shape))


class LabelledBatches(Batches[LabelledBatch]):
    """Batches with the classes of the samples."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LabelledBatch:
        return LabelledBatch(sample_indices, x0, self.reader.labels(numbers))


class RotatedBatches(Batches[LabelledBatch]):
    """Batches of images rotated by random multiples of 90 degrees; the number of quarter turns is the class."""

    def _batch(self, sample_indices: range, numbers: np.ndarray, x0: Tensor) -> LabelledBatch:
        turns = self.draws.rotations(sample_indices, 4)
        return LabelledBatch(sample_indices, rotate(x0, turns), turns)


def rotate(images: Tensor, quarter_turns: Tensor) -> Tensor:
    """Rotate square images counter-clockwise by multiples of 90 degrees.

    Args:
        images: (N, H, W, C) with H = W.
        quarter_turns: Number of quarter turns of each image, (N,).

    Returns:
        Rotated images, (N, H, W, C).
    """
    return torch.stack([image.rot90(int(turn)) for image, turn in zip(images, quarter_turns, strict=True)])
