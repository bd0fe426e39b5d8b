"""Errors that a user can fix; the command line prints one line for each mistake."""

from collections.abc import Callable, Iterable
from typing import Any

from hpcddm.errors import exit_codes
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable


class UserError(Exception):
    """Error outside the program, such as in a file or a setting; the message names the place and the next step.

    Several arguments are the lines of a message about several mistakes.
    """

    exit_code = exit_codes.FAILED

    def __str__(self) -> str:
        """Return the message with each argument on one printable line, even if it quotes foreign text."""
        return "\n".join(printable(line, MAX_LINE_CHARACTERS) for line in self.args)


class ConfigError(UserError):
    """Error in an experiment, a site or an option; nothing was submitted."""

    exit_code = exit_codes.USAGE


class SchedulerUnreachable(UserError):
    """Error for a scheduler that does not answer, so job states are unknown; nothing was submitted."""

    exit_code = exit_codes.SCHEDULER_UNREACHABLE


def require(condition: bool, message: str) -> None:
    """Check a condition that depends on data or files.

    Raises:
        UserError: If the condition is false; `message` is its text.
    """
    if not condition:
        raise UserError(message)


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
