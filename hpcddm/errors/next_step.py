"""Commands that a user is advised to type: all that is printed as one is made here, and can be pasted into a shell."""

from dataclasses import dataclass

from hpcddm.errors.printing import quoted

LABEL = "next: "
PROGRAMS = ("hpcddm", "cd", "rm", "touch", "tar", "scontrol", "pip", "npm", "python")
"""Programs that advice may name."""


def command(*words: object) -> str:
    """Return a command as it can be pasted, every word quoted; raises `ValueError` for what is not a command."""
    if not words or words[0] not in PROGRAMS:
        raise ValueError(f"{words} is not a command of {', '.join(PROGRAMS)}")
    return " ".join(map(quoted, words))


@dataclass(frozen=True)
class NextStep:
    """Commands to type next, and the reason for them.

    Args:
        commands: Each as its words; they are printed as one line, and each needs the success of the one before.
        reason: Text before them on the line.
        then: Step that follows when the user has mended what these show.
    """

    commands: tuple[tuple[object, ...], ...] = ()
    reason: str = ""
    then: "NextStep | None" = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that are not a command."""
        for words in self.commands:
            command(*words)

    @property
    def line(self) -> str:
        """Return the commands as one line of a shell, empty without commands."""
        return " && ".join(command(*words) for words in self.commands)

    def __str__(self) -> str:
        """Return the reason and the step: what comes after 'next: ' up to the end can be pasted."""
        if not self.commands:
            return self.reason
        return "; ".join(filter(None, (without_step(self.reason), f"{LABEL}{self.line}")))

    def lines(self) -> list[str]:
        """List this step and the ones that follow, one on each line."""
        return [str(self), *(self.then.lines() if self.then else [])]


def without_step(text: str) -> str:
    """Return a text, such as a reason that a job recorded, without the step at its end: a later one takes its place."""
    return text.partition(f"; {LABEL}")[0]


def step(*words: object, reason: str = "", then: NextStep | None = None) -> NextStep:
    """Return the step of one command."""
    return NextStep((words,), reason, then)


def installing(*packages: str) -> str:
    """Return the command that installs packages of Python."""
    return command("pip", "install", *packages)
