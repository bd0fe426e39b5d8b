"""Image tower of CLIP (Radford et al., arXiv 2103.00020) and its kin, as open_clip runs it."""

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.encoders.image.network_encoder import NetworkEncoder, Preparation
from hpcddm.encoders.open_clip_network import load_network
from hpcddm.encoders.open_clip_settings import OpenClipSettings


class OpenClipImagesSettings(OpenClipSettings, ImageEncoderSettings):
    """Image features in the space that images share with texts, `width` values (512 for ViT-B, 768 for ViT-L)."""

    def dimensions(self, data: ImageShape) -> int:
        return self.width


class OpenClipImages(NetworkEncoder[OpenClipImagesSettings]):
    """Projected features, not normalised; the clustering does that itself."""

    def __init__(self, settings: OpenClipImagesSettings) -> None:
        super().__init__(settings)
        self.network = load_network(settings, self.device)
        prepared = self.network.visual.preprocess_cfg
        side = prepared["size"] if isinstance(prepared["size"], int) else prepared["size"][0]
        self.preparation = Preparation(side, side, prepared["mean"], prepared["std"], prepared["interpolation"])

    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        features: Tensor = self.network.encode_image(planes)
        return features
