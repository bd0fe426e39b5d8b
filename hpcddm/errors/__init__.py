"""Errors that a user can fix, and exit codes; the command line prints one line for each mistake."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable


class ExitCode(IntEnum):
    """Exit codes of all commands and of the ranks in a job; docs/exit-codes.md lists them with these meanings."""

    DONE = 0
    """done. For `wait` and `status --exit-code`: every requested unit is complete"""
    FAILED = 1
    """the environment or a unit failed; the message names the cause and the next step"""
    USAGE = 2
    """an option, an experiment or a site is wrong; nothing was submitted or changed"""
    NEEDS_ACTION = 3
    """`wait`, `status --exit-code`: incomplete, and nothing continues without you; `status` says why"""
    SCHEDULER_UNREACHABLE = 4
    """the scheduler does not answer, so job states are unknown; try again: nothing is submitted twice"""
    UNDER_WAY = 5
    """`status --exit-code`, and `wait` at its `--timeout`: incomplete, and jobs are queued or running"""
    WATCHDOG = 70
    """in a job: a rank completed no step for `watchdog_minutes`"""
    HELD_OR_ABANDONED = 75
    """in a job: another execution holds the unit, or this rank left while others waited for it"""
    INTERRUPTED = 130
    """Ctrl-C; queued jobs continue, and the same command resumes"""


class UserError(Exception):
    """Error outside the program, such as in a file or a setting; the message names the place and the next step.

    Several arguments are the lines of a message about several mistakes.
    """

    exit_code = ExitCode.FAILED

    def __str__(self) -> str:
        """Return the message with each argument on one printable line, even if it quotes foreign text."""
        return "\n".join(printable(line, MAX_LINE_CHARACTERS) for line in self.args)


class ConfigError(UserError):
    """Error in an experiment, a site or an option; nothing was submitted."""

    exit_code = ExitCode.USAGE


class SchedulerUnreachable(UserError):
    """Error for a scheduler that does not answer, so job states are unknown."""

    exit_code = ExitCode.SCHEDULER_UNREACHABLE


def require(condition: bool, message: str, error: type[Exception] = UserError) -> None:
    """Check a condition that depends on data, files or settings.

    Raises:
        Exception: If the condition is false, of type `error` and with the text `message`.
    """
    if not condition:
        raise error(message)


def call_all(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Call functions one after another, also after a failure, and return what they return.

    Raises:
        UserError: If some fail; its lines are those of all failures.
    """
    results, failures = [], []
    for call in calls:
        try:
            results.append(call())
        except UserError as error:
            failures.append(error)
    if failures:
        raise type(failures[0])(*dict.fromkeys(line for error in failures for line in error.args))
    return results
