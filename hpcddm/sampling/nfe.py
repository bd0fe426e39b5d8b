"""Network evaluations (NFE) of an arm per image, counted by drawing with networks that only count."""

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace

import torch

from hpcddm.config import variants
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.diffusion.spaces.base import Space
from hpcddm.sampling.conversions.base import Conversion
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.diagnostics import diagnose
from hpcddm.sampling.ensemble import Ensemble, NetworkEvaluations
from hpcddm.sampling.sampler import sample

ONE_PIXEL = variants.create(
    Space, SpaceSettings.model_validate({"name": "pixels"}), SimpleNamespace(channels=1, image_size=1)
)

NOTHING = torch.zeros(1, dtype=torch.long)
"""Condition, and cluster, of one image."""
ONE_IMAGE = 0, range(1), NOTHING, ONE_PIXEL
"""Seed, number, condition and space of the image for which evaluations are counted."""


ArmCount = Callable[[str, SamplerSettings, int], NetworkEvaluations]


def _memoised(count: ArmCount) -> ArmCount:
    """Cache the counts, because dozens of units of an evaluation need the same ones."""
    counts: dict[tuple[str, str, int], NetworkEvaluations] = {}

    @wraps(count)
    def remembered(arm: str, sampler: SamplerSettings, num_experts: int) -> NetworkEvaluations:
        key = arm, sampler.model_dump_json(), num_experts
        if key not in counts:
            counts[key] = count(arm, sampler, num_experts)
        return counts[key]

    return remembered


@_memoised
def of_arm(arm: str, sampler: SamplerSettings, num_experts: int) -> NetworkEvaluations:
    """Count the evaluations for one image of an arm.

    Args:
        arm: Name of the arm, as in `Ensemble.field`.
        sampler: Settings of the sampler.
        num_experts: Number of experts K.

    Returns:
        The maximum over all routers.
    """

    def draw(ensemble: Ensemble) -> None:
        sample(ensemble.field(arm, sampler, NOTHING), *ONE_IMAGE, sampler)

    return _most(draw, sampler, num_experts)


@_memoised
def of_diagnostics(arm: str, sampler: SamplerSettings, num_experts: int) -> NetworkEvaluations:
    """Count the evaluations for the diagnostics of one image; `diagnose` evaluates every expert and draws twice.

    Args:
        arm: Name of the arm, as in `Ensemble.field`.
        sampler: Settings of the sampler.
        num_experts: Number of experts K.

    Returns:
        The maximum over all routers.
    """

    def inspect(ensemble: Ensemble) -> None:
        diagnose(lambda: ensemble.field(arm, sampler, NOTHING), *ONE_IMAGE, sampler)

    return _most(inspect, sampler, num_experts)


def _most(act: Callable[[Ensemble], None], sampler: SamplerSettings, num_experts: int) -> NetworkEvaluations:
    """Return the maximum over routers for which 1, 2, ... K experts are equally likely; K itself may give less."""
    counts = [_count(act, sampler, num_experts, likely) for likely in range(1, num_experts + 1)]
    return max(counts, key=lambda counted: (counted.experts, counted.router))


class _Counter:
    """A network that returns `output`, or zeros like its images, and counts its images."""

    def __init__(self, output: torch.Tensor | None = None) -> None:
        self.output, self.images = output, 0

    def __call__(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        self.images += len(x)
        return torch.zeros_like(x) if self.output is None else self.output.expand(len(x), -1)


def _count(
    act: Callable[[Ensemble], None], sampler: SamplerSettings, num_experts: int, likely: int
) -> NetworkEvaluations:
    objective = variants.create(Objective, ObjectiveSettings.model_validate({"name": "flow_matching"}))
    conversion = variants.create(Conversion, sampler.conversion)
    # Not -inf: a probability of exactly nothing is none that a network gives.
    logits = torch.zeros(num_experts).masked_fill(torch.arange(num_experts) >= likely, -50.0)
    router, model = _Counter(logits), _Counter()
    expert = DenoiserVelocity(model, objective, conversion)
    act(Ensemble([expert] * num_experts, router, expert, expert, 0))
    return NetworkEvaluations(model.images, router.images)
