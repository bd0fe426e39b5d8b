"""Inception of 2015, the network of FID (Szegedy et al., arXiv 1512.00567, as TensorFlow published its weights).

It differs from torchvision's network of this name in its weights, its 1008 outputs and its pooling: averages leave the
padding out, and the last block takes maxima.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

SIDE = 299
FEATURES, CLASSES = 2048, 1008
EPSILON = 1e-3
"""Added to the variances of the norms."""
PARTS = ("conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
POOLED = ("Conv2d_2b_3x3", "Conv2d_4a_3x3")
"""Convolutions after which maxima are taken."""

Kernel = tuple[int, int]
Step = tuple[tuple[int, Kernel], ...]
"""Convolutions with the same input, each with its outputs and kernel; their outputs are joined."""
Branches = dict[str, tuple[Step, ...]]

ONE, THREE, FIVE, WIDE, HIGH = (1, 1), (3, 3), (5, 5), (1, 7), (7, 1)
"""Height and width of kernels."""
FAN = ((384, (1, 3)), (384, (3, 1)))
"""A step of two convolutions."""


def _chain(*steps: tuple[int, Kernel]) -> tuple[Step, ...]:
    return tuple((step,) for step in steps)


def _small(pooled: int) -> Branches:
    return {
        "branch1x1": _chain((64, ONE)),
        "branch5x5": _chain((48, ONE), (64, FIVE)),
        "branch3x3dbl": _chain((64, ONE), (96, THREE), (96, THREE)),
        "branch_pool": _chain((pooled, ONE)),
    }


def _long(inner: int) -> Branches:
    return {
        "branch1x1": _chain((192, ONE)),
        "branch7x7": _chain((inner, ONE), (inner, WIDE), (192, HIGH)),
        "branch7x7dbl": _chain((inner, ONE), (inner, HIGH), (inner, WIDE), (inner, HIGH), (192, WIDE)),
        "branch_pool": _chain((192, ONE)),
    }


FIRST_HALVED: Branches = {
    "branch3x3": _chain((384, THREE)),
    "branch3x3dbl": _chain((64, ONE), (96, THREE), (96, THREE)),
}
SECOND_HALVED: Branches = {
    "branch3x3": _chain((192, ONE), (320, THREE)),
    "branch7x7x3": _chain((192, ONE), (192, WIDE), (192, HIGH), (192, THREE)),
}
FANNED: Branches = {
    "branch1x1": _chain((320, ONE)),
    "branch3x3": (*_chain((384, ONE)), FAN),
    "branch3x3dbl": (*_chain((448, ONE), (384, THREE)), FAN),
    "branch_pool": _chain((192, ONE)),
}
STEM = (
    ("Conv2d_1a_3x3", 3, 32, 3, 2, 0),
    ("Conv2d_2a_3x3", 32, 32, 3, 1, 0),
    ("Conv2d_2b_3x3", 32, 64, 3, 1, 1),
    ("Conv2d_3b_1x1", 64, 80, 1, 1, 0),
    ("Conv2d_4a_3x3", 80, 192, 3, 1, 0),
)
"""Published name, inputs, outputs, kernel, stride and padding."""
BLOCKS: tuple[tuple[str, int, str, Branches], ...] = (
    ("Mixed_5b", 192, "mean", _small(32)),
    ("Mixed_5c", 256, "mean", _small(64)),
    ("Mixed_5d", 288, "mean", _small(64)),
    ("Mixed_6a", 288, "halve", FIRST_HALVED),
    ("Mixed_6b", 768, "mean", _long(128)),
    ("Mixed_6c", 768, "mean", _long(160)),
    ("Mixed_6d", 768, "mean", _long(160)),
    ("Mixed_6e", 768, "mean", _long(192)),
    ("Mixed_7a", 768, "halve", SECOND_HALVED),
    ("Mixed_7b", 1280, "mean", FANNED),
    ("Mixed_7c", 2048, "max", FANNED),
)
"""Published name, inputs, pooling and branches of the blocks."""


class Inception2015(nn.Module):
    """Network from images to pooled features; its convolutions have their published names.

    images: RGB, (x - 128) / 128 of 0 ... 255, of side 299.
    """

    def __init__(self) -> None:
        super().__init__()
        for name, inputs, outputs, kernel, stride, padding in STEM:
            self.add_module(name, nn.Conv2d(inputs, outputs, kernel, stride, padding))
        for name, inputs, pooling, branches in BLOCKS:
            self.add_module(name, Block(inputs, pooling, branches))
        self.fc = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 2048"]:
        maps = images
        for name, *_ in STEM:
            maps = F.relu(self.get_submodule(name)(maps), inplace=True)
            if name in POOLED:
                maps = F.max_pool2d(maps, 3, 2)
        for name, *_ in BLOCKS:
            maps = self.get_submodule(name)(maps)
        return maps.mean((2, 3))


class Block(nn.Module):
    """Branches of convolutions side by side, one of them pooled; their outputs are joined.

    Args:
        inputs: Number of channels.
        pooling: 'mean' or 'max' of 3 x 3 neighbours; 'halve' halves the sides of the maps, and pools without weights.
        branches: Steps of each branch, by its published name.
    """

    def __init__(self, inputs: int, pooling: str, branches: Branches) -> None:
        super().__init__()
        self.pooling = pooling
        self.named_steps = {branch: self._add(branch, inputs, steps) for branch, steps in branches.items()}

    def _add(self, branch: str, channels: int, steps: tuple[Step, ...]) -> list[list[str]]:
        """Add the convolutions of a branch, and return their names step by step."""
        names = []
        for number, step in enumerate(steps, 1):
            stride = 2 if self.pooling == "halve" and number == len(steps) else 1
            stem = f"{branch}_{number}" if len(steps) > 1 else branch
            names.append([stem + letter for letter in ("ab" if len(step) > 1 else ("",))])
            for name, (outputs, kernel) in zip(names[-1], step, strict=True):
                padding = (kernel[0] // 2, kernel[1] // 2) if stride == 1 else 0
                self.add_module(name, nn.Conv2d(channels, outputs, kernel, stride, padding))
            channels = sum(outputs for outputs, _ in step)
        return names

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        joined = []
        for branch, steps in self.named_steps.items():
            inner = maps
            for names in [] if branch == "branch_pool" else steps:
                inner = torch.cat([F.relu(self.get_submodule(name)(inner), inplace=True) for name in names], 1)
            joined.append(F.relu(self._pooled(maps), inplace=True) if branch == "branch_pool" else inner)
        if self.pooling == "halve":
            joined.append(F.max_pool2d(maps, 3, 2))
        return torch.cat(joined, 1)

    def _pooled(self, maps: Tensor) -> Tensor:
        convolution = self.get_submodule("branch_pool")
        if self.pooling == "max":
            pooled: Tensor = convolution(F.max_pool2d(maps, 3, 1, 1))
            return pooled
        # Means and a convolution of single pixels commute, and its outputs are fewer.
        return F.avg_pool2d(convolution(maps), 3, 1, 1, count_include_pad=False)


def network_of(stored: dict[str, Tensor]) -> Inception2015:
    """Build the network from a published state dict, its norms being folded into the convolutions.

    Raises ValueError for tensors of another network.
    """
    network = Inception2015()
    convolutions = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    expected = {f"{name}.{part}" for name, _ in convolutions for part in PARTS} | {"fc.weight", "fc.bias"}
    missing = sorted(expected - stored.keys())
    unknown = sorted(key for key in stored.keys() - expected if not key.endswith("num_batches_tracked"))
    if missing or unknown:
        which = f"lacks {missing[0]}" if missing else f"has {unknown[0]}"
        raise ValueError(f"this is not the Inception of FID: it {which}")
    if len(stored["fc.weight"]) != CLASSES:
        raise ValueError(f"this is not the Inception of FID: {len(stored['fc.weight'])} classes and not {CLASSES}")
    values = {"fc.weight": stored["fc.weight"]}
    for name, module in convolutions:
        kernel = stored[f"{name}.conv.weight"]
        if kernel.shape != module.weight.shape:
            raise ValueError(f"this is not the Inception of FID: {name}.conv.weight has shape {list(kernel.shape)}")
        weight, gain, shift, mean, variance = (stored[f"{name}.{part}"].double() for part in PARTS)
        factor = gain / (variance + EPSILON).sqrt()
        values[f"{name}.weight"] = weight * factor[:, None, None, None]
        values[f"{name}.bias"] = shift - mean * factor
    network.load_state_dict(values)
    return network
