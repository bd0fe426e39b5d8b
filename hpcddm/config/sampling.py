"""Settings for sampling and for comparing arms, in an experiment's YAML."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.config import variants
from hpcddm.config.image_encoders import ImageEncoderSettings, PerceptualSettings
from hpcddm.config.schema import PathSetting, Positive, StrictModel, VariantSettings, default_variant
from hpcddm.errors import ConfigError


class StrategySettings(VariantSettings):
    """Settings of a routing strategy, written as one word."""

    package: ClassVar[str] = "sampling/strategies"

    pattern: ClassVar[str]
    """Regular expression of its names; its groups are the fields, as in 'top1' and 'top-2'."""
    usage: ClassVar[str]
    """Names to show as examples, as in 'top-1, top-2, ...'."""
    needs_router: ClassVar[bool] = True
    """False for a strategy that asks for no posterior of the router."""
    per_trajectory: ClassVar[bool] = False
    """True if the first weights are kept for the whole trajectory."""

    @property
    def label(self) -> str:
        """Canonical name; that of a strategy without fields is its `usage`."""
        return self.usage


def parse_strategy(text: str) -> StrategySettings:
    """Parse a strategy's settings from its name; `.label` is the canonical one.

    Raises `ConfigError` with the valid names.
    """
    for name, settings in variants.settings_classes(StrategySettings).items():
        if match := re.fullmatch(settings.pattern, text):
            return settings.model_validate({"name": name, **match.groupdict()})
    raise ConfigError(f"unknown name '{text}'; valid names: {strategy_usage()}")


def is_strategy(text: str) -> bool:
    """Tell if a text has the form of a strategy's name, its numbers right or wrong."""
    known = variants.settings_classes(StrategySettings).values()
    return any(re.fullmatch(settings.pattern, text) for settings in known)


def strategy_usage() -> str:
    """List the names of all strategies, with examples where they have fields."""
    return ", ".join(settings.usage for settings in variants.settings_classes(StrategySettings).values())


class ConversionSettings(VariantSettings):
    """Settings of a conversion of predictions to velocities of the linear path."""

    package: ClassVar[str] = "sampling/conversions"


class PlacementSettings(VariantSettings):
    """Settings of a placement of the experts' weights during sampling."""

    package: ClassVar[str] = "sampling/placements"

    uses_all_gpus: ClassVar[bool] = False
    """True for a placement that can use every GPU of its node."""


class SolverSettings(VariantSettings):
    """Settings of a solver of the sampling ODE."""

    package: ClassVar[str] = "sampling/solvers"

    native: ClassVar[bool] = False
    """True for a `NativeSolver`, which steps in the coordinates of a single model."""
    nfe_per_step: ClassVar[int]
    """Number of velocity evaluations in one step."""


class SamplerSettings(StrictModel):
    """Settings for sampling from networks."""

    steps: Positive = 20
    """Number of steps of the solver."""
    shift: Annotated[float, Field(gt=0)] = 1.0
    """Shift s of the time steps: t = s u / (1 + (s - 1) u) with equally spaced u, which lowers log-SNR by 2 log s."""
    solver: SolverSettings = default_variant("euler")
    guidance: Annotated[float, Field(ge=0)] = 1.0
    """Scale of classifier-free guidance; 1 for none."""
    guidance_interval: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=2, max_length=2)] = [0, 1]
    """First and last time t at which guidance acts (arXiv 2404.07724)."""
    conversion: ConversionSettings = default_variant("snr_matched")
    """Conversion of every expert's prediction to a velocity of the linear path."""
    posteriors: Literal["separate", "shared"] = "separate"
    """Routing weights of guidance's unconditional half: separate p(k | x, t, null), or shared p(k | x, t, class)."""
    renormalise: bool = True
    """True to scale the weights of a strategy's selected experts so that they sum to one."""
    route_every_steps: Positive = 1
    """Number of steps between two evaluations of the router."""


class EvaluateSettings(SamplerSettings):
    """Settings of sampling and comparison; all arms have the same number of images, steps and guidance scale."""

    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"units", "min_experts", "placement", "extractors", "perceptual", "reference"}
    )
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"first_sample", "labels", "snapshot", "sigma_rel"})

    images: Positive = 2000
    """Number of samples per arm."""
    first_sample: Annotated[int, Field(ge=0)] = 0
    """Number of the first sample. The number determines noise and held-out image, so disjoint ranges are independent:
    choose settings on one range and measure them on another."""
    labels: Literal["balanced", "uniform"] = "balanced"
    """Classes of the samples: all equally often, or that of each sample drawn at random with replacement."""
    batch: Positive = 100
    """Number of images sampled together; a unit samples whole batches, so the number of units does not change a bit."""
    strategies: Annotated[list[str], Field(min_length=1)] = ["top-1", "top-2"]
    """Routing strategies; each one is an arm of the comparison."""
    placement: PlacementSettings = default_variant("resident")
    """Placement of the experts' weights during sampling; it does not change a bit of the samples."""
    snapshot: Positive | None = None
    """Snapshot to evaluate, one of `experts.training.snapshots`; by default the final weights."""
    sigma_rel: float | None = None
    """Relative length of the evaluated average, computed from the averages of `experts.training.power_ema`."""
    units: Positive = 1
    """Number of units that share the samples."""
    extractors: list[ImageEncoderSettings] = []
    """Encoders of images with public weights that measure samples and real images beside `evaluators.extractor`."""
    perceptual: PerceptualSettings | None = None
    """Distance that measures how much the samples of one class differ, such as `{name: lpips_alex}`."""
    reference: PathSetting | None = None
    """Folder of another run, whose measurements of the same real images by the same networks are copied."""
    min_experts: Positive | None = None
    """Number of experts that evaluation and report need; both list missing experts. By default all are needed."""
