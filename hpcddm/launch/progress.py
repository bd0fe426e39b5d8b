"""Live progress of an embedded run: a table on a terminal, plain lines in a log."""

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hpcddm.rundir.layout import RunDir
from hpcddm.status import activity

PLAIN_SECONDS = 15


class Progress:
    """Shows what the running units say of themselves."""

    def __init__(self, run: RunDir, total: int, done: int) -> None:
        self._run, self._total, self._done = run, total, done
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._started = time.time()
        self._spoke = self._started

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(
            f"[{duration(time.time() - self._started)}] {text}", markup=False, highlight=False, soft_wrap=True
        )

    def completed(self, key: str) -> None:
        """A unit became complete."""
        self._done += 1
        self.say(f"{key} complete ({self._done} of {self._total})")

    def failed(self, key: str, reason: str) -> None:
        """A unit ended without its manifest."""
        self.say(f"{key} did not finish: {reason}")

    def show(self, keys: list[str]) -> None:
        """Refresh the picture of the running units."""
        if self._console.is_terminal:
            self._live.update(self._table(keys))
        elif time.time() - self._spoke > PLAIN_SECONDS:
            self._spoke = time.time()
            for key in keys:
                stage, unit, *cells = describe(self._run, key)
                self.say(f"{stage}/{unit}  " + "  ".join(cell for cell in cells if cell))

    def _table(self, keys: list[str]) -> Table:
        elapsed = duration(time.time() - self._started)
        table = Table(title=f"{self._done} of {self._total} units complete, {elapsed}", title_justify="left")
        for name in ("stage", "unit", "images", "images/s", "loss", "left"):
            table.add_column(name, justify="left" if name in ("stage", "unit") else "right")
        for key in keys:
            table.add_row(*describe(self._run, key))
        return table


def describe(run: RunDir, key: str) -> list[str]:
    """Stage, unit, images done, rate, loss and time left, as words."""
    last = activity(run, key).last
    beat = last.beat if last else None
    if beat is None or not beat.total:
        return [*key.split("/"), "starting", "", "", ""]
    loss = (beat.figures or {}).get("loss")
    left = beat.seconds_left
    return [
        *key.split("/"),
        f"{beat.done:,} of {beat.total:,}",
        f"{beat.rate:.0f}",
        f"{loss:.4f}" if loss is not None else "",
        duration(left) if left is not None else "",
    ]


def duration(seconds: float) -> str:
    """Seconds as 0:45, 12:05, 3:12:05 or 2d 4h."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
