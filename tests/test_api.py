import pytest

from hpcddm import api
from hpcddm.errors import ConfigError
from hpcddm.loading import load_experiment
from hpcddm.rundir.layout import RunDir


@pytest.fixture
def run(tmp_path):
    return api.Run(RunDir(tmp_path), load_experiment("quickstart"))


@pytest.mark.parametrize("label", [-1, 10, 99])
def test_a_class_that_the_networks_do_not_know_is_refused(run, label):
    with pytest.raises(ConfigError, match=f"classes: {label}: valid classes are 0 to 9"):
        run.sample(2, classes=[3, label])


def test_the_states_of_all_units_are_read_once_for_all_velocities(run, monkeypatch):
    reads, loads = [], []
    monkeypatch.setattr(api, "missing_experts", lambda settings, folder, units: reads.append(units) or units[-1:])
    monkeypatch.setattr(api.loading, "load_ensemble", lambda *arguments: loads.append(arguments[2]))
    for strategy in ("top-1", "top-2", "monolith", "top-1"):
        run.ensemble(strategy)
    assert len(reads) == len(loads) == 2
    assert loads[0] == reads[0][:-1]
