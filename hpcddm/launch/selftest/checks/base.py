"""The contract of a check: the steps that it runs on the nodes, and its verdict on the files that they left."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.launch.selftest.evidence import Evidence
from hpcddm.launch.selftest.results import CheckRow, CheckVerdict

Step = Callable[[Path, dict[str, Any]], None]
"""A step on a node: (folder for the files that it leaves, content of the spec that the jobs read)."""


class Check(ABC):
    """One check of a site; a class without state, of which every use makes an object."""

    name: ClassVar[str]
    """Name in the table."""
    steps: ClassVar[Mapping[str, Step]] = {}
    """Steps that every rank of a job runs on its node, by the name with which the batch script calls them."""

    @abstractmethod
    def evaluate(self, evidence: Evidence) -> CheckRow:
        """Evaluate the files that the jobs left; where they are missing, the row says why."""

    def ok(self, seconds: float | None, finding: str) -> CheckRow:
        """Return the row of a check that passes; seconds: duration of the checked operation, None where it has none."""
        return CheckRow(self.name, CheckVerdict.OK, seconds, finding)

    def warn(self, seconds: float | None, finding: str, advice: str) -> CheckRow:
        """Return the row of a check that passes, but with a loss that the advice would avoid."""
        return CheckRow(self.name, CheckVerdict.WARN, seconds, finding, advice)

    def fail(self, seconds: float | None, finding: str, advice: str) -> CheckRow:
        """Return the row of a check on which no training can rely."""
        return CheckRow(self.name, CheckVerdict.FAIL, seconds, finding, advice)

    def not_run(self, finding: str, advice: str) -> CheckRow:
        """Return the row of a check for which another one must pass first."""
        return CheckRow(self.name, CheckVerdict.NOT_RUN, None, finding, advice)
