"""Settings of drawing samples, and of comparing arms by them, in an experiment's YAML."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.config.schema import Positive, StrictModel, VariantSettings, default_variant


class ConversionSettings(VariantSettings):
    """Settings of a conversion of predictions to velocities of the linear path."""

    room: ClassVar[str] = "sampling/conversions"


class PlacementSettings(VariantSettings):
    """Settings of a placement of the experts' weights while sampling."""

    room: ClassVar[str] = "sampling/placements"

    uses_all_gpus: ClassVar[bool] = False
    """True for a placement that has a use for every GPU of its node."""


class SolverSettings(VariantSettings):
    """Settings of a solver of the sampling ODE."""

    room: ClassVar[str] = "sampling/solvers"

    native: ClassVar[bool] = False
    """True for a solver that steps in one model's own coordinates, a `NativeSolver`."""
    nfe_per_step: ClassVar[int]
    """Number of velocity evaluations in one step."""


class SamplerSettings(StrictModel):
    """Settings of drawing samples from networks, whatever they are drawn for."""

    steps: Positive = 20
    shift: Annotated[float, Field(gt=0)] = 1.0
    """Step spacing t = s u / (1 + (s - 1) u), u equally spaced: every log-SNR lower by 2 log s."""
    solver: SolverSettings = default_variant("euler")
    guidance: Annotated[float, Field(ge=0)] = 1.0
    guidance_interval: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=2, max_length=2)] = [0, 1]
    """First and last time t at which guidance acts (arXiv 2404.07724)."""
    conversion: ConversionSettings = default_variant("snr_matched")
    """Conversion of any expert's prediction to a velocity of the linear path."""
    posteriors: Literal["separate", "shared"] = "separate"
    """Routing weights of guidance's null half: its own p(k | x, t, null), or the other half's p(k | x, t, class)."""
    renormalise: bool = True
    """True where the weights of the experts that a strategy takes are scaled to sum to one."""
    route_every: Positive = 1
    """Number of steps between two evaluations of the router."""


class EvaluateSettings(SamplerSettings):
    """Settings of sampling and comparison; every arm has the same number of images, steps and guidance scale."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"units", "min_experts", "placement"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"first", "snapshot", "sigma_rel"})

    images: Positive = 2000
    first: Annotated[int, Field(ge=0)] = 0
    """Number of the first sample. A sample has noise and a held-out image by its number, so ranges that do not overlap
    share neither: settings that were chosen by one are measured by another."""
    batch: Positive = 100
    """Images sampled together: a unit is whole batches, so the number of units changes no bit."""
    strategies: Annotated[list[str], Field(min_length=1)] = ["top-1", "top-2"]
    placement: PlacementSettings = default_variant("resident")
    """Placement of the experts' weights while sampling; changes no bit of the samples."""
    snapshot: Positive | None = None
    """One of `experts.training.snapshots`, whose weights are evaluated; by default those of the end."""
    sigma_rel: float | None = None
    """Relative length of the average that is evaluated, made of those of `experts.training.power_ema`."""
    units: Positive = 1
    min_experts: Positive | None = None
    """Number of experts that evaluation and report need; they name missing ones. By default they need all."""
