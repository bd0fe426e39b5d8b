"""The errors that a user can mend; the command line prints them as one line."""


class UserError(Exception):
    """Something outside the program is wrong; the message names the place and the next step."""

    exit_code = 1


class ConfigError(UserError):
    """An experiment, a site or an option is wrong; nothing was submitted."""

    exit_code = 2
