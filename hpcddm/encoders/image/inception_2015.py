"""Inception of 2015, whose features FID, KID and the inception score are published with."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import label
from hpcddm.config.weights import ImageNetworkSettings, WeightsLayout, list_files
from hpcddm.encoders.image.inception_network import SIDE, network_of
from hpcddm.encoders.image.network_encoder import NetworkEncoder
from hpcddm.encoders.optional_packages import load_verified, read_state_dict
from hpcddm.encoders.weights_layouts import INCEPTION


class InceptionSettings(ImageNetworkSettings):
    """Pooled features, 2048 values; a folder with the state dict that pytorch-fid or torch-fidelity publishes."""

    layout: ClassVar[WeightsLayout] = INCEPTION
    has_head: ClassVar[bool] = True

    def dimensions(self, data: ImageShape) -> int:
        return 2048

    def evaluator_label(self) -> str:
        return label("inception-2015", self.precision_label)


class Inception(NetworkEncoder[InceptionSettings]):
    """Pooled features, and the logits that the published inception scores use.

    These are logits without the biases of the last layer, as in the scripts of ADM, and `logits_unbiased` of
    torch-fidelity.
    """

    def __init__(self, settings: InceptionSettings) -> None:
        super().__init__(settings)
        (file,) = list_files(settings)
        self.network = load_verified(settings, lambda folder: network_of(read_state_dict(folder / file)), self.device)
        self.network = self.network.to(memory_format=torch.channels_last)

    def prepare(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n 3 299 299"]:
        planes = resize_like_tensorflow(images.permute(0, 3, 1, 2).float(), SIDE)
        return ((planes - 128) / 128).expand(-1, 3, -1, -1)

    @torch.no_grad()
    def logits(self, features: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n k"]:
        head = self.network.fc.weight.float()
        return (torch.from_numpy(features).to(self.device) @ head.T).cpu().numpy()


def resize_like_tensorflow(planes: Float32[Tensor, "n c h w"], side: int) -> Float32[Tensor, "n c s s"]:
    """Interpolate linearly as TensorFlow 1 does it: pixel i of n is at i / n of a side, and nothing is averaged."""
    for axis in (3, 2):
        length = planes.shape[axis]
        places = torch.arange(side, device=planes.device) * torch.tensor(length / side, device=planes.device)
        lower = places.long()
        before = planes.index_select(axis, lower)
        after = planes.index_select(axis, (lower + 1).clamp_max(length - 1))
        share = places - lower
        planes = before + (after - before) * (share if axis == 3 else share[:, None])
    return planes
