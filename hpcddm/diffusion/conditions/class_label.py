"""The class of an image, as a number."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from hpcddm.config.conditions import ConditionSettings, Form
from hpcddm.config.shapes import NetworkData, classes_of
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.errors import UserError
from hpcddm.runs.layout import Locate


class Settings(ConditionSettings):
    """Variant without settings."""

    form: ClassVar[Form] = Form.CLASS

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images without classes."""
        if experiment.data.num_classes is None:
            raise ValueError("class_label needs data.num_classes; images without classes have condition text or none")


class ClassLabel(Condition[Settings]):
    """Class ids 0 ... num_classes - 1; the null class is `num_classes`."""

    def __init__(self, settings: Settings, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings, data, locate)
        self.null_class = classes_of(data)

    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        return reader.labels(numbers)

    def null(self, count: int) -> Conditions:
        return torch.full((count,), self.null_class)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        return torch.as_tensor(np.asarray(classes, dtype=np.int64))

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        raise UserError("data.condition is class_label: the condition of this run's networks is a class, not text")
