"""Base of the augmentations: random changes of the images of a training."""

from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.data_variants import AugmentationSettings
from hpcddm.config.variants import S, Variant
from hpcddm.randomness.keyed import RandomDraws


class Augmentation(Variant[S]):
    """Random change of training images.

    The random numbers come from `draws` by the samples' indices in the order of training. An interrupted training, or
    a training on another number of ranks, therefore gets the same pixels.

    Args:
        settings: Settings of the augmentation.
        side: Side of the output squares, in pixels.
    """

    def __init__(self, settings: S, side: int) -> None:
        super().__init__(settings)
        self.side = side

    @abstractmethod
    def augment(
        self, images: UInt8[Tensor, "n h w c"], indices: Sequence[int], draws: RandomDraws
    ) -> UInt8[Tensor, "n h2 w2 c"]:
        """Change images as a function of their random numbers alone; thread-safe.

        Args:
            images: (N, H, W, C), uint8.
            indices: N indices of the images in the order of training.
            draws: Random numbers of the training.

        Returns:
            Images, (N, H2, W2, C), uint8.
        """


def create_augmentations(settings: Sequence[AugmentationSettings], side: int) -> list[Augmentation]:
    """Create augmentations in the order in which they are applied.

    Args:
        settings: Settings of each augmentation.
        side: Side of the images, in pixels, which the augmentations preserve.
    """
    return [variants.create(Augmentation, item, side) for item in settings]


def source_side(settings: Sequence[AugmentationSettings], side: int) -> int:
    """Return the largest side that any of the augmentations prefers for its input squares.

    Args:
        settings: Settings of each augmentation.
        side: Side of the output squares, in pixels.
    """
    return max([side, *(item.source_side(side) for item in settings)])
