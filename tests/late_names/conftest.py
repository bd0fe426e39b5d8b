"""Two nodes that share a folder whose names come late."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.testbed import late_names
from tests.late_names.mounts import Nodes, two_nodes


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system, compiled; in CI not being able to mount one is a failure."""
    fuse = subprocess.run(["pkg-config", "--exists", "fuse3"], check=False) if shutil.which("pkg-config") else None
    able = fuse is not None and fuse.returncode == 0 and os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK)
    if not able and "CI" not in os.environ:
        pytest.skip("needs root, /dev/fuse and tests/install.sh")
    return late_names.build(tmp_path_factory.mktemp("late-names"))


@pytest.fixture
def late(program: Path, tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes that trust names for as long as NFS does."""
    with two_nodes(program, tmp_path) as nodes:
        yield nodes
