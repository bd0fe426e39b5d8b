"""Tools that the verb prefetch runs, and the temporary folders into which they fetch."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpcddm.errors import UserError

TOOL_SECONDS = 1800


class ToolError(UserError):
    """Error of a tool that is missing, failed or took too long; the message is its reason."""


@contextmanager
def staging(parent: Path, place: Path) -> Iterator[Path]:
    """Make a temporary folder for what comes to a place; raises `UserError` where nothing can be written."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".fetching-") as staged:
            yield Path(staged)
    except OSError as error:
        raise UserError(f"{place}: cannot write there: {error.strerror or error}") from error


def run_tool(name: str, words: Sequence[str], folder: Path, mark: str = "") -> None:
    """Run a command that fetches or unpacks something.

    Args:
        name: Name of the tool, for the user.
        words: The command.
        folder: Its working directory.
        mark: Beginning of the lines in which it tells an error.

    Raises:
        ToolError: If it is not installed, fails or takes too long.
    """
    if shutil.which(words[0]) is None:
        raise ToolError(f"{name} is not installed")
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{name} took longer than {TOOL_SECONDS} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith(mark)] or said or [f"exit code {done.returncode}"]
        raise ToolError(f"{name}: {errors[0]}")
