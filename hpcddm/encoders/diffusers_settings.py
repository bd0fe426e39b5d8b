"""Settings that the autoencoders of diffusers have in common."""

from typing import Any, ClassVar

from hpcddm.config.data_shapes import Shape
from hpcddm.config.schema import Positive
from hpcddm.config.spaces import AutoencoderSettings
from hpcddm.config.weights import SettingsWithWeights, WeightsLayout
from hpcddm.encoders.weights_layouts import DIFFUSERS
from hpcddm.errors import require
from hpcddm.files.foreign_json import ForeignJson

BANDS = 3


class DiffusersSettings(SettingsWithWeights, AutoencoderSettings):
    """Number of latent `channels`, 4 or 16 in most, and the `factor` by which sides shrink."""

    layout: ClassVar[WeightsLayout] = DIFFUSERS
    kind: ClassVar[str]
    """Class of diffusers, which the config.json names."""
    levels: ClassVar[str]
    """Key of the config.json with an entry for each resolution."""

    channels: Positive = 4
    factor: Positive = 8

    def shape(self, channels: int, image_size: int) -> Shape:
        require(channels == BANDS, f"{self.name} encodes images of {BANDS} channels and not {channels}", ValueError)
        if image_size % self.factor:
            raise ValueError(f"factor {self.factor} does not divide image_size {image_size}")
        side = image_size // self.factor
        return Shape(self.channels, side, side)

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError for weights of another class or shape."""
        if config.get("_class_name") != self.kind:
            raise ValueError(f"config.json is that of {config.get('_class_name')} and not {self.kind}")
        factor = 2 ** (len(config.take(self.levels, list[Any], [0, 0, 0, 0])) - 1)
        pairs = {
            "channels": (self.channels, config.get("latent_channels", 4)),
            "factor": (self.factor, factor),
        }
        for key, (here, there) in pairs.items():
            require(here == there, f"{key} is {here} and that of config.json is {there}", ValueError)
