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
    """Row of one check: verdict, seconds that the checked operation took, observation, and advice."""

    check: str
    verdict: Verdict
    seconds: float | None
    seen: str
    advice: str = ""
