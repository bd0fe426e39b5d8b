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
        self._looked_up: tuple[str, ...] = ()
        self._rows: dict[str, tuple[object, ...]] = {}
        self.dropped, self.reasons = 0, Counter[str]()

    @property
    def names(self) -> list[str]:
        """Names of the columns that the expression reads."""
        return [] if self._keep is None else self._keep.names

    @property
    def has_table(self) -> bool:
        """Tell if values are looked up in a table."""
        return self._table is not None and self._keep is not None

    def look_up(self, keys: Iterable[str]) -> None:
        """Read the table for the keys that `mask` will be given; all of it is gone through each time."""
        if self._table is not None and self._keep is not None:
            listed, there = list(keys), self._table.names - KNOWN
            columns = self._table.columns([name for name in self.names if name in there], listed)
            self._looked_up = tuple(columns)
            self._rows = dict(zip(listed, zip(*columns.values(), strict=True), strict=True)) if columns else {}

    def mask(self, keys: Sequence[str], values: Mapping[str, Sequence[object]]) -> Bool[np.ndarray, " n"]:
        """Tell which samples are kept.

        keys: some that were looked up; values: what is known of the samples, by name. Whatever the samples, the table
        goes before values that are not of `KNOWN`. Raises `UserError` naming a column that is missing, or of another
        kind than the expression needs.
        """
        # Of no samples nothing is known, and no column is missing.
        if self._keep is None or not keys:
            return np.ones(len(keys), dtype=bool)
        columns: dict[str, Sequence[object]] = {**values, "key": keys}
        for place, name in enumerate(self._looked_up):
            columns[name] = [self._rows[key][place] for key in keys]
        mask = self._keep.mask(columns)
        self.dropped += int(np.sum(~mask))
        self.reasons.update(self._keep.drops(columns))
        return mask
