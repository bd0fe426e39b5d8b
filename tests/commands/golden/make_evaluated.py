"""Writes evaluated.json: figures by torch-fidelity of two folders of PNGs, end to end, with random weights.

Run it from the root, where torch-fidelity 0.4.0, tqdm and torchvision are installed beside torch:
python -m tests.commands.golden.make_evaluated [FILE]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from hpcddm.encoders import optional_packages
from tests.encoders.inception_weights import FILE, random_state

STORED = Path(__file__).with_name("evaluated.json")
COUNT, SIDE = 30, 40


def write_sets(folder: Path) -> tuple[Path, Path]:
    """Write samples and real images: smooth and coarse patterns, of other brightness, whose values are hashes."""
    places = np.arange(2 * COUNT * 10 * 10 * 3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (places ^ (places >> np.uint64(31))) * np.uint64(0xFF51AFD7ED558CCD)
    coarse = (bits >> np.uint64(56)).astype(np.uint8).reshape(2, COUNT, 10, 10, 3)
    for number, images in enumerate(coarse):
        (folder / str(number)).mkdir()
        for index, image in enumerate(images):
            pixels = image.repeat(SIDE // 10, 0).repeat(SIDE // 10, 1)
            pixels = pixels if number else np.minimum(pixels, np.roll(pixels, 1, 0)) // 2
            Image.fromarray(pixels).save(folder / str(number) / f"{index:03d}.png")
    return folder / "0", folder / "1"


def main(output: Path) -> None:
    optional_packages.import_torchvision()
    import torch_fidelity

    with tempfile.TemporaryDirectory() as name:
        samples, real = write_sets(Path(name))
        torch.save(random_state(), Path(name) / FILE)
        found = torch_fidelity.calculate_metrics(
            input1=str(samples),
            input2=str(real),
            fid=True,
            kid=True,
            kid_subsets=1,
            kid_subset_size=COUNT,
            feature_extractor_weights_path=str(Path(name) / FILE),
            cuda=False,
            verbose=False,
        )
    names = {"fd": "frechet_inception_distance", "kid": "kernel_inception_distance_mean"}
    output.write_text(json.dumps({key: float(found[name]) for key, name in names.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else STORED)
