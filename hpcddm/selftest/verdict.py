"""Verdict of a check: one row of the table."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Degree to which training can rely on what was checked."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """One check: its verdict, how long the checked thing took, what was seen, and what to do."""

    check: str
    verdict: Verdict
    seconds: float | None
    seen: str
    advice: str = ""
