"""A sweep of the tiny experiment."""

import pytest
import yaml

from hpcddm.rundir.layout import RunDir
from hpcddm.sweep.runs import sweep_runs_of
from hpcddm.sweep.settings import read_sweep
from tests.helpers import write_experiment, write_source


@pytest.fixture
def home(tmp_path):
    """The folder of the sweep."""
    return RunDir(tmp_path / "home")


@pytest.fixture
def write(tmp_path):
    """Write a sweep and return its path; the guidance varies unless something else is said."""
    write_source(tmp_path / "images")
    write_experiment(tmp_path)

    def written(*guidance, **values):
        if guidance:
            values["grid"] = {"evaluate.guidance": list(guidance)}
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({"name": "trial", "experiment": "tiny.yaml"} | values, sort_keys=False))
        return path

    return written


@pytest.fixture
def sweep_runs(write, home):
    """The runs of such a sweep."""
    return lambda *guidance, **values: sweep_runs_of(read_sweep(str(write(*guidance, **values))), home)
