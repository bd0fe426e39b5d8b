"""Columns of a run's samples by name, for scripts, from the catalog and from the stages."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from hpcddm.data.catalog import TEXTS, Catalog, split_into_blocks
from hpcddm.data.columns import Column, Numbers, TextColumn
from hpcddm.data.loader import Loader
from hpcddm.data.reader import CatalogReader
from hpcddm.errors import ConfigError, require

IMAGES = "images"
Values = Tensor | list[str]
"""Values of some samples: (N, ...) tensors, whole numbers as int64; or texts."""


class ColumnReader(CatalogReader):
    """Reader of images and of any column by its name.

    Args:
        catalog: Catalog of the split.
        clusters: Clusters of all samples; None before they are known.
        stage_columns: Functions that map the columns of stages, by the names of the columns.
    """

    def __init__(
        self, catalog: Catalog, clusters: Column | None, stage_columns: Mapping[str, Callable[[Catalog], Column]]
    ) -> None:
        super().__init__(catalog, clusters)
        self._stage_columns = stage_columns
        # Hundreds of files may hold a column: they are mapped once, and only when the column is requested.
        self._mapped = cache(self._map)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return sorted([*self._catalog.columns, *self._stage_columns])

    def column(self, name: str, numbers: Numbers) -> Values:
        """Return a column's values of some samples.

        Args:
            name: One of `columns`.
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Values, (N, ...), whole numbers as int64; or a list of N texts.

        Raises:
            ConfigError: The name is not one of `columns`.
        """
        values = self._mapped(name).gather(numbers)
        if isinstance(values, list):
            return values
        # Few of torch's functions take unsigned numbers.
        return torch.from_numpy(values.astype(np.int64) if values.dtype.kind == "u" else values)

    def batches(
        self, size: int, columns: Sequence[str] = (), numbers: Numbers | None = None, threads: int = 1
    ) -> Loader[dict[str, Values]]:
        """Return an iterator over batches of images and columns; threads read ahead.

        Args:
            size: Number of samples in a batch; the last batch may be smaller.
            columns: Names of the columns to read.
            numbers: Numbers of the samples in the order of the batches; None for all samples.
            threads: Number of threads; 0 to read each batch when it is requested.

        Returns:
            Iterator over mappings with `images`, (N, H, W, C), uint8, and the columns by name. Requesting a batch
            raises `UserError` if an image cannot be read; the message names the tar.

        Raises:
            ConfigError: An argument is wrong, such as a column that does not exist.
        """
        require(size >= 1, f"size: a batch cannot have {size} samples; it is 1 or more", ConfigError)
        require(threads >= 0, f"threads: {threads}; it is 0, to read each batch when it is taken, or more", ConfigError)
        if isinstance(columns, str):
            raise ConfigError(f"columns: '{columns}' is one text; give a list of names, as ['{columns}']")
        for name in columns:
            self._mapped(name)
        listed = range(len(self)) if numbers is None else numbers

        def read(places: range) -> dict[str, Values]:
            own = listed[places.start : places.stop]
            images = {IMAGES: torch.from_numpy(self.images(own))}
            return images | {name: self.column(name, own) for name in columns}

        return Loader(read, split_into_blocks(range(len(listed)), size), threads)

    def _map(self, name: str) -> Column | TextColumn:
        if name not in self.columns:
            raise ConfigError(f"columns: unknown name {name}; valid names: {', '.join(self.columns)}")
        if name in self._stage_columns:
            return self._stage_columns[name](self._catalog)
        return self._catalog.texts(name) if name in TEXTS else self._catalog.column(name)
