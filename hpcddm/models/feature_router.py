"""A router by the distance to the clusters' centroids among an encoder's features (as in c-BTM, arXiv 2303.14177)."""

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.models import PriorRouterSettings
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import Reader
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.models.base import Images, Logits, Times
from hpcddm.models.training_free import IMAGES_AT_ONCE, PriorRouter, frozen_parameter


class FeatureRouterSettings(PriorRouterSettings):
    """Encoder, which may be that of the clustering; temperature that divides squared distances; the clusters' prior."""

    encoder: ImageEncoderSettings
    temperature: Annotated[float, Field(gt=0)] = 0.1

    def check(self, experiment: Any) -> None:
        """Raise ValueError for latents, which it would have to decode at every step."""
        if experiment.data.space.reads_latents:
            raise ValueError(f"needs pixels, and data.space is {experiment.data.space.name}; take distance_router")

    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        return self.priors(data) * num_clusters + (1 + num_clusters) * self.encoder.dimensions(data)


class FeatureRouter(PriorRouter[FeatureRouterSettings]):
    """Router with logits log p(k | c) - |f - m_k|^2 / temperature (arXiv 2303.14177), f being the features of x_t.

    The encoder sees the image of x_t / (1 - t): with the noise that is left. Features are centred and
    of length one, as the clustering sees them, so that the temperature means the same for every encoder.
    """

    def __init__(self, settings: FeatureRouterSettings, data: NetworkData, num_clusters: int):
        super().__init__(settings, data, num_clusters)
        self.space, dimensions = create_space(data), settings.encoder.dimensions(data)
        self.mean, self.centroids = frozen_parameter(dimensions), frozen_parameter(num_clusters, dimensions)

    @cached_property
    def encoder(self) -> ImageEncoder[ImageEncoderSettings]:
        """Encoder, created on first use: it may read weights."""
        return variants.create(ImageEncoder, self.settings.encoder)

    def score(self, x: Images, t: Times) -> Logits:
        # At t = 1 no image is left; in pixels the clamp turns the noise to black and white.
        remaining = (1 - t).clamp(min=1e-3).view(-1, 1, 1, 1)
        features = F.normalize(self._features(x / remaining).to(x.dtype) - self.mean.to(x.dtype))
        return -torch.cdist(features, self.centroids.to(x.dtype)).square() / self.settings.temperature

    def _features(self, x0: Images) -> Float[Tensor, "n d"]:
        if x0.is_meta:
            # The encoder is not a module: on the meta device only the operations of the distance are counted.
            return x0.new_zeros(len(x0), len(self.mean))
        return torch.from_numpy(self.encoder.encode(self.space.to_images(self.space.finish(x0)))).to(x0.device)

    @torch.no_grad()
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        """Centre the features of all images and average them by cluster."""
        super().fit(reader, x0_of, advance)
        encoded = []
        for rows in split_into_blocks(range(len(reader)), IMAGES_AT_ONCE):
            encoded.append(torch.from_numpy(self.encoder.encode(reader.images(rows))))
            advance(rows.stop)
        features = torch.cat(encoded).double()
        mean = features.mean(0)
        features = F.normalize(features - mean)
        clusters = reader.clusters(range(len(reader)))
        sums = torch.zeros_like(self.centroids, dtype=torch.float64).index_add_(0, clusters, features)
        counts = torch.bincount(clusters, minlength=self.num_clusters).clamp(min=1)
        self.mean.copy_(mean)
        self.centroids.copy_(sums / counts[:, None])
