"""Commands that messages recommend; all are built here, quoted so that users can paste them into a shell."""

from dataclasses import dataclass

from hpcddm.errors.printing import quoted

LABEL = "next: "
PROGRAMS = ("hpcddm", "cd", "rm", "touch", "tar", "scontrol", "pip", "npm", "python")
"""Programs that a message may recommend."""


def command(*words: object) -> str:
    """Return a command for a shell, with every word quoted.

    Args:
        words: Words of the command; the first one names one of `PROGRAMS`.

    Raises:
        ValueError: If the first word is not one of `PROGRAMS`.
    """
    if not words or words[0] not in PROGRAMS:
        raise ValueError(f"{words} is not a command of {', '.join(PROGRAMS)}")
    return " ".join(map(quoted, words))


@dataclass(frozen=True)
class NextStep:
    """Commands for the user to type next, and the reason for them.

    Args:
        commands: Words of each command; they are printed on one line, joined by `&&`.
        reason: Text before the commands on the line.
        then: Step after the user has fixed the problem that these commands show.

    Examples:
        >>> advice = step("hpcddm", "status", "my run", reason="train/expert-00 failed")
        >>> str(advice)
        "train/expert-00 failed; next: hpcddm status 'my run'"
        >>> without_step(str(advice))
        'train/expert-00 failed'
    """

    commands: tuple[tuple[object, ...], ...] = ()
    reason: str = ""
    then: "NextStep | None" = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a command that is not one of `PROGRAMS`."""
        for words in self.commands:
            command(*words)

    @property
    def line(self) -> str:
        """Commands as one line for a shell; empty without commands."""
        return " && ".join(command(*words) for words in self.commands)

    def __str__(self) -> str:
        """Return the reason and the commands; the text after 'next: ' can be pasted into a shell."""
        if not self.commands:
            return self.reason
        return "; ".join(filter(None, (without_step(self.reason), f"{LABEL}{self.line}")))

    def lines(self) -> list[str]:
        """List this step and all later steps as text, one per line."""
        return [str(self), *(self.then.lines() if self.then else [])]


def without_step(text: str) -> str:
    """Return a text without the step at its end, so that a newer step can replace it."""
    return text.partition(f"; {LABEL}")[0]


def step(*words: object, reason: str = "", then: NextStep | None = None) -> NextStep:
    """Create a step with one command.

    Args:
        words: Words of the command.
        reason: Text before the command.
        then: Step after the user has fixed the problem that this command shows.

    Raises:
        ValueError: If the first word is not one of `PROGRAMS`.
    """
    return NextStep((words,), reason, then)


def install_command(*packages: str) -> str:
    """Return the command that installs Python packages."""
    return command("pip", "install", *packages)
