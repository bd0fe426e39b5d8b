"""Text tower of CLIP (Radford et al., arXiv 2103.00020), as transformers runs it."""

from typing import ClassVar

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.config.weights import SettingsWithWeights, WeightsLayout
from hpcddm.encoders.text.transformers_text import TransformersText
from hpcddm.encoders.weights_layouts import TRANSFORMERS_TEXT
from hpcddm.files.foreign_json import ForeignJson


class ClipTextSettings(SettingsWithWeights, TextEncoderSettings):
    """Number of values `width` of a token's state: 512 for ViT-B, 768 for ViT-L. The files of both towers do, too."""

    layout: ClassVar[WeightsLayout] = TRANSFORMERS_TEXT

    width: Positive = 768

    def dimensions(self) -> int:
        return self.width

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError for weights of another network or width."""
        if config.get("model_type") not in ("clip", "clip_text_model"):
            raise ValueError(f"config.json has model_type {config.get('model_type')} and not clip")
        width = config.take("text_config.hidden_size" if "text_config" in config else "hidden_size", int, None)
        # Older files leave out what is the default.
        if width not in (None, self.width):
            raise ValueError(f"width is {self.width} and config.json has hidden_size {width}")


class ClipText(TransformersText[ClipTextSettings]):
    """States after the last norm, from the start token to the end token."""

    def __init__(self, settings: ClipTextSettings) -> None:
        super().__init__(settings, "CLIPTextModel", "CLIPTokenizer")
