"""Position of a batch on its trajectory, and the random numbers that belong to it there."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float32
from torch import Tensor

from hpcddm.data import draws


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Seed and image numbers of one batch on its trajectory; row n is image `indices[n]`."""

    seed: int
    indices: Sequence[int]


@dataclass(frozen=True)
class StepContext:
    """One velocity evaluation: in step number `step`, at time `time` in [0, 1]."""

    stream: SampleStream
    step: int
    time: float

    def uniform(self, draw: int) -> Float32[Tensor, " n"]:
        """Draw uniform numbers in [0, 1), functions of seed, image, step and draw alone.

        All evaluations of one step share them, and so do both halves of guidance.
        """
        return draws.uniform(self.stream.seed, f"strategy/{self.step}/{draw}", self.stream.indices)

    def gaussian(self, shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw standard normal numbers (n, *shape), functions of seed, image and step alone."""
        return draws.gaussian(self.stream.seed, f"ancestral/{self.step}", self.stream.indices, shape)
