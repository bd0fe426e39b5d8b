"""No condition: networks see only the noisy image and its time."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from hpcddm.config.conditions import ConditionForm, ConditionSettings
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.errors import UserError


class NoConditionSettings(ConditionSettings):
    """Variant without settings."""

    form: ClassVar[ConditionForm] = ConditionForm.NONE


class NoCondition(Condition[NoConditionSettings]):
    """Zeros, which no network reads."""

    def of_samples(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Return a zero for each sample."""
        return self.null(len(numbers))

    def null(self, count: int) -> Conditions:
        """Return `count` zeros."""
        return torch.zeros(count, dtype=torch.long)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        """Return a zero for each class."""
        return self.null(len(classes))

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        """Raise `UserError`: these networks have no condition."""
        raise UserError("data.condition is none: the networks of this run have no condition, neither a class nor text")
