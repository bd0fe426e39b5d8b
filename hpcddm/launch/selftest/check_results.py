"""Rows and verdicts of checks, as tables and `--json` show them."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
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


ok = partial(CheckResult, CheckVerdict.OK)
"""Row of a check that passed, from seconds and finding."""
warn = partial(CheckResult, CheckVerdict.WARN)
"""Row of a check that passed, but with a disadvantage that the advice avoids; from seconds, finding and advice."""
fail = partial(CheckResult, CheckVerdict.FAIL)
"""Row of a check that failed, so that trainings are not safe on this site; from seconds, finding and advice."""
not_run = partial(CheckResult, CheckVerdict.NOT_RUN, None)
"""Row of a check that could not run because another check failed; from finding and advice."""
