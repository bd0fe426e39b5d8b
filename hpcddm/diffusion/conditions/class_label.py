"""The class of an image, as a number."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from hpcddm.config.conditions import ConditionForm, ConditionSettings
from hpcddm.config.data_shapes import NetworkData, require_num_classes
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.errors import UserError
from hpcddm.runs.run_dir import Locate


class ClassLabelSettings(ConditionSettings):
    """Variant without settings."""

    form: ClassVar[ConditionForm] = ConditionForm.CLASS

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images without classes."""
        if experiment.data.num_classes is None:
            raise ValueError("class_label needs data.num_classes; images without classes have condition text or none")


class ClassLabel(Condition[ClassLabelSettings]):
    """Class ids 0, ..., num_classes - 1; the null class is `num_classes`."""

    def __init__(self, settings: ClassLabelSettings, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings, data, locate)
        self.null_class = require_num_classes(data)

    def of_samples(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Read the class ids of the samples."""
        return reader.labels(numbers)

    def null(self, count: int) -> Conditions:
        """Return the null class `count` times."""
        return torch.full((count,), self.null_class)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        """Convert class ids to a tensor."""
        return torch.as_tensor(np.asarray(classes, dtype=np.int64))

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        """Raise `UserError`: a class is not a text."""
        raise UserError("data.condition is class_label: the condition of this run's networks is a class, not text")
