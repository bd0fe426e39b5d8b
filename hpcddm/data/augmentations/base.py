"""Base of the augmentations: random changes of the images of a training."""

from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.data import AugmentationSettings
from hpcddm.config.variants import S, Variant
from hpcddm.data.draws import Draws


class Augmentation(Variant[S]):
    """Random change of images; created as `cls(settings, side)`, side: of the squares that it gives.

    Its random numbers come from `draws` by the samples' indices in the order of training, so that an interrupted
    training, or one on another number of ranks, sees the same bits.
    """

    def __init__(self, settings: S, side: int) -> None:
        super().__init__(settings)
        self.side = side

    @abstractmethod
    def augmented(
        self, images: UInt8[Tensor, "n h w c"], indices: Sequence[int], draws: Draws
    ) -> UInt8[Tensor, "n h2 w2 c"]:
        """Return the images of some indices changed, as a function of their draws alone; from any thread."""


def created(settings: Sequence[AugmentationSettings], side: int) -> list[Augmentation]:
    """Create augmentations, to be applied in their order, of images whose side they leave."""
    return [variants.create(Augmentation, own, side) for own in settings]


def source_side(settings: Sequence[AugmentationSettings], side: int) -> int:
    """Return the side of the squares that augmentations would like to get for images of `side`."""
    return max([side, *(own.source_side(side) for own in settings)])
