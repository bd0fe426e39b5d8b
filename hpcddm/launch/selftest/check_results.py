"""Rows and verdicts of checks, as tables and `--json` show them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckVerdict(StrEnum):
    """Reliability of the checked property."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class CheckResult:
    """Row of one check: verdict, seconds that the checked operation took, finding, and advice."""

    verdict: CheckVerdict
    seconds: float | None
    """None if the operation was not measured."""
    finding: str
    advice: str = ""
    check: str = ""
    """Name of the check in the table."""

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`, where the finding is called 'seen'."""
        row = {"check": self.check, "verdict": self.verdict, "seconds": self.seconds}
        return row | {"seen": self.finding, "advice": self.advice}


def ok(seconds: float | None, finding: str) -> CheckResult:
    """Return the row of a check that passed."""
    return CheckResult(CheckVerdict.OK, seconds, finding)


def warn(seconds: float | None, finding: str, advice: str) -> CheckResult:
    """Return the row of a check that passed, but with a disadvantage that the advice avoids."""
    return CheckResult(CheckVerdict.WARN, seconds, finding, advice)


def fail(seconds: float | None, finding: str, advice: str) -> CheckResult:
    """Return the row of a check that failed, so that trainings are not safe on this site."""
    return CheckResult(CheckVerdict.FAIL, seconds, finding, advice)


def not_run(finding: str, advice: str) -> CheckResult:
    """Return the row of a check that could not run because another check failed."""
    return CheckResult(CheckVerdict.NOT_RUN, None, finding, advice)
