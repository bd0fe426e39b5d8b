"""Slurm's own commands, called with a clean environment and never waited for without end."""

import os
import pwd
import subprocess
from pathlib import Path

from hpcddm.launch.base import clean_environment

CLIENT_SECONDS = 60


class SlurmUnavailable(Exception):
    """Nobody answered, and why; what follows from that is the caller's to say."""


def call(*command: str, seconds: float | None = None, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; raises OSError or TimeoutExpired where it cannot be run to its end."""
    return subprocess.run(
        command,
        input=script,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=seconds or CLIENT_SECONDS,
        check=False,
    )


def query(*command: str, seconds: float | None = None) -> str:
    """What a command prints; raises `SlurmUnavailable` with the reason when there is no good answer."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        # Slurm's clients would look for it for a minute.
        raise SlurmUnavailable(f"SLURM_CONF={conf} does not exist")
    try:
        answer = call(*command, seconds=seconds)
    except OSError as error:
        raise SlurmUnavailable(f"{error.filename}: {error.strerror}") from None
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailable(f"{command[0]} gave no answer in {error.timeout:.0f} s") from None
    if answer.returncode != 0:
        raise SlurmUnavailable(error_text(answer) or f"{command[0]} failed")
    return answer.stdout


def on(cluster: str | None) -> tuple[str, ...]:
    """The word that makes any of Slurm's commands talk to another cluster than its own."""
    return (f"--clusters={cluster}",) if cluster else ()


def error_text(answer: subprocess.CompletedProcess[str]) -> str:
    """What a command said about its failure, on one line."""
    return " ".join((answer.stderr.strip() or answer.stdout.strip()).split())


def unavailable_reason(cluster: str | None = None) -> str | None:
    """Why no Slurm controller answers here, or None when one does."""
    try:
        query("sinfo", *on(cluster), "--noheader", seconds=10)
    except SlurmUnavailable as why:
        return str(why)
    return None


def user_name() -> str:
    """The name of this user, or the number where nobody knows a name, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
