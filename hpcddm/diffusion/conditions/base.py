"""Base of the conditions: tensors that tell networks what an image shall be, from samples, classes or words."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.shapes import NetworkData
from hpcddm.config.variants import S, Variant
from hpcddm.data.reader import Reader
from hpcddm.runs.layout import Locate

Conditions = Int64[Tensor, " n"] | Float[Tensor, "n l d"]
"""Class ids; or states of tokens, float32 or float16, rows of zeros being padding."""


class Condition(Variant[S]):
    """The condition of an experiment's images, created as `cls(settings, data, locate)`; threads may share it.

    locate: finds the outputs of the run's units, of which the conditions of samples may read some. Its tensors have the
    settings' `form` and `shape`, are on the CPU and need no gradient.
    """

    def __init__(self, settings: S, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings)
        self.num_classes = data.num_classes

    @abstractmethod
    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Make the conditions of some samples of a reader, as a tensor that nobody else holds."""

    def carried(self, reader: Reader, numbers: Sequence[int] | np.ndarray, dropped: Bool[Tensor, " n"]) -> Tensor:
        """Make what a training's batch carries of some samples, dropped ones as the null condition.

        By default these are the conditions themselves.
        """
        carried = self.of(reader, numbers)
        # Not torch.where: on millions of values its threads wait for each other, in every thread that reads.
        carried[dropped] = self.null(int(dropped.sum()))
        return carried

    def on_device(self, carried: Tensor) -> Conditions:
        """Make the conditions of what a batch carries, on its device, once it is there."""
        return carried

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


def build(data: NetworkData, locate: Locate | None = None) -> Condition[ConditionSettings]:
    """Create the condition of an experiment's data; locate: finds a run's files, None where no sample is asked.

    Raises `UserError` when the weights of its encoder are missing.
    """
    return variants.create(Condition, data.condition, data, locate)
