"""Runs of a contract, made once."""

import shutil
from dataclasses import replace

import pytest

from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import Agreed, agreed_runs
from tests.exchange.collaboration import Collaboration


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
    return Collaboration(tmp_path_factory.mktemp("collaboration")).make()
