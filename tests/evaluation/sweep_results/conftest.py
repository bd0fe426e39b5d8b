"""A sweep of the tiny experiment."""

import pytest
import yaml

from hpcddm.launch.sweep_runs import sweep_runs_of
from hpcddm.loading.load_sweep import read_sweep
from hpcddm.runs.run_dir import RunDir
from tests.evaluation.sweep_results.taking import Taking
from tests.helpers import hpcddm, write_experiment, write_source


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


@pytest.fixture
def sweep(write, home, tmp_path, monkeypatch):
    """Call the verb; returns the scheduler and what was said."""
    (tmp_path / "north.yaml").write_text("{name: north, scheduler: slurm}")

    def call(*guidance, options=(), values=None, fails=False, **queue):
        taking = Taking(home, **queue)
        monkeypatch.setattr("hpcddm.commands.submission_flow.create_launcher", lambda site, where: taking)
        file = write(*guidance, **(values or {}))
        done = hpcddm("sweep", file, "--site", tmp_path / "north.yaml", "--dir", home.root, *options)
        assert (done.exit_code != 0) == fails, done.output
        return taking, done.output

    return call
