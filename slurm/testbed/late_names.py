"""The late-names file system of late_names.c: how it is built and called."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("late_names.c")


def build(folder: Path) -> Path:
    """Compiles it into a folder, unless it is there and as new as its source."""
    program = folder / SOURCE.stem
    if program.exists() and program.stat().st_mtime > SOURCE.stat().st_mtime:
        return program
    folder.mkdir(parents=True, exist_ok=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True)
    compiler = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE)]
    subprocess.run([*compiler, *flags.stdout.split()], check=True)
    return program


def command(program: Path, backing: Path, place: Path, seconds: float, client: str) -> tuple[str, ...]:
    """What mounts a client of `backing` at `place` and stays in the foreground; its name is the mount's source."""
    return (str(program), str(backing), str(place), str(seconds), client)
