"""A git checkout of this project as a user has it: what is committed can be edited, and jobs run from it or not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers import REPOSITORY

PARTS = ("hpcddm", "slurm", "experiments")


def clone(folder: Path) -> Path:
    """A new repository that holds the package as it is now, in one commit."""
    checkout = folder / "checkout"
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / ".gitignore", checkout)
    git(checkout, "init", "--quiet")
    commit(checkout)
    return checkout


def commit(checkout: Path) -> str:
    """Commit everything that lies there and return the commit."""
    git(checkout, "add", "--all")
    git(checkout, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "as it is")
    return git(checkout, "rev-parse", "HEAD")


def git(checkout: Path, *arguments: str) -> str:
    """What git says in a checkout."""
    done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def hpcddm(checkout: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line of that checkout."""
    command = [sys.executable, "-P", "-m", "hpcddm.cli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(checkout)} | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def break_imports(checkout: Path, module: str = "hpcddm/jobs/entry.py") -> None:
    """Edit a file so that importing it fails, in place as an editor does."""
    path = checkout / module
    with open(path, "a") as file:
        file.write("\nraise RuntimeError('edited while jobs were in the queue')\n")
