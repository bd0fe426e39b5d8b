"""Calls of Slurm's commands with a clean environment and a time limit."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.launch.base import clean_environment

CLIENT_SECONDS = 60
NO_CLUSTER = "Could not establish a configuration source"
"""Error of Slurm's commands where they are installed and no cluster is configured."""


class SlurmUnavailable(Exception):
    """Error for a Slurm command that fails or does not answer; the message is the reason."""


class SlurmMissing(SlurmUnavailable):
    """Error for a machine without Slurm's commands, or without their configuration."""


def call_slurm(
    *command: str, seconds: float | None = None, script: str | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command, whatever its exit code.

    Args:
        command: Words of the command.
        seconds: Time limit in seconds; None for `CLIENT_SECONDS`.
        script: Text for its standard input.
        variables: Further variables of its environment.

    Raises:
        OSError: If the command cannot be started.
        subprocess.TimeoutExpired: If the command exceeds the time limit.
    """
    limit = seconds or CLIENT_SECONDS
    environment = {**clean_environment(), **(variables or {})}
    return subprocess.run(
        command, input=script, capture_output=True, text=True, errors="replace", env=environment, timeout=limit
    )


def query_slurm(*command: str, seconds: float | None = None) -> str:
    """Run a Slurm command and return its output.

    Args:
        command: Words of the command.
        seconds: Time limit in seconds; None for `CLIENT_SECONDS`.

    Raises:
        SlurmUnavailable: If the command is missing, fails or does not answer.
    """
    if (conf := os.environ.get("SLURM_CONF")) and not Path(conf).is_file():
        # Slurm's commands would search for it for a minute.
        raise SlurmMissing(f"SLURM_CONF={conf} does not exist")
    try:
        process = call_slurm(*command, seconds=seconds)
    except OSError as error:
        raise SlurmMissing(f"{error.filename}: {error.strerror}") from None
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailable(f"{command[0]} gave no answer in {error.timeout:.0f} s") from None
    if process.returncode != 0:
        reason = error_text(process) or f"{command[0]} failed"
        raise SlurmMissing(reason) if NO_CLUSTER in reason else SlurmUnavailable(reason)
    return "".join(f"{printable(line, MAX_LINE_CHARACTERS)}\n" for line in process.stdout.splitlines())


def cluster_flag(cluster: str | None) -> tuple[str, ...]:
    """Return the flag with which a Slurm command addresses a cluster; () for the default cluster."""
    return (f"--clusters={cluster}",) if cluster else ()


def error_text(process: subprocess.CompletedProcess[str]) -> str:
    """Return a command's error message on one line: its stderr, else its stdout."""
    return printable(" ".join((process.stderr.strip() or process.stdout.strip()).split()), MAX_LINE_CHARACTERS)


def unavailable_reason(cluster: str | None = None) -> str | None:
    """Return the reason why no Slurm controller answers on this machine; None if one answers."""
    try:
        query_slurm("sinfo", *cluster_flag(cluster), "--noheader", seconds=10)
    except SlurmUnavailable as error:
        return str(error)
    return None
