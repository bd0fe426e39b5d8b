"""Settings that networks have in common in an experiment's YAML: denoisers, routers, classifiers, and transformers."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.conditions import Form
from hpcddm.config.schema import Positive, VariantSettings
from hpcddm.config.shapes import NetworkData, classes_of


class LayoutSettings(VariantSettings):
    """Name of a layout, as `hpcddm convert --layout` takes it."""

    room: ClassVar[str] = "models/checkpoints"


FREQUENCIES = 256
"""Number of cosines and sines of a time, the input of the first layer."""
MLP_RATIO = 4
BLOCK_VECTORS = 6
"""Shift, scale and gate of a block's attention and of its MLP."""
LAST_VECTORS = 2
"""Shift and scale before the head, or of the text stream of the last joint block."""


class NetworkSettings(VariantSettings):
    """Settings of a network of any kind."""

    def form(self, data: NetworkData) -> Form:
        """Return the form of the condition that the network sees; NONE for one that ignores it."""
        return Form.NONE


class DenoiserModelSettings(NetworkSettings):
    """Settings of a network that denoises images."""

    room: ClassVar[str] = "models"

    @abstractmethod
    def parameters(self, data: NetworkData) -> int:
        """Count the network's parameters."""


class RouterModelSettings(NetworkSettings):
    """Settings of a network that tells the clusters of noisy images."""

    room: ClassVar[str] = "models"
    trained: ClassVar[bool] = True
    """False for a router that is computed from the data instead of trained."""

    @abstractmethod
    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        """Count the network's parameters, or the numbers that a router stores which is not trained."""


class PriorRouterSettings(RouterModelSettings):
    """Settings of a router that is computed: the clusters' prior by class, by size ('natural'), or none ('equal')."""

    trained: ClassVar[bool] = False

    prior: Literal["equal", "natural", "class"] = "class"

    def form(self, data: NetworkData) -> Form:
        return Form.CLASS if self.prior == "class" else Form.NONE

    def priors(self, data: NetworkData) -> int:
        """Return the number of priors that are stored: of every class and of all together, or this one alone."""
        return classes_of(data) + 1 if data.condition.form is Form.CLASS else 1

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a prior by class where the condition is no class."""
        condition = experiment.data.condition
        if self.prior == "class" and condition.form is not Form.CLASS:
            raise ValueError(f"prior class needs condition class_label, not {condition.name}; take natural or equal")


class ClassifierModelSettings(NetworkSettings):
    """Settings of a network that tells the classes of images."""

    room: ClassVar[str] = "models"

    features: Positive
    """Number of features of an image."""

    @abstractmethod
    def parameters(self, data: NetworkData, num_classes: int) -> int:
        """Count the network's parameters."""


class TransformerSettings(NetworkSettings):
    """Size, modulation and condition of a transformer."""

    sizes: ClassVar[dict[str, tuple[int, int, int]]] = {
        "S": (384, 12, 6),
        "B": (768, 12, 12),
        "L": (1024, 24, 16),
        "XL": (1152, 28, 16),
    }
    """Width, depth and heads of the named sizes (arXiv 2212.09748, table 1)."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"size"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"text_modulation"})

    size: str | None = None
    """Fills width, depth and heads."""
    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive
    """Side of the square of x that becomes one token."""
    modulation: Literal["zero", "single"] = "zero"
    """adaLN-zero: a linear layer in every block; adaLN-single: one for all, and a table in each (arXiv 2310.00426)."""
    qk_norm: bool = False
    """QK norm: normalises the queries and keys of every head by their root mean square."""
    condition: Literal["given", "none"] = "given"
    """Condition that the network sees: that of `data.condition`, or none."""
    text_modulation: Literal["none", "mean", "end"] = "none"
    """What of the text modulates beside the time: nothing, the mean of its tokens' states, or its last one's."""
    time_spacing: Literal["original", "diffusers"] = "original"
    """Spacing of the time's 128 frequencies: 1/128 of their range as in the original DiT, 1/127 as in diffusers."""

    @model_validator(mode="before")
    @classmethod
    def _named_size(cls, values: Any) -> Any:
        named = cls.sizes.get(str(values.get("size"))) if isinstance(values, dict) else None
        if named is None:
            return values
        filled = dict(zip(("width", "depth", "heads"), named, strict=True))
        for key, value in filled.items():
            if values.get(key, value) != value:
                text = f"{key}: {values[key]}, but size {values['size']} has {value}; leave one of the two out"
                raise PydanticCustomError("inner", "{text}", {"text": text})
        return values | filled

    def form(self, data: NetworkData) -> Form:
        return Form.NONE if self.condition == "none" else data.condition.form

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless patches tile x and the width splits into heads."""
        data = experiment.data
        if data.x_shape.height % self.patch:
            raise ValueError(
                f"patch {self.patch} does not divide the side {data.x_shape.height} of x in the space {data.space.name}"
            )
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of 4 x {self.heads} heads")
        if self.text_modulation != "none" and self.form(data) is not Form.TEXT:
            raise ValueError(f"text_modulation {self.text_modulation}: this network sees no text; leave it out")


class DenoisingTransformerSettings(TransformerSettings, DenoiserModelSettings):
    """A transformer's settings; `learned_sigma` gives it the outputs for the variance that published models have."""

    learned_sigma: bool = False

    def outputs(self, data: NetworkData) -> int:
        """Count the network's outputs for a patch."""
        return (1 + self.learned_sigma) * data.x_shape.channels * self.patch**2
