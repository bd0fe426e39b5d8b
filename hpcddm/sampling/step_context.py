"""Position of a batch on its trajectory, and the random numbers of this position."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float32
from torch import Tensor

from hpcddm.randomness import keyed
from hpcddm.randomness.streams import ANCESTRAL_NOISE, STRATEGY


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Seed and image numbers of a batch; row n of the batch is image `indices[n]`."""

    seed: int
    indices: Sequence[int]


@dataclass(frozen=True)
class StepContext:
    """Context of one velocity evaluation: the batch, the number of the step, and the time in [0, 1]."""

    stream: SampleStream
    step: int
    time: float

    def uniform(self, draw: int) -> Float32[Tensor, " n"]:
        """Draw uniform numbers in [0, 1) that depend only on seed, image, step and draw.

        All evaluations in one step share these numbers, and so do both halves of guidance.

        Args:
            draw: Number of the draw within the step.

        Returns:
            (N,) float32.
        """
        return keyed.uniform(self.stream.seed, STRATEGY.format(step=self.step, draw=draw), self.stream.indices)

    def gaussian(self, shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw standard normal numbers that depend only on seed, image and step.

        Args:
            shape: Shape of the numbers per image.

        Returns:
            (N, *shape) float32.
        """
        return keyed.gaussian(self.stream.seed, ANCESTRAL_NOISE.format(step=self.step), self.stream.indices, shape)
