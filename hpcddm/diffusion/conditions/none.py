"""No condition: networks see the noisy image and its time alone."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from hpcddm.config.conditions import ConditionSettings, Form
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.errors import UserError


class Settings(ConditionSettings):
    """Variant without settings."""

    form: ClassVar[Form] = Form.NONE


class NoCondition(Condition[Settings]):
    """Zeros, at which no network looks."""

    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        return self.null(len(numbers))

    def null(self, count: int) -> Conditions:
        return torch.zeros(count, dtype=torch.long)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        return self.null(len(classes))

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        raise UserError("data.condition is none: the networks of this run have no condition, neither a class nor text")
