"""Base of the autoencoders, which map images to the moments of their latents, and latents to images."""

from abc import abstractmethod
from pathlib import Path

from jaxtyping import Float, Float32
from torch import Tensor, nn

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.variants import S, Variant
from hpcddm.encoders.gpu import require_gpu


class Autoencoder(Variant[S]):
    """Autoencoder, ready for use on the current device.

    Args:
        settings: Settings of the autoencoder.
        images: Shape of the images.
        trained: File of weights that the run has trained; None for pretrained or random weights.

    Raises:
        UserError: The weights are missing or not those expected, or the autoencoder needs a GPU and none exists.
    """

    def __init__(self, settings: S, images: ImageShape, trained: Path | None = None) -> None:
        super().__init__(settings)
        require_gpu(settings)
        self.images, self.trained = images, trained

    @abstractmethod
    def encode(self, images: Float32[Tensor, "n c h w"]) -> Float32[Tensor, "n moments z latent_h latent_w"]:
        """Encode images.

        Args:
            images: (N, C, H, W), values in [-1, 1].

        Returns:
            Mean and log-variance of the latents, (N, 2, Z, h, w), or the latents alone, (N, 1, Z, h, w).
        """

    @abstractmethod
    def decode(self, latents: Float[Tensor, "n z latent_h latent_w"]) -> Float32[Tensor, "n c h w"]:
        """Decode latents.

        Args:
            latents: (N, Z, h, w).

        Returns:
            Images, (N, C, H, W), values approximately in [-1, 1].
        """


class TrainedAutoencoder(Autoencoder[S]):
    """Autoencoder that the run trains; without a file of trained weights, its weights are random.

    Its `network` maps images with values in [-1, 1], (N, C, H, W), and noise of the latents' shape to the loss of each
    image, (N,). The parameters may be bf16: the network casts its inputs to their dtype.
    """

    network: nn.Module
