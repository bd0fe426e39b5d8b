"""One velocity field from several experts, a posterior over them, and classifier-free guidance."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from hpcddm.ensemble.dispatch import weighted_velocity


def routed(router: Callable, present: torch.Tensor) -> Callable:
    """The posterior p(k | x, t, class, k is present) of a router's logits; present: (K,), whether expert k is there."""

    def posterior(x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        # Not p / p.sum() of the present ones: where a missing one has all the probability, that is 0 / 0.
        return router(x, t, classes).masked_fill(~present, -torch.inf).softmax(dim=1)

    return posterior


def known(clusters: torch.Tensor, num_experts: int) -> Callable:
    """The one-hot posterior of samples whose clusters (N,) are known; zeros make a single model an ensemble of one."""
    one_hot = F.one_hot(clusters, num_experts).float()

    def posterior(x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        # With guidance the batch is asked twice over.
        return one_hot.repeat(len(x) // len(one_hot), 1)

    return posterior


def known_or_routed(clusters: torch.Tensor, present: torch.Tensor, router: Callable) -> Callable:
    """The one-hot posterior of the samples whose cluster's expert is present (K,); the others ask the router."""
    one_hot, asked = known(clusters, len(present)), routed(router, present)
    own_is_there = present[clusters, None]

    def posterior(x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        is_there = own_is_there.repeat(len(x) // len(own_is_there), 1)
        return torch.where(is_there, one_hot(x, t, classes), asked(x, t, classes))

    return posterior


class EnsembleVelocity:
    """v(x, t, c) = sum_k w_k(x, t, c) v_k(x, t, c), as a function of (x, t, classes) (arXiv 2501.05450, eq. 4).

    experts: functions (x, t, classes) -> velocity of the linear path, such as an objective's `velocity` with
    its model filled in; posterior: function (x, t, classes) -> (N, K); rule: from posterior to weights (N, K).
    With guidance g != 1 the velocity is v(null) + g (v(c) - v(null)) (arXiv 2207.12598, eq. 6), where each half is
    weighted by its own posterior, and both halves of an expert's group are one batch.

    `usage` gains one (K,) entry per call: the sum over samples of the conditional half's weights.
    """

    def __init__(
        self, experts: Sequence[Callable], posterior: Callable, rule: Callable, null_class: int, guidance: float = 1.0
    ):
        self.experts, self.posterior, self.rule = experts, posterior, rule
        self.null_class, self.guidance = null_class, guidance
        self.usage: list[torch.Tensor] = []

    def __call__(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """x: (N, C, H, W); t, classes: (N,) -> (N, C, H, W)."""
        if self.guidance == 1:
            return self._weighted(x, t, classes, len(x))
        null = torch.full_like(classes, self.null_class)
        both = self._weighted(torch.cat([x, x]), torch.cat([t, t]), torch.cat([classes, null]), len(x))
        conditional, unconditional = both.chunk(2)
        return torch.lerp(unconditional, conditional, self.guidance)

    def _weighted(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor, counted: int) -> torch.Tensor:
        weights = self.rule(self.posterior(x, t, classes))
        self.usage.append(weights[:counted].sum(0))
        return weighted_velocity(self.experts, weights, x, t, classes)
