"""Selection of samples by `data.filter`, over their own values and a table by key."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from hpcddm.config.data import DataSettings
from hpcddm.config.filter.expressions import KEY
from hpcddm.config.filter.predicate import Predicate
from hpcddm.errors import ConfigError, require
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources.base import KNOWN, Split
from hpcddm.sources.tables.tables import Table
from hpcddm.sources.unindexed_split import MAX_TARS_READ

WITHOUT_ROW = "samples without a row in data.table"


class Filter:
    """The filter of an experiment, which counts what it drops: by `data.filter`, and by each of its conditions.

    Without an expression every sample is kept. table: file with further values by key; where the expression reads some
    of its columns, `without_row` are the samples that it lacks.
    """

    def __init__(self, expression: str | None, table: Path | None = None, key: str = "key") -> None:
        self._keep = None if expression is None else Predicate(expression)
        self._table = None if table is None else Table(table, key)
        self._rows: dict[str, tuple[object, ...]] = {}
        self.dropped, self.reasons = 0, Counter[str]()
        self.without_row: list[PassedOverItem] = []
        self._with_row = self._table_rows = 0

    @classmethod
    def from_settings(cls, data: DataSettings) -> "Filter":
        """Return the filter that an experiment's `data` describe."""
        return cls(data.filter, *((Path(data.table.file), data.table.key) if data.table else ()))

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that the expression reads."""
        return [] if self._keep is None else self._keep.column_names

    @cached_property
    def _looked_up(self) -> list[str]:
        """Names of the columns that are those of the table."""
        there = frozenset[str]() if self._table is None else self._table.column_names - KNOWN
        return [name for name in self.column_names if name in there]

    @property
    def has_table(self) -> bool:
        """Tell if values are looked up in a table."""
        return self._looked_up != []

    def check(self, known: frozenset[str]) -> None:
        """Check the expression before hours of reading end at a misspelt column, or at a text where numbers are needed.

        known: names of what is known of the samples without a table. Raises `ConfigError` naming a column that is
        nowhere, and `UserError` naming one of another kind than the expression needs.
        """
        known |= frozenset[str]() if self._table is None else self._table.column_names
        for name in self.column_names:
            require(name in known, f"{KEY}: no column {name}; there are: {', '.join(sorted(known))}", ConfigError)
        if self._table is not None and self._keep is not None:
            self._keep.check_kinds(self._table.empty_columns(self._looked_up))

    def samples_without_row(self, splits: Sequence[Split], prefix: str) -> list[PassedOverItem]:
        """List the samples without a row in the table, as far as a submission can know them.

        It reads the first tar of each split, and more if the table has none of its keys. prefix: text before the keys
        of records. Raises `UserError` with a key of either side if the table has none of the keys, unless it may have
        those of further tars.
        """
        if self._table is None or not self.has_table:
            return []
        keys: list[str] = []
        has_more_tars = any(records.tar_count > MAX_TARS_READ for records in splits)
        for tars in (1, MAX_TARS_READ):
            keys = [key for records in splits for key in records.keys(prefix, tars)]
            rows = self._table.rows([], keys).values
            if rows or (has_more_tars and tars == MAX_TARS_READ):
                return [PassedOverItem(escape_name(key), WITHOUT_ROW) for key in keys if key not in rows]
        require(not keys, self._table.no_rows_error(keys, len(keys)))
        return []

    @property
    def table_counts(self) -> dict[str, Any] | None:
        """Counts of the table's rows and of the samples with and without one; None where no table is read."""
        if not self.has_table:
            return None
        counts = {"rows": self._table_rows, "with_row": self._with_row, "without_row": len(self.without_row)}
        return counts | {"first_without_row": self.without_row[0].name if self.without_row else None}

    def look_up(self, keys: Iterable[str]) -> None:
        """Read the table for the keys that `mask` will be given; all of it is gone through each time."""
        if self._table is not None and self.has_table:
            self._rows, self._table_rows = self._table.rows(self._looked_up, list(keys))

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
        if self.has_table:
            missing = [key for key in keys if key not in self._rows]
            self.without_row += [PassedOverItem(escape_name(key), WITHOUT_ROW) for key in missing]
            self._with_row += len(keys) - len(missing)
        nothing = (None,) * len(self._looked_up)
        for place, name in enumerate(self._looked_up):
            columns[name] = [self._rows.get(key, nothing)[place] for key in keys]
        mask = self._keep.mask(columns)
        self.dropped += int(np.sum(~mask))
        self.reasons.update(self._keep.count_dropped(columns))
        return mask
