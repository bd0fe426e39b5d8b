"""Base of the conditions: the tensors on which networks condition images, from samples, classes or texts."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.variants import S, Variant
from hpcddm.data.reader import Reader
from hpcddm.runs.run_dir import Locate

Conditions = Int64[Tensor, " n"] | Float[Tensor, "n l d"]
"""Class ids, or states of tokens in float32 or float16, padded with rows of zeros."""


class Condition(Variant[S]):
    """Condition of an experiment's images; a variant is created as `cls(settings, data, locate)`.

    The tensors have the settings' `form` and `shape`, are on the CPU and need no gradient. Several threads may share
    one object.

    Args:
        settings: Settings of the variant.
        data: Properties of the data that networks depend on, such as the number of classes.
        locate: Function that locates the outputs of the run's units; conditions of samples may come from these files.
    """

    def __init__(self, settings: S, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings)
        self.num_classes = data.num_classes

    @abstractmethod
    def of_samples(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Compute the conditions of some samples, in memory that nothing else refers to.

        Args:
            reader: Reader of the samples.
            numbers: (N,) numbers of the samples.

        Returns:
            (N,) int64 class ids, or (N, L, D) states of tokens.
        """

    def to_batch(self, reader: Reader, numbers: Sequence[int] | np.ndarray, dropped: Bool[Tensor, " n"]) -> Tensor:
        """Compute what a training batch holds for some samples; by default the conditions themselves.

        Args:
            reader: Reader of the samples.
            numbers: (N,) numbers of the samples.
            dropped: (N,) bool; True replaces the sample's condition by the null condition.

        Returns:
            The tensor that `from_batch` converts to conditions.
        """
        conditions = self.of_samples(reader, numbers)
        # Not torch.where: on millions of values its threads wait for each other, in every thread that reads.
        conditions[dropped] = self.null(int(dropped.sum()))
        return conditions

    def from_batch(self, values: Tensor) -> Conditions:
        """Convert the output of `to_batch`, already on the device of the training, to conditions."""
        return values

    @abstractmethod
    def null(self, count: int) -> Conditions:
        """Return `count` copies of the null condition, which dropout and classifier-free guidance use."""

    @abstractmethod
    def of_classes(self, classes: Sequence[int]) -> Conditions:
        """Compute the conditions of some classes.

        Args:
            classes: (N,) class ids.

        Raises:
            UserError: A class alone does not determine the condition.
        """

    @abstractmethod
    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        """Compute the conditions of some sentences.

        Args:
            prompts: N sentences.

        Raises:
            UserError: A sentence is too long, or the condition is not a text.
        """

    def check(self) -> None:
        """Check that this machine can compute the conditions of the experiment.

        Raises:
            UserError: The conditions cannot be computed here.
        """


def create_condition(data: NetworkData, locate: Locate | None = None) -> Condition[ConditionSettings]:
    """Create the condition of an experiment.

    Args:
        data: Properties of the data, with the settings of the condition.
        locate: Function that locates a run's files; None if no conditions of samples are needed.

    Raises:
        UserError: The weights of the text encoder are missing.
    """
    return variants.create(Condition, data.condition, data, locate)
