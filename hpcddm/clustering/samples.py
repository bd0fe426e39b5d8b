"""Samples as the input of a clustering: the values that it may read, by number."""

from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64

from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column, Numbers
from hpcddm.data.reader import CatalogReader


class Samples:
    """Samples of a split, by their numbers in it.

    features: of all of them or of one range, where the clustering needs features; first: number of the range's first.
    """

    def __init__(self, catalog: Catalog, features: Column | None = None, first: int = 0) -> None:
        self._catalog, self._features, self._first = catalog, features, first

    def __len__(self) -> int:
        """Count all samples of the split."""
        return len(self._catalog)

    def features(self, numbers: Numbers) -> Float[np.ndarray, "n d"]:
        """Copy the features of some samples; raises ValueError for a clustering whose settings need none."""
        if self._features is None:
            raise ValueError("needs_features of its settings is False, so nothing was encoded")
        own: Numbers
        if isinstance(numbers, range):
            own = range(numbers.start - self._first, numbers.stop - self._first, numbers.step)
        else:
            own = np.asarray(numbers, dtype=np.int64) - self._first
        # float16 on disk, in which nothing is computed.
        return self._features.gather(own).astype(np.float32, copy=False)

    def labels(self, numbers: Numbers) -> Int64[np.ndarray, " n"]:
        """Copy the classes of some samples; raises `UserError` for samples without classes."""
        return self._reader.labels(numbers).numpy()

    def keys(self, numbers: Numbers) -> list[str]:
        """Copy the keys of some samples."""
        return self._reader.keys(numbers)

    @cached_property
    def _reader(self) -> CatalogReader:
        """Reader of values that few clusterings need: it opens the columns of all ranges."""
        return CatalogReader(self._catalog)
