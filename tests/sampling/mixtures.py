"""Gaussian mixtures split into clusters: everything that an ensemble approximates, in closed form and float64.

The formulas here are the tests' own (alpha and sigma too, for the schedules that they know), so that nothing is
compared with itself. Images have the shape (1, 1, dimension).
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from hpcddm.config import variants
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.diffusion.objectives.base import Objective

DOUBLE = {"dtype": torch.float64}


class Mixture:
    """A mixture of diagonal Gaussians; its components form `clusters` groups of unequal mass.

    masses: (K,); weights, cluster_of: (J,); means, variances: (J, dimension), for J = K components.
    """

    def __init__(self, dimension: int = 2, clusters: int = 4, components: int = 2, seed: int = 0, spread: float = 1.5):
        generator = torch.Generator().manual_seed(seed)
        count = clusters * components
        self.dimension, self.clusters, self.shape = dimension, clusters, (1, 1, dimension)
        self.cluster_of = torch.arange(count) // components
        self.masses = torch.arange(clusters, 0, -1, **DOUBLE) / (clusters * (clusters + 1) / 2)
        shares = 0.25 + torch.rand(clusters, components, generator=generator, **DOUBLE)
        self.weights = (self.masses[:, None] * shares / shares.sum(1, keepdim=True)).flatten()
        self.means = spread * torch.randn(count, dimension, generator=generator, **DOUBLE)
        self.variances = (0.2 + 0.5 * torch.rand(count, dimension, generator=generator, **DOUBLE)) ** 2

    def sample(self, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (count, 1, 1, dimension) of the whole mixture, and their clusters (count,)."""
        generator = torch.Generator().manual_seed(seed)
        component = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        normal = torch.randn(count, self.dimension, generator=generator, **DOUBLE)
        x0 = self.means[component] + self.variances[component].sqrt() * normal
        return x0.view(-1, *self.shape), self.cluster_of[component]

    def states(self, t: torch.Tensor, seed: int = 0) -> torch.Tensor:
        """States x_t of the linear path (N, 1, 1, dimension) at times t (N,)."""
        x0, _ = self.sample(len(t), seed)
        noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(seed + 1), **DOUBLE)
        return (1 - t).view(-1, 1, 1, 1) * x0 + t.view(-1, 1, 1, 1) * noise

    def moments(self, cluster: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean (dimension,) and covariance (dimension, dimension) of the data, or of one cluster's."""
        chosen = self._members(cluster)
        weights = self.weights[chosen] / self.weights[chosen].sum()
        mean = weights @ self.means[chosen]
        centred = self.means[chosen] - mean
        return mean, centred.T @ (weights[:, None] * centred) + torch.diag(weights @ self.variances[chosen])

    def posterior(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """p(k | x, t) on the linear path: (N, K)."""
        return self.router(x, t).softmax(1)

    def router(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor | None = None) -> torch.Tensor:
        """Exact logits (N, K) of `posterior`, in the form of a router network."""
        scores = self._scores(x, 1 - t, t)
        return torch.stack([scores[:, self.cluster_of == k].logsumexp(1) for k in range(self.clusters)], dim=1)

    def velocity(self, x: torch.Tensor, t: torch.Tensor, cluster: int | None = None) -> torch.Tensor:
        """E[eps - x0 | x, t] on the linear path, of the whole mixture or of one cluster: like x."""
        x0, noise = self.estimate(x, 1 - t, t, cluster)
        return noise - x0

    def estimate(
        self, x: torch.Tensor, alpha: torch.Tensor, sigma: torch.Tensor, cluster: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """E[x0 | x] and E[eps | x] for x = alpha x0 + sigma eps, x0 from the mixture or one cluster; alpha: (N,)."""
        chosen, a, s = self._members(cluster), alpha.view(-1, 1, 1), sigma.view(-1, 1, 1)
        means, variances = self.means[chosen], self.variances[chosen]
        whitened = (x.flatten(1)[:, None] - a * means) / (a**2 * variances + s**2)
        share = self._scores(x, alpha, sigma)[:, chosen].softmax(1)[:, :, None]
        x0, noise = (share * (means + a * variances * whitened)).sum(1), (share * s * whitened).sum(1)
        return x0.view_as(x), noise.view_as(x)

    def model(self, objective: object, cluster: int | None = None) -> Callable:
        """The ideal network of an objective, trained on one cluster or on all: (x, t, condition) -> prediction.

        x and t are native: a state of the objective's own path at its own time.
        """

        def predict(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor | None = None) -> torch.Tensor:
            alpha, sigma, d_alpha, d_sigma = path(objective, t)
            x0, noise = self.estimate(x, alpha, sigma, cluster)
            form = FORMS[objective.settings.name](alpha, sigma, d_alpha, d_sigma)
            cx, ce = (torch.as_tensor(value, **DOUBLE).expand(len(x)).view(-1, 1, 1, 1) for value in form)
            return cx * x0 + ce * noise

        return predict

    def _members(self, cluster: int | None) -> torch.Tensor:
        everyone = torch.arange(len(self.weights))
        return everyone if cluster is None else everyone[self.cluster_of == cluster]

    def _scores(self, x: torch.Tensor, alpha: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """log p(component, x) up to a constant per sample: (N, J)."""
        a, s = alpha.view(-1, 1, 1), sigma.view(-1, 1, 1)
        variance = a**2 * self.variances + s**2
        squares = (x.flatten(1)[:, None] - a * self.means) ** 2 / variance
        return self.weights.log() - 0.5 * (squares + variance.log()).sum(2)


def objective(name: str, schedule: str | None = None, **keys: object) -> Objective:
    """An objective as an experiment's YAML would make it."""
    values = {"name": name} | ({"schedule": {"name": schedule}} if schedule else {}) | keys
    return variants.create(Objective, ObjectiveSettings.model_validate(values))


def path(objective: object, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """alpha, sigma and their derivatives at native times t (N,), in the tests' own formulas where there are any."""
    schedule = objective.settings.schedule
    own = PATHS.get(schedule.name, partial(_of_the_library, objective.schedule))
    times = t.detach().double().requires_grad_()
    with torch.enable_grad():
        alpha, sigma = own(times)
        derivatives = [torch.autograd.grad(value.sum(), times, retain_graph=True)[0] for value in (alpha, sigma)]
    return alpha.detach(), sigma.detach(), *derivatives


def _of_the_library(schedule: object, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    level = schedule.level(t)
    return level.alpha, level.sigma


def _linear(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return 1 - t, t


def _cosine(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # cos(pi t / 2), without its loss of digits near t = 1.
    return torch.sin(math.pi / 2 * (1 - t)), torch.sin(math.pi / 2 * t)


def _linear_beta(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance-preserving SDE with beta(t) = 0.1 + 19.9 t (arXiv 2011.13456, eq. 33)."""
    integral = 0.1 * t + 19.9 * t**2 / 2
    return torch.exp(-integral / 2), torch.sqrt(-torch.expm1(-integral))


def _table(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Products of 1 - beta_i, beta_i from 1e-4 to 0.02 (arXiv 2006.11239, sec. 4); between levels log-SNR is linear."""
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    log_snr = np.log(kept / (1 - kept))
    position = np.clip(t.detach().numpy() * 1000, 0, 999)
    below = np.minimum(np.floor(position), 998).astype(int)
    slope = torch.from_numpy(log_snr[below + 1] - log_snr[below])
    value = torch.from_numpy(log_snr[below]) + (1000 * t - torch.from_numpy(below.astype(float))) * slope
    return 1 / torch.sqrt(1 + torch.exp(-value)), 1 / torch.sqrt(1 + torch.exp(value))


PATHS = {"linear": _linear, "cosine": _cosine, "linear_beta": _linear_beta, "linear_beta_1000": _table}
FORMS = {
    "epsilon": lambda alpha, sigma, d_alpha, d_sigma: (0.0, 1.0),
    "x0_prediction": lambda alpha, sigma, d_alpha, d_sigma: (1.0, 0.0),
    "v_prediction": lambda alpha, sigma, d_alpha, d_sigma: (-sigma, alpha),
    "flow_matching": lambda alpha, sigma, d_alpha, d_sigma: (d_alpha, d_sigma),
}
