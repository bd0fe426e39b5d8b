"""What tests of networks and samplers share: properties of data, and spaces, without an experiment."""

from types import SimpleNamespace

from hpcddm import plugins
from hpcddm.data.settings import NetworkData, Shape
from hpcddm.spaces.base import Space
from hpcddm.spaces.settings import SpaceSettings


def network_data(
    channels: int, image_size: int, num_classes: int = 10, text: object = None, **space: object
) -> NetworkData:
    """What an experiment's `data` tells a network of images in a space, by default pixels."""
    settings = SpaceSettings.model_validate({"name": "pixels"} | space)
    shape = settings.shape(channels, image_size)
    return SimpleNamespace(
        channels=channels, image_size=image_size, space=settings, x_shape=shape, num_classes=num_classes, text=text
    )


def pixels(channels: int, height: int, width: int) -> Space[SpaceSettings]:
    """The space of pixels for x of a shape."""
    return plugins.create(Space, SpaceSettings.model_validate({"name": "pixels"}), Shape(channels, height, width))
