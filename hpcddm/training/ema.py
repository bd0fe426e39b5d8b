"""Averages of the fp32 master weights over the training, sharded as the weights are."""

from collections.abc import Callable
from functools import partial

import torch

from hpcddm.config.training import Training
from hpcddm.runs.weights_files import USUAL, power_average_name
from hpcddm.training import power_ema

RAMP = 0.1
"""Largest half-life as a share of the images seen, so that the average forgets the initial weights."""


def update_weight(images_seen: int, training: Training) -> float:
    """Return the weight of the newest values in the average after a step: 1 - 0.5^(batch / half-life).

    The half-life in images is `ema_halflife_images`, limited to `RAMP` times the images seen. Source: training_loop.py
    of NVlabs/edm (arXiv 2206.00364), which uses 0.05 and excludes the images of the step.

    Args:
        images_seen: Number of images seen, including those of the step.
        training: Settings of the training.
    """
    halflife = min(training.ema_halflife_images, RAMP * images_seen)
    return 1 - 0.5 ** (training.batch / halflife)


def update_weights(training: Training) -> dict[str, Callable[[int], float]]:
    """Return for every average, by name, the weight of the newest values as a function of the images seen.

    The usual average is the first entry; power-function averages follow.
    """
    weights: dict[str, Callable[[int], float]] = {USUAL: partial(update_weight, training=training)}
    for sigma_rel in training.power_ema:
        gamma = power_ema.exponent(sigma_rel)
        weights[power_average_name(sigma_rel)] = partial(power_ema.update_weight, gamma, batch=training.batch)
    return weights


class Ema:
    """Exponential moving average of this rank's fp32 weights.

    Args:
        masters: This rank's shards, as from `fp32_master_weights.master_weights`; the average starts as a copy.

    Examples:
        >>> weights = [torch.zeros(2)]
        >>> average = Ema(weights)
        >>> weights[0] += 1.0
        >>> average.update(weights, weight=0.25)
        >>> average.shards[0].tolist()
        [0.25, 0.25]
    """

    def __init__(self, masters: list[torch.Tensor]) -> None:
        self.shards = [shard.detach().clone() for shard in masters]

    def update(self, masters: list[torch.Tensor], weight: float, applied: bool | torch.Tensor = True) -> None:
        """Move every value towards its master weight by the fraction `weight` of their difference.

        Args:
            masters: This rank's current shards, in the order and shapes of the constructor's.
            weight: Fraction in [0, 1].
            applied: False if the optimizer step was skipped; on a GPU a tensor (), so that the host does not wait for
                it.
        """
        if isinstance(applied, torch.Tensor):
            applied_weight = torch.where(applied, weight, 0.0)
            for shard, master in zip(self.shards, masters, strict=True):
                shard.lerp_(master.detach(), applied_weight)
        elif applied:
            torch._foreach_lerp_(self.shards, masters, weight)
