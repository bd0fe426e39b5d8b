"""The errors that a user can mend; the command line prints them as one line, or one for every mistake."""

from hpcddm.errors import exit_codes
from hpcddm.errors.printing import MOST_OF_A_LINE, printable


class UserError(Exception):
    """Something outside the program is wrong; the message names the place and the next step.

    Several arguments are the lines of a message about several mistakes.
    """

    exit_code = exit_codes.FAILED

    def __str__(self) -> str:
        """Return each argument on one printable line, whatever it repeats of a file, of data or of a scheduler."""
        return "\n".join(printable(line, MOST_OF_A_LINE) for line in self.args)


class ConfigError(UserError):
    """An experiment, a site or an option is wrong; nothing was submitted."""

    exit_code = exit_codes.USAGE


class SchedulerSilent(UserError):
    """The scheduler does not answer, so it is unknown what runs; nothing was submitted."""

    exit_code = exit_codes.SILENT


def require(condition: bool, message: str) -> None:
    """Raise `UserError` unless the condition holds; for conditions that only the data can tell."""
    if not condition:
        raise UserError(message)
