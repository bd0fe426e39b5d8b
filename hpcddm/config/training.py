"""Settings of a training, and of single experts, in an experiment's YAML."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.models import DenoiserModelSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.schema import Name, PathSetting, Positive, StrictModel

Precision = Literal["fp32", "bf16", "fp16"]
"""Precision in which a network computes, in training and sampling; fp16 scales its losses, for GPUs without bf16."""
Beta = Annotated[float, Field(ge=0, lt=1)]


LONGEST = 0.28
"""Bound of sigma_rel; at 0.2887 an average weighs all times alike."""


class Training(StrictModel):
    """Settings of one training loop, and of AdamW; all durations but `checkpoint_minutes` are counted in images."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"checkpoint_minutes", "log_images"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset(
        {"schedule", "decay_images", "final_rate", "betas", "eps", "snapshots", "power_ema"}
    )

    images: Positive
    """Images to be seen; in `experts.training` by all experts together, each of which sees a K-th."""
    batch: Positive
    """Images per step; in `experts.training` over all experts together: a batch of 32 is 8 for each of four."""
    learning_rate: Annotated[float, Field(gt=0)]
    warmup_images: Annotated[int, Field(ge=0)] = 0
    """Images over which the rate rises; where a file leaves it out, a share of `images`."""
    schedule: Literal["constant", "cosine", "linear", "inverse_root"] = "constant"
    """Course of the learning rate after the warm-up."""
    decay_images: Positive | None = None
    """Images at which `cosine` and `linear` arrive at `final_rate`, by default all; those from which on `inverse_root`
    falls, by default those of the warm-up."""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of `learning_rate` that is left at the end of `cosine` and `linear`."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decay of matrices and kernels; norms and biases have none."""
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    ema_halflife_images: Positive
    """Half-life of the average of the weights; a file that leaves it out gets a share of `images`, too."""
    power_ema: list[Annotated[float, Field(gt=0, lt=LONGEST)]] = []
    """Relative lengths, sigma_rel, of power-function averages that are kept, too; of two, such as 0.05 and 0.1, that of
    any other length can be made afterwards (arXiv 2312.02696)."""
    snapshots: list[Positive] = []
    """Numbers of images at which the averaged weights are kept as outputs, ascending."""
    precision: Precision = "bf16"
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    log_images: Positive = 1024

    @property
    def decays_by_images(self) -> bool:
        """True where the learning rate of a step depends on the number of all images."""
        return self.schedule in ("cosine", "linear") and self.decay_images is None

    @model_validator(mode="after")
    def _keeps_what_it_can(self) -> "Training":
        for key in ("snapshots", "power_ema"):
            values = getattr(self, key)
            if values != sorted(set(values)):
                text = f"{key}: needs numbers of which each is larger than the one before it"
                raise PydanticCustomError("inner", "{text}", {"text": text})
        if len(self.power_ema) == 1:
            raise PydanticCustomError("inner", "power_ema: needs two lengths or more; of one no other can be made")
        if self.snapshots and self.snapshots[-1] > self.images:
            text = f"snapshots: {self.snapshots[-1]} lies beyond the {self.images} images of the training"
            raise PydanticCustomError("inner", "{text}", {"text": text})
        return self

    @model_validator(mode="after")
    def _has_a_course(self) -> "Training":
        if self.schedule == "constant" and (self.decay_images is not None or self.final_rate):
            raise PydanticCustomError("inner", "schedule: constant never decays; name cosine, linear or inverse_root")
        if self.schedule == "inverse_root" and not (self.decay_images or self.warmup_images):
            raise PydanticCustomError("inner", "schedule: inverse_root needs decay_images, or a warm-up")
        if self.decays_within_warmup:
            raise PydanticCustomError("inner", "schedule: the rate arrives at its end within the warm-up")
        return self

    @property
    def averages(self) -> int:
        """Number of averages of the weights that a training keeps."""
        return 1 + len(self.power_ema)

    @property
    def kept(self) -> list[str]:
        """Keys that have a training keep more than the usual average at its end."""
        return [key for key in ("snapshots", "power_ema") if getattr(self, key)]

    @property
    def decays_within_warmup(self) -> bool:
        """True where the rate would arrive at its end before it has risen."""
        return self.schedule in ("cosine", "linear") and (self.decay_images or self.images) <= self.warmup_images


class InitialWeights(StrictModel):
    """Weights that a training starts from, such as `hpcddm convert` writes."""

    weights: PathSetting
    """A safetensors file."""
    content: str | None = None
    """The file's SHA-256; filled in by submit, so that other weights are never taken for these."""


Expert = int | str
"""An expert: the number of its cluster, or the name of one that joined. Beside it, None is monolith or student."""


class ExpertVariation(StrictModel):
    """Settings in which an expert differs from the common ones; None where it does not."""

    model: DenoiserModelSettings | None = None
    objective: ObjectiveSettings | None = None
    precision: Precision | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    init_from: InitialWeights | None = None


class ExpertOverride(ExpertVariation):
    """Settings that differ for the experts of some clusters; their numbers are those of each of these experts.

    Source: Heterogeneous Decentralized Diffusion Models.
    """

    clusters: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    images: Positive | None = None
    """Without it, as many as the others have."""
    batch: Positive | None = None
    """With a batch of its own, an expert's warm-up and half-life last as many steps as those of the others."""


class JoinedExpert(ExpertVariation):
    """An expert that comes later, beside those of the clusters, on samples of its own; its numbers are absolute."""

    name: Name
    list: PathSetting
    """A text file with the key of one sample per line."""
    content: str | None = None
    """The file's SHA-256; filled in by submit, so that other samples are never taken for these."""
    images: Positive
    batch: Positive
    warmup_images: Annotated[int, Field(ge=0)] | None = None
    """Without it, as with the half-life, it lasts as many steps as that of the other experts."""
    ema_halflife_images: Positive | None = None
    site: Name | None = None
    """Site that trains it; needed where `experts.sites` names those of the others."""
