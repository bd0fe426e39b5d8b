"""`hpcddm evaluate` beside the extractor's own forward passes: python -m tests.benchmarks.evaluating [IMAGES]

Prints the seconds of both, turn by turn in one process, for two sets of so many random pictures of 32 x 32 in PNG, and
their ratio. The forward passes are over arrays that were decoded before.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from PIL import Image

from hpcddm.commands.evaluate import evaluate
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.variants import create
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.evaluation.measured_sets import MEASURED_AT_ONCE

SIDE, ROUNDS = 32, 3
EXTRACTOR = "efficientnet_lite0"


def main(count: int) -> None:
    """Measure both sides in turn."""
    rows = np.random.default_rng(0).integers(0, 256, (2, count, SIDE, SIDE, 3), dtype=np.uint8)
    encoder = create(ImageEncoder, ImageEncoderSettings.model_validate({"name": EXTRACTOR}))
    seconds: dict[str, list[float]] = {"forward passes": [], "evaluate": []}
    with tempfile.TemporaryDirectory() as name:
        sets = [Path(name) / one for one in ("samples", "real")]
        for folder, images in zip(sets, rows, strict=True):
            folder.mkdir()
            for number, pixels in enumerate(images):
                Image.fromarray(pixels).save(folder / f"{number:05d}.png")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for start in range(0, 2 * count, MEASURED_AT_ONCE):
                encoder.encode_with_logits(rows.reshape(-1, SIDE, SIDE, 3)[start : start + MEASURED_AT_ONCE])
            seconds["forward passes"].append(time.perf_counter() - started)
            started = time.perf_counter()
            done = CliRunner().invoke(
                evaluate, [str(sets[0]), "--against", str(sets[1]), "--extractor", EXTRACTOR], catch_exceptions=False
            )
            assert done.exit_code == 0, done.output
            seconds["evaluate"].append(time.perf_counter() - started)
    least = {side: min(values) for side, values in seconds.items()}
    print(f"{2 * count:,} images: " + ", ".join(f"{side} {value:.1f} s" for side, value in least.items()))
    print(f"ratio {least['evaluate'] / least['forward passes']:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
