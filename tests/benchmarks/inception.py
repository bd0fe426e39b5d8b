"""Images per second through Inception: ours, and torch-fidelity's module with the same weights, in turns.

    python -m tests.benchmarks.inception [--images 64] [--side 64] [--rounds 5]

It needs torch-fidelity 0.4.0 and torchvision beside torch, and uses the threads that OMP_NUM_THREADS allows. Both sides
resize images of bytes and compute features and logits; the best round of each counts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from hpcddm.config import variants
from hpcddm.encoders.image.base import ImageEncoder
from tests.encoders import inception_peers
from tests.encoders.networks import inception_2015


def seconds(compute: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    compute()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("images", 64), ("side", 64), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    shape = (asked.images, asked.side, asked.side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    peer = inception_peers.torch_fidelity_module()
    with tempfile.TemporaryDirectory() as folder:
        values = inception_2015(Path(folder) / "network")
        settings = variants.settings_class("encoders/image", values["name"]).model_validate(values)
        encoder = variants.create(ImageEncoder, settings)
    rounds = [
        (seconds(lambda: encoder.encode_with_logits(images)), seconds(lambda: peer(planes)))
        for _ in range(asked.rounds)
    ]
    own, other = (asked.images / min(times) for times in zip(*rounds, strict=True))
    features, expected = encoder.encode(images), peer(planes)[0].numpy()
    difference = np.abs(features - expected).max() / np.abs(expected).max()
    print(f"{torch.get_num_threads()} threads: {own:.1f} images/s, torch-fidelity {other:.1f}, ratio {own / other:.2f}")
    print(f"largest difference of a feature, as a share of the largest feature: {difference:.1e}")


if __name__ == "__main__":
    main()
