"""How often an arm asks its networks to draw one image, counted by letting it draw with networks that only count."""

from dataclasses import dataclass

import torch

from hpcddm import plugins
from hpcddm.config import EvaluateSettings
from hpcddm.ensemble.denoiser import Denoiser
from hpcddm.ensemble.members import Members
from hpcddm.ensemble.sampler import sample


@dataclass(frozen=True)
class Looks:
    """Images that all experts together, and the router, see."""

    experts: float = 0.0
    router: float = 0.0


class _Counter:
    """A network that says nothing, `outputs` zeros per image, and counts the images that it sees."""

    def __init__(self, outputs: int | None = None) -> None:
        self.outputs, self.images = outputs, 0

    def __call__(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        self.images += len(x)
        return torch.zeros_like(x) if self.outputs is None else torch.zeros(len(x), self.outputs)


def of_arm(arm: str, evaluate: EvaluateSettings, num_experts: int) -> Looks:
    """What one image takes at most: with a router that finds all experts equally likely."""
    flow = plugins.load("objectives", "flow_matching")
    objective = flow.Objective(flow.Settings(name="flow_matching"))
    conversion = plugins.load("ensemble/conversions", evaluate.conversion.name).Conversion(evaluate.conversion)
    router, model = _Counter(num_experts), _Counter()
    expert = Denoiser(model, objective, conversion)
    members = Members([expert] * num_experts, router, expert, expert, 0)
    nothing = torch.zeros(1, dtype=torch.long)
    sample(members.field(arm, evaluate, nothing), 0, range(1), nothing, (1, 1, 1), evaluate)
    return Looks(model.images, router.images)
