"""Settings of trainings and of single experts, in an experiment's YAML."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hpcddm.config.models import DenoiserModelSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.schema import Name, PathSetting, Positive, StrictModel, inner_error

Precision = Literal["fp32", "bf16", "fp16"]
"""Precision of a network in training and sampling; fp16, for GPUs without bf16, uses loss scaling."""
Beta = Annotated[float, Field(ge=0, lt=1)]


MAX_SIGMA_REL = 0.28
"""Upper bound of sigma_rel; at 0.2887 an average weights all times equally."""


class Training(StrictModel):
    """Settings of one training loop with AdamW; all durations except `checkpoint_minutes` are in images."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"checkpoint_minutes", "log_every_images"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset(
        {"schedule", "decay_images", "final_rate_share", "betas", "eps", "snapshots", "power_ema"}
    )

    images: Positive
    """Number of images to train on; in `experts.training` the total over all experts."""
    batch: Positive
    """Images per step; in `experts.training` the total over all experts, so 32 means 8 for each of four experts."""
    learning_rate: Annotated[float, Field(gt=0)]
    warmup_images: Annotated[int, Field(ge=0)] = 0
    """Images of the warm-up, in which the learning rate rises; by default a share of `images`."""
    schedule: Literal["constant", "cosine", "linear", "inverse_root"] = "constant"
    """Schedule of the learning rate after the warm-up."""
    decay_images: Positive | None = None
    """Images at which `cosine` and `linear` reach `final_rate_share`, by default `images`; for `inverse_root`, images
    at which the decay starts, by default `warmup_images`."""
    final_rate_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Final learning rate of `cosine` and `linear`, as a share of `learning_rate`."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of matrices and kernels; norms and biases do not decay."""
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    ema_halflife_images: Positive
    """Half-life of the weights' exponential moving average, in images; by default a share of `images`."""
    power_ema: list[Annotated[float, Field(gt=0, lt=MAX_SIGMA_REL)]] = []
    """Relative lengths, sigma_rel, of additional power-function averages; from two of them, such as 0.05 and 0.1, an
    average of any other length can be computed after the training (arXiv 2312.02696)."""
    snapshots: list[Positive] = []
    """Numbers of images at which the averaged weights are kept as outputs, in ascending order."""
    precision: Precision = "bf16"
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    """Minutes between two training states."""
    log_every_images: Positive = 1024

    def rate_at(self, images_seen: int) -> float:
        """Return the learning rate of a step: it rises linearly from 0 over `warmup_images`, then follows `schedule`.

        Cosine: arXiv 1608.03983, eq. 5, without restarts; inverse root: the decay of EDM2, arXiv 2312.02696.

        Args:
            images_seen: Images of all ranks, including those of the step, so that no step is made at 0.
        """
        factor = min(1.0, images_seen / self.warmup_images) if self.warmup_images else 1.0
        return self.learning_rate * factor * self._decayed(images_seen)

    def _decayed(self, images_seen: int) -> float:
        """Return the share of the rate that the schedule leaves after so many images."""
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "inverse_root":
            reference = self.decay_images or self.warmup_images
            return math.sqrt(reference / max(images_seen, reference))
        end = self.decay_images or self.images
        done = min(max(images_seen - self.warmup_images, 0) / (end - self.warmup_images), 1.0)
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.final_rate_share + (1 - self.final_rate_share) * left

    @property
    def decays_by_images(self) -> bool:
        """True if the learning rate of a step depends on the total number of images."""
        return self.schedule in ("cosine", "linear") and self.decay_images is None

    @model_validator(mode="after")
    def _check_kept_weights(self) -> "Training":
        for key in ("snapshots", "power_ema"):
            values = getattr(self, key)
            if values != sorted(set(values)):
                raise inner_error(f"{key}: each number must be larger than the one before it")
        if len(self.power_ema) == 1:
            raise inner_error("power_ema: needs two or more lengths to compute others")
        if self.snapshots and self.snapshots[-1] > self.images:
            raise inner_error(f"snapshots: {self.snapshots[-1]} is beyond the {self.images} images of the training")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> "Training":
        if self.schedule == "constant" and (self.decay_images is not None or self.final_rate_share):
            raise inner_error("schedule: constant never decays; name cosine, linear or inverse_root")
        if self.schedule == "inverse_root" and not (self.decay_images or self.warmup_images):
            raise inner_error("schedule: inverse_root needs decay_images, or a warm-up")
        if self.decays_within_warmup:
            raise inner_error("schedule: the decay ends within the warm-up")
        return self

    @property
    def num_averages(self) -> int:
        """Number of averages of the weights that a training keeps."""
        return 1 + len(self.power_ema)

    @property
    def extra_weights_keys(self) -> list[str]:
        """Keys that make a training keep more than the usual average of its end."""
        return [key for key in ("snapshots", "power_ema") if getattr(self, key)]

    @property
    def decays_within_warmup(self) -> bool:
        """True if the decay would end before the warm-up does."""
        return self.schedule in ("cosine", "linear") and (self.decay_images or self.images) <= self.warmup_images


class WeightsFile(StrictModel):
    """Weights that take the place of a training."""

    weights: PathSetting
    """Path of a safetensors file."""
    content_hash: str | None = None
    """SHA-256 of the file, filled in by `submit` so that a changed file is noticed."""


class InitialWeights(StrictModel):
    """Weights from which trainings start: one file for all of them, or an ensemble with a network for each."""

    example: ClassVar[str] = "{weights: FILE}, or {ensemble: FOLDER}"

    weights: PathSetting | None = None
    """Path of a safetensors file, such as `hpcddm convert` writes."""
    ensemble: PathSetting | None = None
    """Folder that `hpcddm publish` wrote: expert k starts from its expert k, the monolith from its monolith."""
    content_hash: str | None = None
    """SHA-256 of the file, or of `ensemble.json`, filled in by `submit` so that a change is noticed."""

    @model_validator(mode="after")
    def _one_start(self) -> "InitialWeights":
        if (self.weights is None) == (self.ensemble is None):
            raise inner_error("needs one of the two, 'weights' or 'ensemble'")
        return self


Expert = int | str
"""Number of an expert's cluster, or name of an extra expert; where allowed, None means monolith or student."""


class ExpertVariation(StrictModel):
    """Settings of an expert that can differ from the common settings; None for the common value."""

    model: DenoiserModelSettings | None = None
    objective: ObjectiveSettings | None = None
    precision: Precision | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    init_from: InitialWeights | None = None


class ExpertOverride(ExpertVariation):
    """Settings that differ for the experts of some clusters; images and batch count each of these experts alone.

    Source: Heterogeneous Decentralized Diffusion Models.
    """

    clusters: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    images: Positive | None = None
    """Number of training images; by default as for the other experts."""
    batch: Positive | None = None
    """Images per step; warm-up and half-life last as many steps as for the other experts."""


class ExtraExpert(ExpertVariation):
    """Additional expert with its own samples; its numbers of images count this expert alone."""

    name: Name
    list: PathSetting
    """Path of a text file with one sample's key per line."""
    content_hash: str | None = None
    """SHA-256 of the file, filled in by `submit` so that a changed file is noticed."""
    images: Positive
    batch: Positive
    warmup_images: Annotated[int, Field(ge=0)] | None = None
    """Images of the warm-up; by default as many steps as for the other experts."""
    ema_halflife_images: Positive | None = None
    """Half-life of the moving average, in images; by default as many steps as for the other experts."""
    site: Name | None = None
    """Site that trains the expert; required if `experts.sites` names the sites of the other experts."""
