"""Settings of a training, and of single experts, in an experiment's YAML."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.models.settings import DenoiserModelSettings
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import Name, PathSetting, Positive, StrictModel


class Training(StrictModel):
    """Settings of one training loop; all durations but `checkpoint_minutes` are counted in images."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"checkpoint_minutes", "log_images"})

    images: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup_images: Annotated[int, Field(ge=0)] = 0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    ema_halflife_images: Positive
    precision: Literal["fp32", "bf16"] = "bf16"
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    log_images: Positive = 1024


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
    precision: Literal["fp32", "bf16"] | None = None
    init_from: InitialWeights | None = None


class ExpertOverride(ExpertVariation):
    """Settings that differ for the experts of some clusters (Heterogeneous Decentralized Diffusion Models)."""

    clusters: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


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
