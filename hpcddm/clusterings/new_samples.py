"""Samples that are in no run's catalog, as a clustering sees them: a block in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from hpcddm.clusterings.samples import Samples
from hpcddm.data.columns import Numbers
from hpcddm.errors import UserError


@dataclass
class NewBlock(Samples):
    """Some new samples, numbered from 0; what they lack raises `UserError` when the clustering asks for it."""

    all_keys: Sequence[str]
    all_features: Float[np.ndarray, "n d"] | None = None
    all_labels: Int64[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        raise UserError(
            "cluster.clustering: its clusters follow from a sample's number among all of the run, which new samples do"
            " not have; take a run that is clustered by features, classes or keys"
        )

    def features(self, numbers: Numbers) -> Float[np.ndarray, "n d"]:
        if self.all_features is None:
            raise ValueError("needs_features of its settings is False, so nothing was encoded")
        return self.all_features[np.asarray(numbers, dtype=np.int64)]

    def labels(self, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        if self.all_labels is None:
            raise UserError("cluster.clustering: goes by classes, and the new samples have none")
        return self.all_labels[np.asarray(numbers, dtype=np.int64)]

    def keys(self, numbers: Numbers) -> list[str]:
        return [self.all_keys[number] for number in numbers]
