"""Base of the conditions: tensors that tell networks what an image shall be, from samples, classes or words."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64
from torch import Tensor

from hpcddm import plugins
from hpcddm.conditions.settings import ConditionSettings
from hpcddm.data.reader import Reader
from hpcddm.data.settings import NetworkData
from hpcddm.plugins import S, Variant

Conditions = Int64[Tensor, " n"] | Float32[Tensor, "n l d"]
"""Class ids; or states of tokens, rows of zeros being padding."""


class Condition(Variant[S]):
    """The condition of an experiment's images, created as `cls(settings, data)`; threads may share it.

    Its tensors have the settings' `form` and `shape`, are on the CPU and need no gradient.
    """

    def __init__(self, settings: S, data: NetworkData) -> None:
        super().__init__(settings)
        self.num_classes = data.num_classes

    @abstractmethod
    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Make the conditions of some samples of a reader."""

    @abstractmethod
    def null(self, count: int) -> Conditions:
        """Make the null condition `count` times, that of dropout in training and of guidance's other half."""

    @abstractmethod
    def of_classes(self, classes: Sequence[int]) -> Conditions:
        """Make the conditions of some classes.

        Raises `UserError` where a class alone does not say the condition.
        """

    @abstractmethod
    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        """Make the conditions of some sentences.

        Raises `UserError` naming a sentence that is too long, or where the condition is no text.
        """

    def check(self) -> None:
        """Raise `UserError` when the conditions of this experiment cannot be made on this machine."""


def build(data: NetworkData) -> Condition[ConditionSettings]:
    """Create the condition of an experiment's data.

    Raises `UserError` when the weights of its encoder are missing.
    """
    return plugins.create(Condition, data.condition, data)
