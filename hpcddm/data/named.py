"""Columns of a run's samples by name, for scripts: those of the catalog, and those that stages made."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from hpcddm.data.catalog import TEXTS, Catalog, blocks_of
from hpcddm.data.columns import Column, Numbers, TextColumn
from hpcddm.data.loader import Loader
from hpcddm.data.reader import TarReader
from hpcddm.errors import ConfigError

IMAGES = "images"
Values = Tensor | list[str]
"""Values of some samples: (N, ...) tensors, whole numbers as int64; or texts."""


class NamedReader(TarReader):
    """Reader that gives any column by its name.

    clusters: as of its base; made: functions that map further columns, of stages, by the columns' names.
    """

    def __init__(
        self, catalog: Catalog, clusters: Column | None, made: Mapping[str, Callable[[Catalog], Column]]
    ) -> None:
        super().__init__(catalog, clusters)
        self._made = made
        # Hundreds of files may hold a column: they are mapped once, and only where it is asked for.
        self._mapped = cache(self._map)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that there are."""
        return sorted([*self._catalog.columns, *self._made])

    def column(self, name: str, numbers: Numbers) -> Values:
        """Return the values of some samples; raises `ConfigError` for a column that there is not."""
        values = self._mapped(name).gather(numbers)
        if isinstance(values, list):
            return values
        # Few of torch's functions take unsigned numbers.
        return torch.from_numpy(values.astype(np.int64) if values.dtype.kind == "u" else values)

    def batches(
        self, size: int, columns: Sequence[str] = (), numbers: Numbers | None = None, threads: int = 1
    ) -> Loader[dict[str, Values]]:
        """Return the batches of some samples, by default of all, in their order, read by threads ahead of their use.

        A batch has `images`, uint8 (N, H, W, C), and the columns that are asked for, by their names; the last one may
        be smaller. Raises `ConfigError` for an argument that is wrong, such as a column that there is not, and in its
        batch `UserError` naming the tar of an image that cannot be read.
        """
        if size < 1:
            raise ConfigError(f"size: {size} samples are no batch; it is 1 or more")
        if threads < 0:
            raise ConfigError(f"threads: {threads}; it is 0, to read each batch when it is taken, or more")
        if isinstance(columns, str):
            raise ConfigError(f"columns: '{columns}' is one text; names stand in a list, as ['{columns}']")
        for name in columns:
            self._mapped(name)
        listed = range(len(self)) if numbers is None else numbers

        def read(places: range) -> dict[str, Values]:
            own = listed[places.start : places.stop]
            images = {IMAGES: torch.from_numpy(self.images(own))}
            return images | {name: self.column(name, own) for name in columns}

        return Loader(read, blocks_of(range(len(listed)), size), threads)

    def _map(self, name: str) -> Column | TextColumn:
        if name not in self.columns:
            raise ConfigError(f"columns: there is no {name}; valid names: {', '.join(self.columns)}")
        if name in self._made:
            return self._made[name](self._catalog)
        return self._catalog.texts(name) if name in TEXTS else self._catalog.column(name)
