"""Base of the autoencoders: from images to the moments of their latents, and from latents to images."""

from abc import abstractmethod
from pathlib import Path

from jaxtyping import Float, Float32
from torch import Tensor, nn

from hpcddm.config.shapes import ImageShape
from hpcddm.config.variants import S, Variant
from hpcddm.encoders.gpu import require_gpu


class Autoencoder(Variant[S]):
    """An autoencoder ready to be used, created as `cls(settings, images, trained)` on the current device.

    images: shape of the images; trained: file of weights that the run has trained, where the settings say so. Creating
    it raises `UserError` when its weights are missing or other ones, or it needs a GPU and there is none.
    """

    def __init__(self, settings: S, images: ImageShape, trained: Path | None = None) -> None:
        super().__init__(settings)
        require_gpu(settings)
        self.images, self.trained = images, trained

    @abstractmethod
    def encode(self, images: Float32[Tensor, "n c h w"]) -> Float32[Tensor, "n moments z latent_h latent_w"]:
        """Compute mean and log-variance of the latents of images, their values in [-1, 1]; or the latents alone."""

    @abstractmethod
    def decode(self, latents: Float[Tensor, "n z latent_h latent_w"]) -> Float32[Tensor, "n c h w"]:
        """Compute images, their values about in [-1, 1]."""


class TrainedAutoencoder(Autoencoder[S]):
    """An autoencoder that the run trains; without `trained` its weights are random.

    Its `network` maps (images, noise), the images' values in [-1, 1] and the noise of the latents' shape, to the loss
    of every image, (N,); its parameters may be bf16: inputs are cast to their dtype.
    """

    network: nn.Module
