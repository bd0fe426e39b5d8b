"""Settings of a training, in an experiment's YAML."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.schema import Positive, StrictModel


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
