"""Settings that networks share in an experiment's YAML: denoisers, routers, classifiers, and transformers."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.data_shapes import NetworkData, require_num_classes
from hpcddm.config.schema import Positive, VariantSettings, inner_error


class LayoutSettings(VariantSettings):
    """Name of a layout, as `hpcddm convert --layout` takes it."""

    package: ClassVar[str] = "models/checkpoints"


FREQUENCIES = 256
"""Number of cosines and sines of a time, the input of the first layer."""
MLP_RATIO = 4
SWIGLU_RATIO = 2 / 3 * MLP_RATIO
"""Hidden width of a SwiGLU in widths, which gives it the parameters of a GELU MLP (arXiv 2002.05202, sec. 3)."""
BLOCK_VECTORS = 6
"""Shift, scale and gate of a block's attention and of its MLP."""
LAST_VECTORS = 2
"""Shift and scale before the head, or of the text stream of the last joint block."""


class NetworkSettings(VariantSettings):
    """Settings of a network of any kind."""

    def condition_form(self, data: NetworkData) -> ConditionForm:
        """Return the form of the network's condition.

        Args:
            data: Shapes and classes of the training data.

        Returns:
            The form; NONE for a network that ignores the condition.
        """
        return ConditionForm.NONE


class DenoiserModelSettings(NetworkSettings):
    """Settings of a network that denoises images."""

    package: ClassVar[str] = "models"

    @abstractmethod
    def parameters(self, data: NetworkData) -> int:
        """Count the network's parameters.

        Args:
            data: Shapes and classes of the training data.
        """


class RouterModelSettings(NetworkSettings):
    """Settings of a network that predicts the clusters of noisy images."""

    package: ClassVar[str] = "models"
    trained: ClassVar[bool] = True
    """False for a router that is computed from the data instead of trained."""

    @abstractmethod
    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        """Count the network's parameters, or the stored numbers of a router that is not trained.

        Args:
            data: Shapes and classes of the training data.
            num_clusters: Number K of clusters.
        """


class PriorRouterSettings(RouterModelSettings):
    """Settings of a router that returns the prior of the clusters.

    The prior is that of the sample's class ('class'), the share of each cluster in the data ('natural'), or the same
    for all clusters ('equal').
    """

    trained: ClassVar[bool] = False

    prior: Literal["equal", "natural", "class"] = "class"

    def condition_form(self, data: NetworkData) -> ConditionForm:
        """Return CLASS for a prior by class, otherwise NONE."""
        return ConditionForm.CLASS if self.prior == "class" else ConditionForm.NONE

    def priors(self, data: NetworkData) -> int:
        """Return the number of stored priors: an overall prior and, with classes, one for each class.

        Args:
            data: Shapes and classes of the training data.
        """
        return require_num_classes(data) + 1 if data.condition.form is ConditionForm.CLASS else 1

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a prior by class in an experiment whose condition is not a class."""
        condition = experiment.data.condition
        if self.prior == "class" and condition.form is not ConditionForm.CLASS:
            raise ValueError(f"prior class needs condition class_label, not {condition.name}; take natural or equal")


class ClassifierModelSettings(NetworkSettings):
    """Settings of a network that predicts the classes of images."""

    package: ClassVar[str] = "models"

    features: Positive
    """Number of features of an image."""

    @abstractmethod
    def parameters(self, data: NetworkData, num_classes: int) -> int:
        """Count the network's parameters.

        Args:
            data: Shapes and classes of the training data.
            num_classes: Number of classes.
        """


@dataclass(frozen=True)
class BlockStyle:
    """Layers of a transformer's blocks; by default those of the original DiT."""

    mlp: Literal["gelu", "swiglu"] = "gelu"
    norm: Literal["layer", "rms"] = "layer"
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"


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
    """Condition of the network: `data.condition`, or none."""
    text_modulation: Literal["none", "mean", "end"] = "none"
    """Text input to the modulation, besides the time: none, the mean of the tokens' states, or the last token's."""
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
                size = values["size"]
                raise inner_error(f"{key}: {values[key]}, but size {size} has {value}; leave one of the two out")
        return values | filled

    @property
    def block(self) -> "BlockStyle":
        """Layers of the blocks."""
        return BlockStyle()

    def condition_form(self, data: NetworkData) -> ConditionForm:
        """Return the form of the data's condition, or NONE for a transformer without condition."""
        return ConditionForm.NONE if self.condition == "none" else data.condition.form

    def check(self, experiment: Any) -> None:
        """Raise ValueError if patches do not tile x, or the width does not split into heads."""
        data = experiment.data
        if data.x_shape.height % self.patch:
            raise ValueError(
                f"patch {self.patch} does not divide the side {data.x_shape.height} of x in the space {data.space.name}"
            )
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} is not a multiple of 4 x {self.heads} heads")
        if self.text_modulation != "none" and self.condition_form(data) is not ConditionForm.TEXT:
            raise ValueError(f"text_modulation {self.text_modulation}: this network gets no text; leave it out")


class OneStreamSettings(TransformerSettings):
    """Settings of a transformer with one stream of tokens, whose blocks may be those of arXiv 2501.01423."""

    hashed_if_changed: ClassVar[frozenset[str]] = TransformerSettings.hashed_if_changed | {"mlp", "norm", "positions"}

    mlp: Literal["gelu", "swiglu"] = "gelu"
    """MLP of a block: GELU, or w3(silu(w1 x) * w2 x) of 2/3 the hidden width (arXiv 2002.05202)."""
    norm: Literal["layer", "rms"] = "layer"
    """Norm before each modulation: layer norm without parameters, or x / rms(x) with a learned gain."""
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"
    """Positions: a table that is added to the tokens; with rotary, queries and keys are rotated, too."""

    @property
    def block(self) -> BlockStyle:
        """Layers of the blocks."""
        return BlockStyle(self.mlp, self.norm, self.positions)


class DenoisingTransformerSettings(TransformerSettings, DenoiserModelSettings):
    """Settings of a transformer that denoises; `learned_sigma` adds the variance outputs of published models."""

    learned_sigma: bool = False

    def outputs(self, data: NetworkData) -> int:
        """Count the network's outputs for one patch.

        Args:
            data: Shapes and classes of the training data.
        """
        return (1 + self.learned_sigma) * data.x_shape.channels * self.patch**2
