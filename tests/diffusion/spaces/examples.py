"""What tests of networks and samplers share: properties of data, and spaces, without an experiment."""

from types import SimpleNamespace
from typing import Any

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.data_shapes import NetworkData, Shape
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space

CONDITIONS: dict[str, dict[str, Any]] = {
    "class": {"name": "class_label"},
    "none": {"name": "none"},
    "text": {"name": "text", "encoder": {"name": "words", "width": 12}, "tokens": 5, "prompts": ["a", "b", "c"]},
}


def told(data: NetworkData, form: str) -> NetworkData:
    """The data with a condition of this form."""
    return SimpleNamespace(**vars(data) | {"condition": ConditionSettings.model_validate(CONDITIONS[form])})


def network_data(
    channels: int, image_size: int, num_classes: int = 10, form: str = "class", **space: object
) -> NetworkData:
    """What an experiment's `data` tells a network of images in a space, by default pixels, with a condition."""
    settings = SpaceSettings.model_validate({"name": "pixels"} | space)
    shape = settings.shape(channels, image_size)
    told_of_all = {"channels": channels, "image_size": image_size, "num_classes": num_classes}
    return told(SimpleNamespace(**told_of_all, space=settings, x_shape=shape), form)


def pixels(channels: int, height: int, width: int) -> Space[SpaceSettings]:
    """The space of pixels for x of a shape."""
    images = SimpleNamespace(channels=channels, image_size=width)
    space = variants.create(Space, SpaceSettings.model_validate({"name": "pixels"}), images)
    # Distributions of known form are a row of values, which no image is.
    space.shape = Shape(channels, height, width)
    return space
