"""Images of which lpips.json has the distances: noise, soft shapes, grey ones, small and large."""

import numpy as np


def _smooth(generator: np.random.Generator, side: int, channels: int) -> np.ndarray:
    """Waves of a few lengths and directions in every band."""
    y, x = np.mgrid[:side, :side] / side
    bands = []
    for _ in range(channels):
        waves = [
            np.cos(2 * np.pi * (a * x + b * y) + c)
            for a, b, c in zip(*generator.integers(-4, 5, (2, 4)), 6 * generator.random(4), strict=True)
        ]
        bands.append(np.sum(waves, axis=0))
    image = np.stack(bands, -1)
    return np.clip(127.5 + 40 * image, 0, 255).astype(np.uint8)


def _set(seed: int, side: int, channels: int) -> np.ndarray:
    """Two of noise, two of waves, and one of these that is a little darker."""
    generator = np.random.default_rng(seed)
    noise = generator.integers(0, 256, (2, side, side, channels), dtype=np.uint8)
    waves = [_smooth(generator, side, channels) for _ in range(2)]
    return np.stack([*noise, *waves, (waves[1] * 0.9).astype(np.uint8)])


SETS = {"64": _set(0, 64, 3), "96": _set(1, 96, 3), "32": _set(2, 32, 3), "grey 28": _set(3, 28, 1)}
