"""Images from a velocity field."""

from collections.abc import Callable, Sequence

import torch

from hpcddm.data import noise
from hpcddm.ensemble.solvers import euler


@torch.no_grad()
def sample(
    field: Callable, seed: int, indices: Sequence[int], classes: torch.Tensor, shape: tuple[int, int, int], steps: int
) -> torch.Tensor:
    """Draw images (N, C, H, W) in [-1, 1], on the device of `classes`.

    field: function (x, t, classes) -> velocity; indices: the images' numbers, which with the seed alone fix
    their initial noise; classes: (N,); shape: (C, H, W).
    """
    start = noise.gaussian(seed, "initial", indices, shape).to(classes.device)
    return euler(lambda x, t: field(x, t, classes), start, steps).clamp(-1, 1)
