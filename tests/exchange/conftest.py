"""Runs of a contract, made once."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import Agreed, agreed_runs
from tests.exchange.collaboration import Collaboration

MEMORY, SECONDS = 1 << 30, 60
"""Bytes of address space beyond those of the tests, and seconds, that a refusal may take."""


@pytest.fixture(scope="session")
def agreed(tmp_path_factory) -> Agreed:
    """Two runs of one contract; copy them before you change them."""
    return agreed_runs(tmp_path_factory.mktemp("agreed"))


@pytest.fixture
def runs(agreed, tmp_path) -> Agreed:
    """An own copy of both runs."""
    folder = shutil.copytree(agreed.home.root.parent, tmp_path / "agreed")
    return replace(agreed, home=RunDir(folder / "home"), partner=RunDir(folder / "partner"))


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Collaboration:
    """A collaboration whose contract is written; copy it before you change it."""
    # Once for all workers: it takes longer than its tests.
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared-collaboration"
    with FileLock(f"{folder}.lock"):
        made = Collaboration(folder)
        return made if made.contract.exists() else made.make()


@pytest.fixture
def limits() -> Iterator[None]:
    """Let no import take more memory or time than a small login node gives."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, before)
