"""Base of the transforms: the ways in which a picture of any size becomes a square."""

from abc import abstractmethod

from PIL import Image

from hpcddm.config.variants import S, Variant


class Transform(Variant[S]):
    """Way of a picture to a square; the same picture always gives the same pixels."""

    @abstractmethod
    def fit(self, image: Image.Image, side: int) -> Image.Image:
        """Return a picture of (side, side) pixels and the same mode, which is L or RGB.

        A picture that has this size already comes back itself, not a copy: trainings read such ones.
        """
