"""Slurm's own commands, called with a clean environment and never waited for without end."""

import os
import pwd
import subprocess
from pathlib import Path

from hpcddm.errors.printing import MOST_OF_A_LINE, printable
from hpcddm.launch.base import clean_environment

CLIENT_SECONDS = 60


class SlurmUnavailable(Exception):
    """Slurm gave no good answer; the message is the reason, and the caller decides what follows."""


def call(*command: str, seconds: float | None = None, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; raises OSError or TimeoutExpired where it cannot be run to its end."""
    return subprocess.run(
        command,
        input=script,
        capture_output=True,
        text=True,
        errors="replace",
        env=clean_environment(),
        timeout=seconds or CLIENT_SECONDS,
        check=False,
    )


def query(*command: str, seconds: float | None = None) -> str:
    """Run one of Slurm's commands and return its output; raises `SlurmUnavailable` with the reason where that fails."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        # Slurm's clients would look for it for a minute.
        raise SlurmUnavailable(f"SLURM_CONF={conf} does not exist")
    try:
        process = call(*command, seconds=seconds)
    except OSError as error:
        raise SlurmUnavailable(f"{error.filename}: {error.strerror}") from None
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailable(f"{command[0]} gave no answer in {error.timeout:.0f} s") from None
    if process.returncode != 0:
        raise SlurmUnavailable(error_text(process) or f"{command[0]} failed")
    return "".join(f"{printable(line, MOST_OF_A_LINE)}\n" for line in process.stdout.splitlines())


def on(cluster: str | None) -> tuple[str, ...]:
    """Return the flag that makes any of Slurm's commands talk to another cluster than its own; () for its own."""
    return (f"--clusters={cluster}",) if cluster else ()


def error_text(process: subprocess.CompletedProcess[str]) -> str:
    """Return a command's error message on one line: its stderr, else its stdout."""
    return printable(" ".join((process.stderr.strip() or process.stdout.strip()).split()), MOST_OF_A_LINE)


def unavailable_reason(cluster: str | None = None) -> str | None:
    """Return the reason why no Slurm controller answers here, or None when one does."""
    try:
        query("sinfo", *on(cluster), "--noheader", seconds=10)
    except SlurmUnavailable as error:
        return str(error)
    return None


def user_name() -> str:
    """Return the name of this user, or the user id where it has no name, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
