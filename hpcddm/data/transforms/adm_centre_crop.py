"""ADM's centre crop: halved by boxes, resized by bicubic interpolation, then cropped (arXiv 2105.05233, its code).

ADM's reference statistics, and the training images of DiT, SiT, REPA, EDM2 and LightningDiT, are made like this.
"""

from PIL import Image

from hpcddm.config.data_variants import TransformSettings
from hpcddm.data.transforms.base import Transform


class AdmCentreCropSettings(TransformSettings):
    """Settings of ADM's centre crop: only its name."""


class AdmCentreCrop(Transform[AdmCentreCropSettings]):
    """Resize first, until the shorter side is that of the square; then cut off what is left of the longer one."""

    def fit(self, image: Image.Image, side: int) -> Image.Image:
        if image.size == (side, side):
            return image
        while min(image.size) >= 2 * side:
            image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
        scale = side / min(image.size)
        width, height = round(image.width * scale), round(image.height * scale)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        x, y = (width - side) // 2, (height - side) // 2
        return image.crop((x, y, x + side, y + side))
