"""Two nodes that share one folder, each with the cache of names of an NFS client (see slurm/testbed/late_names.c)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm.testbed import late_names

LATE = 30.0
"""Seconds for which an NFS client trusts a name at least, by default."""


@dataclass(frozen=True)
class Nodes:
    """One folder of the server, and how two nodes see it."""

    server: Path
    a: Path
    b: Path


@contextmanager
def mounted(program: Path, backing: Path, place: Path) -> Iterator[Path]:
    """Mount one client of `backing` at `place` for a while."""
    place.mkdir(parents=True, exist_ok=True)
    client = subprocess.Popen(late_names.command(program, backing, place, LATE, place.name))
    try:
        while not os.path.ismount(place):
            assert client.poll() is None, f"late_names ended with {client.returncode}; is there a /dev/fuse?"
        yield place
    finally:
        # Lazily: a process that the test has killed may be on its way out.
        subprocess.run(["umount", "--lazy", place], check=True)
        # What was removed meanwhile is freed on the disk only now: thousands of files take a while.
        client.wait(120)


@contextmanager
def two_nodes(program: Path, folder: Path) -> Iterator[Nodes]:
    """Mount two clients of one new folder."""
    server = folder / "server"
    server.mkdir()
    with ExitStack() as mounts:
        places = [mounts.enter_context(mounted(program, server, folder / name)) for name in "ab"]
        yield Nodes(server, *places)
