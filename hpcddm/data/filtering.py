"""Choice of samples by what is known of them: `data.keep`, over their own values and a table by key."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from hpcddm.data.keep import Keep
from hpcddm.data.tables import Table


class Filter:
    """The filter of an experiment, which counts what it drops: by `data.keep`, and by each of its conditions.

    Without an expression every sample is kept. table: file with further values by key.
    """

    def __init__(self, expression: str | None, table: Path | None = None, key: str = "key") -> None:
        self._keep = None if expression is None else Keep(expression)
        self._table = None if table is None else Table(table, key)
        self.dropped, self.reasons = 0, Counter[str]()

    @property
    def names(self) -> list[str]:
        """Names of the columns that the expression reads."""
        return [] if self._keep is None else self._keep.names

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
        if self._table is not None and lacking:
            columns |= self._table.columns(lacking, keys)
        mask = self._keep.mask(columns)
        self.dropped += int(np.sum(~mask))
        self.reasons.update(self._keep.drops(columns))
        return mask
