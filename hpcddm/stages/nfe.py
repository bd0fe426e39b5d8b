"""How often an arm asks its networks to draw one image, counted by letting it draw with networks that only count."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hpcddm import plugins
from hpcddm.config import EvaluateSettings
from hpcddm.ensemble.denoiser import Denoiser
from hpcddm.ensemble.diagnostics import diagnose
from hpcddm.ensemble.ensemble import Ensemble
from hpcddm.ensemble.sampler import sample

SHAPE = (1, 1, 1)


@dataclass(frozen=True)
class NetworkEvaluations:
    """Images that all experts together, and the router, see."""

    experts: float = 0.0
    router: float = 0.0

    def __add__(self, other: "NetworkEvaluations") -> "NetworkEvaluations":
        return NetworkEvaluations(self.experts + other.experts, self.router + other.router)


def of_arm(arm: str, evaluate: EvaluateSettings, num_experts: int) -> NetworkEvaluations:
    """What drawing one image takes at most, whatever the router says."""
    nothing = torch.zeros(1, dtype=torch.long)

    def draw(ensemble: Ensemble) -> None:
        sample(ensemble.field(arm, evaluate, nothing), 0, range(1), nothing, SHAPE, evaluate)

    return _most(draw, evaluate, num_experts)


def of_diagnostics(arm: str, evaluate: EvaluateSettings, num_experts: int) -> NetworkEvaluations:
    """What looking into the drawing of one image takes at most: `diagnose` asks every expert, and draws twice."""
    nothing = torch.zeros(1, dtype=torch.long)

    def inspect(ensemble: Ensemble) -> None:
        diagnose(lambda: ensemble.field(arm, evaluate, nothing), 0, range(1), nothing, SHAPE, evaluate)

    return _most(inspect, evaluate, num_experts)


def _most(act: Callable[[Ensemble], None], evaluate: EvaluateSettings, num_experts: int) -> NetworkEvaluations:
    """The most over routers that find 1, 2, ... K experts equally likely: of a threshold's, not all are the worst."""
    found = [_count(act, evaluate, num_experts, likely) for likely in range(1, num_experts + 1)]
    return max(found, key=lambda counted: (counted.experts, counted.router))


class _Counter:
    """A network that answers with `answer`, or with zeros like its images, and counts the images that it sees."""

    def __init__(self, answer: torch.Tensor | None = None) -> None:
        self.answer, self.images = answer, 0

    def __call__(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        self.images += len(x)
        return torch.zeros_like(x) if self.answer is None else self.answer.expand(len(x), -1)


def _count(
    act: Callable[[Ensemble], None], evaluate: EvaluateSettings, num_experts: int, likely: int
) -> NetworkEvaluations:
    flow = plugins.load("objectives", "flow_matching")
    objective = flow.Objective(flow.Settings(name="flow_matching"))
    conversion = plugins.load("ensemble/conversions", evaluate.conversion.name).Conversion(evaluate.conversion)
    # Not -inf: a probability of exactly nothing is none that a network gives.
    logits = torch.zeros(num_experts).masked_fill(torch.arange(num_experts) >= likely, -50.0)
    router, model = _Counter(logits), _Counter()
    expert = Denoiser(model, objective, conversion)
    act(Ensemble([expert] * num_experts, router, expert, expert, 0))
    return NetworkEvaluations(model.images, router.images)
