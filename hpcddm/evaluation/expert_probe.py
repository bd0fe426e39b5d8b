"""Rule by which a coordinator accepts an expert of another site, from its losses on a few images of every cluster."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ProbeLosses:
    """Losses of one expert on the probe, the held-out images of all K clusters, at L noise levels.

    A cluster without images in the probe has empty lists. JSON has None for a loss that is not finite.

    Args:
        levels: Times of the linear path, (L,).
        losses: Mean losses of the expert, (K, L).
        constant: Losses of the best constant predictor on the same images and noise, (K, L).
    """

    levels: list[float]
    losses: list[list[float | None]]
    constant: list[list[float]]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        losses = [[loss if math.isfinite(_number(loss)) else None for loss in row] for row in self.losses]
        return asdict(self) | {"losses": losses}


def faults(probe: ProbeLosses, cluster: int, factor: float) -> list[str]:
    """List where an expert breaks the rule of its contract.

    With the loss l(k, t) on the images of cluster k at level t, and c(k, t) of the best constant predictor, the expert
    of cluster i has to have l(i, t) < factor c(i, t), and l(i, t) < l(k, t) for every other k, at every t. The first
    tells that it denoises, the second that it has learned this cluster and not another: each expert of an ensemble
    is trained on one cluster alone (arXiv 2501.05450, sec. 3). Without images of cluster i nothing is a fault.

    Args:
        probe: Losses of the expert.
        cluster: Number i of its cluster.
        factor: Largest share of the constant predictor's loss, such as 0.9.

    Returns:
        One line for every level and broken part; none for an expert that passes.
    """
    found = []
    for number, level in enumerate(probe.levels if probe.losses[cluster] else []):
        losses = {k: _number(row[number]) for k, row in enumerate(probe.losses) if row}
        at, wild = f"at t = {level:g} its loss", [str(k) for k, loss in losses.items() if not math.isfinite(loss)]
        if wild:
            found.append(f"{at} is not finite on clusters {', '.join(wild)}")
            continue
        own, constant = losses.pop(cluster), probe.constant[cluster][number]
        if not own < factor * constant:
            found.append(f"{at} is {own:.4g}, not below {factor:g} x {constant:.4g} of the best constant predictor")
        lower = [f"{loss:.4g} on cluster {k}" for k, loss in losses.items() if not own < loss]
        if lower:
            found.append(f"{at} on cluster {cluster}, its own, is {own:.4g}, not below {', '.join(lower)}")
    return found


def _number(loss: float | None) -> float:
    return math.nan if loss is None else loss
