"""Files and members that lie where samples are read and become none: counted by reason, the first of each named.

Every source and every tar lists them as items. The stage shard counts the items and writes all of them into a file, the
stage catalog merges the counts of its ranges, and `submit`, `plan`, `status` and the page print them.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

NAMED = 20
"""Number of items of one reason that a manifest names."""
MOST_REASONS = 30
"""Number of reasons that are told apart; names may have any number of extensions."""
JUNK = "known junk"
"""Reason for what an operating system has left behind."""
OTHER_REASONS = "others"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SHOWN = 3
"""Number of items of one reason that are printed."""


class Item(NamedTuple):
    """One file, folder or member, or one sample that lacks something.

    reason: a short one in the plural, by which items are counted; is_broken: True for a picture that is lost, which
    counts against `data.broken` as a broken sample does.
    """

    name: str
    reason: str
    is_broken: bool = False


class Count(TypedDict):
    """Number of the items of one reason, and the names of the first."""

    count: int
    first: list[str]
    is_broken: bool


Counts = dict[str, Count]
"""Counts by reason, as manifests have them under `passed_over`."""


def add(counts: Counts, items: Iterable[Item]) -> None:
    """Count further items."""
    for item in items:
        _add(counts, item.reason, Count(count=1, first=[item.name], is_broken=item.is_broken))


def counted(items: Iterable[Item]) -> Counts:
    """Count items."""
    counts: Counts = {}
    add(counts, items)
    return counts


def merged(parts: Iterable[Counts]) -> Counts:
    """Merge the counts of several ranges, splits or sources."""
    counts: Counts = {}
    for part in parts:
        for reason, count in part.items():
            _add(counts, reason, count)
    return counts


def lines(counts: Counts) -> list[str]:
    """Describe counts: a line for every reason, with its number and its first names."""
    return [
        f"{reason}{', counted as broken' * count['is_broken']}: {count['count']:,} ({', '.join(count['first'][:SHOWN])}"
        f"{', ...' * (count['count'] > SHOWN)})"
        for reason, count in counts.items()
    ]


def described(counts: Counts) -> str:
    """Describe counts on one line."""
    return "; ".join(lines(counts))


def escaped(name: str) -> str:
    """Return a name as it can be printed on a line, with control characters and bytes other than UTF-8 escaped."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _add(counts: Counts, reason: str, more: Count) -> None:
    if reason not in counts and len(counts) >= MOST_REASONS:
        reason = OTHER_REASONS
    count = counts.setdefault(reason, Count(count=0, first=[], is_broken=False))
    count["count"] += more["count"]
    count["is_broken"] |= more["is_broken"]
    count["first"] += more["first"][: NAMED - len(count["first"])]
