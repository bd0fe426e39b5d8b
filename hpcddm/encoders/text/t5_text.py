"""Encoder of T5 (Raffel et al., arXiv 1910.10683), as transformers runs it; also Flan-T5 and T5 1.1."""

from typing import ClassVar

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.config.weights import SettingsWithWeights, WeightsLayout
from hpcddm.encoders.text.transformers_text import TransformersText
from hpcddm.encoders.weights_layouts import TRANSFORMERS_TEXT
from hpcddm.files.foreign_json import ForeignJson


class T5TextSettings(SettingsWithWeights, TextEncoderSettings):
    """Number of values `width` of a token's state: 512 for small, 768 for base, 1024 for large, 2048 XL, 4096 XXL.

    Of the large ones `precision: bf16` is safe; activations of T5 exceed the range of fp16.
    """

    layout: ClassVar[WeightsLayout] = TRANSFORMERS_TEXT

    width: Positive = 4096

    def dimensions(self) -> int:
        return self.width

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError for weights of another network or width, and for a precision that it overflows in."""
        if config.get("model_type") != "t5":
            raise ValueError(f"config.json has model_type {config.get('model_type')} and not t5")
        if config.get("d_model") != self.width:
            raise ValueError(f"width is {self.width} and config.json has d_model {config.get('d_model')}")


class T5Text(TransformersText[T5TextSettings]):
    """States after the last norm, up to the end token."""

    def __init__(self, settings: T5TextSettings) -> None:
        super().__init__(settings, "T5EncoderModel", "T5Tokenizer")
