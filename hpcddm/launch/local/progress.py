"""Live progress of a run on this machine: a table on a terminal, plain lines in a log."""

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.jobs.activity import read_activity
from hpcddm.launch.array_items import ArrayItem

PLAIN_SECONDS = 15


class ProgressDisplay:
    """Display of the running units' progress, used in a `with` block.

    Args:
        total: Number of units.
        done: Number of complete units.
    """

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._started = time.time()
        self._spoke = self._started

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        line = f"[{format_duration(time.time() - self._started)}] {printable(text, MAX_LINE_CHARACTERS)}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def completed(self, name: str) -> None:
        """Count a unit as complete and print it."""
        self._done += 1
        self.say(f"{name} complete ({self._done} of {self._total})")

    def failed(self, name: str, reason: str) -> None:
        """Print that a unit ended without being complete."""
        self.say(f"{name} did not finish: {reason}")

    def show(self, items: list[ArrayItem]) -> None:
        """Refresh the display of the running units."""
        if self._console.is_terminal:
            self._live.update(self._table(items))
        elif time.time() - self._spoke > PLAIN_SECONDS:
            self._spoke = time.time()
            for item in items:
                self.say(f"{item.name}  " + "  ".join(cell for cell in describe_progress(item) if cell))

    def _table(self, items: list[ArrayItem]) -> Table:
        elapsed = format_duration(time.time() - self._started)
        table = Table(title=f"{self._done} of {self._total} units complete, {elapsed}", title_justify="left")
        for name in ("unit", "images", "images/s", "loss", "left"):
            table.add_column(name, justify="left" if name == "unit" else "right")
        for item in items:
            # Text, because a name may contain markup.
            table.add_row(Text(item.name), *describe_progress(item))
        return table


def describe_progress(item: ArrayItem) -> list[str]:
    """Format images done, rate, loss and time left of a running unit."""
    last = read_activity(item.run, item.unit.key)
    # Until the unit opens an attempt, the last attempt belongs to an earlier submission.
    beat = last.beat if last.is_open else None
    if beat is None or not beat.total:
        return ["starting", "", "", ""]
    loss = (beat.figures or {}).get("loss")
    seconds_left = beat.seconds_left
    return [
        f"{beat.done:,} of {beat.total:,}",
        f"{beat.rate:.0f}",
        f"{loss:.4f}" if loss is not None else "",
        format_duration(seconds_left) if seconds_left is not None else "",
    ]


def format_duration(seconds: float) -> str:
    """Format a duration in seconds as text.

    Examples:
        >>> [format_duration(seconds) for seconds in (45, 11525, 187200)]
        ['0:45', '3:12:05', '2d 4h']
    """
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
