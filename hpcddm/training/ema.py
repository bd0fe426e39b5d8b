"""Averages of the fp32 master weights over the training, sharded as they are."""

from collections.abc import Callable
from functools import partial

import torch

from hpcddm.config.training import Training
from hpcddm.runs.weights_files import USUAL, power_average
from hpcddm.training import power_ema

RAMP = 0.1
"""Largest half-life as a share of the images seen, so that the average forgets the initial weights."""


def update_weight(images_seen: int, training: Training) -> float:
    """Return the weight of the newest values in the average after a step: 1 - 0.5^(batch / half-life).

    The half-life in images is `ema_halflife_images`, and at most `RAMP` of the images seen, which include the step's.
    Source: training_loop.py of NVlabs/edm (arXiv 2206.00364), which ramps at 0.05 and leaves the step's images out.
    """
    halflife = min(training.ema_halflife_images, RAMP * images_seen)
    return 1 - 0.5 ** (training.batch / halflife)


def update_weights(training: Training) -> dict[str, Callable[[int], float]]:
    """Return for every average of a training, by its name, the weight of the newest values as a function of images.

    The usual one is the first; power-function averages follow.
    """
    weights: dict[str, Callable[[int], float]] = {USUAL: partial(update_weight, training=training)}
    for sigma_rel in training.power_ema:
        gamma = power_ema.exponent(sigma_rel)
        weights[power_average(sigma_rel)] = partial(power_ema.update_weight, gamma, batch=training.batch)
    return weights


class Ema:
    """Average of this rank's fp32 weights, in the order and the shapes of `masters.master_weights`."""

    def __init__(self, masters: list[torch.Tensor]) -> None:
        self.shards = [shard.detach().clone() for shard in masters]

    def update(self, masters: list[torch.Tensor], weight: float, made: bool | torch.Tensor = True) -> None:
        """Move every value towards its master by `weight`, in [0, 1], of their difference.

        made: whether there was a step at all, as a tensor, (), where nobody has read it.
        """
        if isinstance(made, torch.Tensor):
            own = torch.where(made, weight, 0.0)
            for shard, master in zip(self.shards, masters, strict=True):
                shard.lerp_(master.detach(), own)
        elif made:
            torch._foreach_lerp_(self.shards, masters, weight)
