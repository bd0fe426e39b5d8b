"""Properties of the data that networks and encoders depend on; an experiment's `data` has them all."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.schema import settings_to_hash


class Shape(NamedTuple):
    """Shape (C, H, W) of x, which denoisers and routers see and samplers draw: an image, or its latents."""

    channels: int
    height: int
    width: int


@runtime_checkable
class ImageShape(Protocol):
    """Shape of the images, (channels, image_size, image_size)."""

    @property
    def channels(self) -> int: ...

    @property
    def image_size(self) -> int: ...


@runtime_checkable
class NetworkData(ImageShape, Protocol):
    """Shape of the images and of x, number of classes, and condition."""

    @property
    def space(self) -> Any:
        """Settings of the space of x, `hpcddm.config.spaces.SpaceSettings`."""

    @property
    def x_shape(self) -> Shape: ...

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for images without labels."""

    @property
    def condition(self) -> ConditionSettings: ...


def require_num_classes(data: NetworkData) -> int:
    """Return the number of classes; raises `ValueError` for images without labels."""
    if data.num_classes is None:
        raise ValueError("data.num_classes: these images have no classes")
    return data.num_classes


def text_states_settings(data: NetworkData) -> dict[str, Any]:
    """Return the settings of the states: their encoder, and their number at most; empty for a condition without."""
    encoder = data.condition.text_encoder
    return {} if encoder is None else {"encoder": settings_to_hash(encoder), "tokens": data.condition.shape[0]}
