"""Base of the transforms that turn a picture of any size into a square."""

from abc import abstractmethod

from PIL import Image

from hpcddm.config.variants import S, Variant


class Transform(Variant[S]):
    """Transform that turns a picture into a square; the same picture always gives the same pixels."""

    @abstractmethod
    def fit(self, image: Image.Image, side: int) -> Image.Image:
        """Transform a picture to a square.

        Args:
            image: Picture of any size, of mode L or RGB.
            side: Side of the square, in pixels.

        Returns:
            Picture of (side, side) pixels and the same mode; the same object, not a copy, if it already has this size.
        """
