"""Exponential moving average (EMA) of the fp32 master weights, sharded as they are."""

import torch

from hpcddm.training.settings import Training

RAMP = 0.1
"""Largest half-life as a share of the images seen, so that the average forgets the initial weights."""


def update_weight(images_seen: int, training: Training) -> float:
    """Return the weight of the newest values in the average after a step: 1 - 0.5^(batch / half-life).

    The half-life in images is `ema_halflife_images`, and at most `RAMP` of the images seen, which include the step's.
    Source: training_loop.py of NVlabs/edm (arXiv 2206.00364), which ramps at 0.05 and leaves the step's images out.
    """
    halflife = min(training.ema_halflife_images, RAMP * images_seen)
    return 1 - 0.5 ** (training.batch / halflife)


class Ema:
    """Average of this rank's fp32 weights, in the order and the shapes of `masters.master_weights`."""

    def __init__(self, masters: list[torch.Tensor]) -> None:
        self.shards = [shard.detach().clone() for shard in masters]

    def update(self, masters: list[torch.Tensor], weight: float) -> None:
        """Move every value towards its master by `weight`, in [0, 1], of their difference."""
        torch._foreach_lerp_(self.shards, masters, weight)
