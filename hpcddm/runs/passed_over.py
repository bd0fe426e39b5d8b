"""Files and tar members that are passed over because they are not usable samples, counted by reason.

Every source and every tar lists them as items. The stage `shard` counts the items and writes them to a file. The stage
`catalog` merges the counts of all ranges. `submit`, `plan`, `status` and the report print the counts.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

MAX_NAMED = 20
"""Number of items of one reason that a manifest names."""
MAX_REASONS = 30
"""Number of distinct reasons that are kept; there is one reason per file extension, so their number is unbounded."""
JUNK = "known junk"
"""Reason for files that an operating system created."""
OTHER_REASONS = "others"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_SHOWN = 3
"""Number of items of one reason that are printed."""


class PassedOverItem(NamedTuple):
    """One file, folder or tar member that is not a sample, or an incomplete sample.

    Args:
        name: Name of the item.
        reason: Short reason in the plural, by which items are counted.
        is_broken: True for a lost picture, which counts against `data.max_broken_share` like a broken sample.
    """

    name: str
    reason: str
    is_broken: bool = False


class Count(TypedDict):
    """Number of items with one reason, and the names of the first ones."""

    count: int
    first: list[str]
    is_broken: bool


Counts = dict[str, Count]
"""Counts by reason, as stored in manifests under `passed_over`."""


def add(counts: Counts, items: Iterable[PassedOverItem]) -> None:
    """Add further items to `counts`."""
    for item in items:
        _add(counts, item.reason, Count(count=1, first=[item.name], is_broken=item.is_broken))


def count_items(items: Iterable[PassedOverItem]) -> Counts:
    """Count items by reason."""
    counts: Counts = {}
    add(counts, items)
    return counts


def merge_counts(parts: Iterable[Counts]) -> Counts:
    """Merge the counts of several ranges, splits or sources."""
    counts: Counts = {}
    for part in parts:
        for reason, count in part.items():
            _add(counts, reason, count)
    return counts


def count_lines(counts: Counts) -> list[str]:
    """Describe counts as text, one line per reason with the number and the first names."""
    return [
        f"{reason}{', counted as broken' * count['is_broken']}: {count['count']:,}"
        f" ({', '.join(count['first'][:MAX_SHOWN])}{', ...' * (count['count'] > MAX_SHOWN)})"
        for reason, count in counts.items()
    ]


def describe_counts(counts: Counts) -> str:
    """Describe counts on one line."""
    return "; ".join(count_lines(counts))


def escape_name(name: str) -> str:
    """Return a name that can be printed on one line: control characters and invalid UTF-8 become escapes."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _add(counts: Counts, reason: str, more: Count) -> None:
    if reason not in counts and len(counts) >= MAX_REASONS:
        reason = OTHER_REASONS
    count = counts.setdefault(reason, Count(count=0, first=[], is_broken=False))
    count["count"] += more["count"]
    count["is_broken"] |= more["is_broken"]
    count["first"] += more["first"][: MAX_NAMED - len(count["first"])]
