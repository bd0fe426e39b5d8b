"""Rows and verdicts of checks, as tables and `--json` show them."""

from dataclasses import asdict, dataclass
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

    check: str
    verdict: CheckVerdict
    seconds: float | None
    finding: str
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row for `--json`, where the finding is called 'seen'."""
        values = asdict(self)
        return {"seen" if key == "finding" else key: value for key, value in values.items()}
