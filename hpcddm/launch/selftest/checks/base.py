"""Base class of the checks of a site: steps that run on the nodes, and a verdict on the files that they write."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.launch.selftest.check_results import CheckResult, CheckVerdict
from hpcddm.launch.selftest.evidence import Evidence

Step = Callable[[Path, dict[str, Any]], None]
"""Step on a node: a function of the folder for its files and of the content of the spec that the jobs read."""


class Check(ABC):
    """One check of a site; checks have no state."""

    name: ClassVar[str]
    """Name of the check in the table."""
    steps: ClassVar[Mapping[str, Step]] = {}
    """Steps that every rank of a job runs on its node, by the name that the batch script uses."""

    @abstractmethod
    def evaluate(self, evidence: Evidence) -> CheckResult:
        """Evaluate the files that the jobs wrote.

        Args:
            evidence: The site and the files.

        Returns:
            The row of the table; if files are missing, it gives the reason.
        """

    def ok(self, seconds: float | None, finding: str) -> CheckResult:
        """Return the row of a check that passed.

        Args:
            seconds: Duration of the checked operation; None if it was not measured.
            finding: Result of the check.
        """
        return CheckResult(self.name, CheckVerdict.OK, seconds, finding)

    def warn(self, seconds: float | None, finding: str, advice: str) -> CheckResult:
        """Return the row of a check that passed, but with a disadvantage that the advice avoids."""
        return CheckResult(self.name, CheckVerdict.WARN, seconds, finding, advice)

    def fail(self, seconds: float | None, finding: str, advice: str) -> CheckResult:
        """Return the row of a check that failed, so that trainings are not safe on this site."""
        return CheckResult(self.name, CheckVerdict.FAIL, seconds, finding, advice)

    def not_run(self, finding: str, advice: str) -> CheckResult:
        """Return the row of a check that could not run because another check failed."""
        return CheckResult(self.name, CheckVerdict.NOT_RUN, None, finding, advice)
