"""Stages that are made anew, and trainings that go on instead."""

import pytest

from hpcddm.files import atomic
from hpcddm.launch.redo import set_redone_aside
from hpcddm.launch.submission import decide_units
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest, training_states
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.helpers import finish, tiny
from tests.launch.queues import Queue

EXPERTS = [expert_key(0), expert_key(1)]


@pytest.fixture
def run(tmp_path):
    """An empty run."""
    return RunDir(tmp_path / "run")


def with_state(run, experiment, key, images):
    """Give a unit a state of the training that the experiment asks for."""
    unit = next(unit for unit in plan_units(experiment) if unit.key == key)
    inputs = {need: manifest.read(run.unit(need)) for need in unit.inputs}
    state = {"trajectory": unit.expected(inputs).trajectory, "images": images, "format": training_states.FORMAT}
    folder = run.unit(key) / "state" / training_states.folder_name(images)
    atomic.write_json(folder / "state.json", state)
    return folder


def test_redone_trainings_go_on_unless_they_are_complete_and_those_that_fit_stay_where_others_are_stale(run, tmp_path):
    own = {"experts__overrides": [{"clusters": [1], "images": 64}]}
    before, longer = (tiny(tmp_path, **own, experts__training__images=images) for images in (128, 256))
    finish(plan_units(before), run)
    states = {key: with_state(run, longer, key, 64) for key in (*EXPERTS, MONOLITH)}

    def redone():
        decision = decide_units(longer, run, Queue(run), redo=["train"])
        set_redone_aside(run, decision, ["train"])
        return {unit.key for unit in decision.to_run}

    for _ in range(2):
        # The second time the first has left no manifests.
        assert redone() & {*EXPERTS, MONOLITH} == {EXPERTS[0], MONOLITH}
        assert all(folder.is_dir() for folder in states.values())
        assert not (run.unit(EXPERTS[0]) / "manifest.json").exists()
    finish(plan_units(longer), run)
    assert {*EXPERTS, MONOLITH} <= redone() and not any(each.exists() for each in states.values())
