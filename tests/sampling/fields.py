"""What the tests of ensembles share: settings, denoisers of given functions, moments."""

import itertools
from collections.abc import Callable

import torch

from hpcddm.config import variants
from hpcddm.config.sampling import ConversionSettings, EvaluateSettings
from hpcddm.sampling.conversions.base import Conversion
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.step_context import SampleStream, StepContext
from tests.sampling.mixtures import Mixture, objective

OBJECTIVES = variants.list_variants("diffusion/objectives")
EVERY = list(itertools.product(OBJECTIVES, variants.list_variants("diffusion/objectives/schedules")))
"""Every objective on every path."""


def evaluation(**changes: object) -> EvaluateSettings:
    """The settings of an evaluation, some of them changed."""
    return EvaluateSettings.model_validate(changes)


def conversion(name: str = "snr_matched", precision: str = "fp32", **keys: object) -> Conversion:
    """A conversion as an experiment's YAML would make it, for networks of a precision."""
    return variants.create(Conversion, ConversionSettings.model_validate({"name": name} | keys), precision)


def flowing(velocity: Callable) -> DenoiserVelocity:
    """A velocity of the linear path as a denoiser."""
    return DenoiserVelocity(velocity, objective("flow_matching"), conversion())


def experts_of(mixture: Mixture, name: str = "flow_matching", **keys: object) -> list[DenoiserVelocity]:
    """The ideal experts of a mixture's clusters, trained for the same objective."""
    own = objective(name, **keys)
    return [DenoiserVelocity(mixture.model(own, k), own, conversion()) for k in range(mixture.clusters)]


def context(count: int, step: int = 0, time: float = 0.5, seed: int = 0, first: int = 0) -> StepContext:
    """A moment of a batch of images numbered from `first`."""
    return StepContext(SampleStream(seed, range(first, first + count)), step, time)


def posterior(count: int = 50, experts: int = 4, seed: int = 0) -> torch.Tensor:
    """Some posterior, float64 (count, experts)."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(count, experts, generator=generator, dtype=torch.float64)).softmax(1)
