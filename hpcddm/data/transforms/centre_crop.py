"""Centre crop: the largest square in a picture's middle, resized; pixels outside it are lost."""

from PIL import Image

from hpcddm.config.data_variants import TransformSettings
from hpcddm.data.transforms.base import Transform


class CentreCropSettings(TransformSettings):
    """Settings of the centre crop: only its name."""


class CentreCrop(Transform[CentreCropSettings]):
    """Crop first: what is cut off has no influence on the pixels at the edge."""

    def fit(self, image: Image.Image, side: int) -> Image.Image:
        if image.size == (side, side):
            return image
        shorter = min(image.size)
        x, y = (image.width - shorter) // 2, (image.height - shorter) // 2
        square = image.crop((x, y, x + shorter, y + shorter))
        return square if shorter == side else square.resize((side, side), Image.Resampling.LANCZOS)
