"""Random weights of Inception in the published layout, which any program can rebuild from keys and shapes."""

import json
import zlib
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).with_name("golden")
FILE = "weights-inception-2015-12-05-6726825d.pth"
NORM = ("weight", "bias", "running_mean", "running_var")


def random_state() -> dict[str, torch.Tensor]:
    """A state dict with the tensors of torch-fidelity and pytorch-fid, whose shapes make_inception.py wrote down."""
    shapes = json.loads((GOLDEN / "inception_shapes.json").read_text())
    norms = {
        key.replace("conv.weight", f"bn.{part}"): shape[:1]
        for key, shape in shapes.items()
        if key.endswith("conv.weight")
        for part in NORM
    }
    return {key: random_tensor(key, shape) for key, shape in (shapes | norms).items()}


def random_tensor(key: str, shape: list[int]) -> torch.Tensor:
    """Values that keep the size of activations, and norms that are far from 1 and 0."""
    generator = np.random.default_rng(zlib.crc32(key.encode()))
    if key.endswith(("conv.weight", "fc.weight")):
        values = generator.standard_normal(shape, np.float32) * np.sqrt(2 / np.prod(shape[1:]), dtype=np.float32)
    elif key.endswith(("bn.weight", "running_var")):
        values = 0.5 + generator.random(shape, np.float32)
    else:
        values = generator.standard_normal(shape, np.float32) / 10
    return torch.from_numpy(values)
