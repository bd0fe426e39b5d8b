"""Choice of samples by what is known of them: `data.keep`, over their own values and a table by key."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from hpcddm.data.keep import Keep
from hpcddm.data.sources.base import KNOWN
from hpcddm.data.tables import Table


class Filter:
    """The filter of an experiment, which counts what it drops: by `data.keep`, and by each of its conditions.

    Without an expression every sample is kept. table: file with further values by key.
    """

    def __init__(self, expression: str | None, table: Path | None = None, key: str = "key") -> None:
        self._keep = None if expression is None else Keep(expression)
        self._table = None if table is None else Table(table, key)
        self._rows: dict[str, tuple[object, ...]] | None = None
        self.dropped, self.reasons = 0, Counter[str]()

    @property
    def names(self) -> list[str]:
        """Names of the columns that the expression reads."""
        return [] if self._keep is None else self._keep.names

    def look_up(self, own: Iterable[str]) -> None:
        """Read the table for keys that `mask` will be given some at a time: each reading goes through all of it."""
        if self._table is not None and self._keep is not None:
            keys = list(own)
            lacking = [name for name in self.names if name not in KNOWN]
            columns = self._table.columns(lacking, keys)
            cells = [columns.get(name, [None] * len(keys)) for name in self.names]
            self._rows = dict(zip(keys, zip(*cells, strict=True), strict=True))

    def mask(self, keys: Sequence[str], values: Mapping[str, Sequence[object]]) -> Bool[np.ndarray, " n"]:
        """Tell which samples are kept.

        values: what else is known of them, by name; those of the table are read where the expression names them.
        Raises `UserError` naming a column that is missing, or of another kind than the expression needs.
        """
        # Of no samples nothing is known, and no column is missing.
        if self._keep is None or not keys:
            return np.ones(len(keys), dtype=bool)
        columns: dict[str, Sequence[object]] = {**values, "key": keys}
        lacking = [name for name in self._keep.names if name not in columns]
        if self._rows is not None and lacking:
            rows = [self._rows[key] for key in keys]
            columns |= {name: [row[self.names.index(name)] for row in rows] for name in lacking}
        elif self._table is not None and lacking:
            columns |= self._table.columns(lacking, keys)
        mask = self._keep.mask(columns)
        self.dropped += int(np.sum(~mask))
        self.reasons.update(self._keep.drops(columns))
        return mask
