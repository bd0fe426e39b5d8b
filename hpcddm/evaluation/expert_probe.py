"""Rule by which a coordinator accepts an expert of another site, from its losses on a few images of every cluster."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from hpcddm.config.experiment import ProbeRule


@dataclass(frozen=True)
class ProbeLosses:
    """Losses of one expert on the probe, the held-out images of all K clusters, at L noise levels.

    A cluster without images in the probe has empty lists. JSON has None for a loss that is not finite.

    Args:
        levels: Times of the linear path, (L,).
        losses: Mean losses of the expert, (K, L).
        constant: Losses of the best constant predictor on the same images and noise, (K, L).
        unconditional: Mean losses of the expert on its own cluster with the null condition, (L,); empty if it is not
            trained with it, or if the cluster has no images.
    """

    levels: list[float]
    losses: list[list[float | None]]
    constant: list[list[float]]
    unconditional: list[float | None] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        rows = [
            [loss if loss is not None and math.isfinite(loss) else None for loss in row]
            for row in (*self.losses, self.unconditional)
        ]
        return asdict(self) | {"losses": rows[:-1], "unconditional": rows[-1]}

    def shares(self, cluster: int) -> list[float]:
        """Return the losses on a cluster over those of the constant predictor, (L,), with NaN for None."""
        return _shares(self.losses[cluster], self.constant[cluster])


def _shares(losses: list[float | None], constant: list[float]) -> list[float]:
    pairs = zip(losses, constant, strict=True)
    return [math.nan if loss is None else loss / of_constant for loss, of_constant in pairs]


def faults(probe: ProbeLosses, cluster: int, rule: ProbeRule) -> list[str]:
    """List where an expert breaks the rule of its contract.

    With the loss l(k, t) on the images of cluster k at level t, c(k, t) of the best constant predictor, and r(k) the
    geometric mean of l(k, t) / c(k, t) over the levels, the expert of cluster i has to have l(i, t) < `max_share`
    c(i, t) at every t, with its condition and with the null condition of guidance, and r(i) < `max_of_others` r(k) for
    every other k. The first tells that it denoises, the second that it has learned this cluster and not another: each
    expert is trained on one cluster alone (arXiv 2501.05450, sec. 3). Losses themselves would also compare clusters,
    because some are easier than others, and a plain mean would be that of one level where epsilon is predicted;
    docs/results/probe.md has what other rules refuse. Without images of cluster i nothing is a fault, and clusters that
    a constant predicts without any loss are passed over.

    Args:
        probe: Losses of the expert.
        cluster: Number i of its cluster.
        rule: The rule, of the contract if there is one.

    Returns:
        One line for every broken part, of the first kind for every level and condition; none for an expert that passes.
    """
    shares = {k: probe.shares(k) for k, constant in enumerate(probe.constant) if constant and min(constant) > 0}
    if cluster not in shares:
        return []
    told = {"": shares[cluster]}
    if probe.unconditional:
        told[" without its condition"] = _shares(probe.unconditional, probe.constant[cluster])
    wild = [f"its loss on cluster {k} is not finite" for k, share in shares.items() if not math.isfinite(sum(share))]
    wild += [f"its loss{how} is not finite" for how, share in told.items() if how and not math.isfinite(sum(share))]
    if wild:
        return wild
    found = [
        f"at t = {level:g} its loss{how} is {share:.4g} x that of the best constant predictor, not below"
        f" {rule.max_share:g}"
        for how, own_shares in told.items()
        for level, share in zip(probe.levels, own_shares, strict=True)
        if not share < rule.max_share
    ]
    means = {k: math.prod(share) ** (1 / len(share)) for k, share in shares.items()}
    own = means.pop(cluster)
    lower = [f"{mean:.4g} on cluster {k}" for k, mean in means.items() if not own < rule.max_of_others * mean]
    if lower:
        found.append(
            f"its loss in units of the best constant predictor's, a geometric mean, is {own:.4g} on its own cluster"
            f" {cluster}, not below {rule.max_of_others:g} x {', '.join(lower)}"
        )
    return found
