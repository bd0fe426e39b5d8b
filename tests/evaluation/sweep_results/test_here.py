"""`hpcddm sweep` on this machine, with units that end at once."""

import pytest

from hpcddm.config.site import Site
from hpcddm.jobs.spec import read_spec
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.job import JobId
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from tests.attempts import write_attempt
from tests.evaluation.sweep_results.taking import DRAW
from tests.evaluation.sweep_results.test_verb import finish_unit
from tests.helpers import FINAL, hpcddm


class Machine(LocalLauncher):
    """This machine, with units that end at once; broken ones fail."""

    def __init__(self, run, broken=()):
        super().__init__(Site(name="north", scheduler="local"), run)
        self.broken, self.order, self.specs, self.cores = broken, [], [], 2

    def states(self, submissions):
        return {}

    def submit(self, array, token, script):
        self.specs += array.specs
        self.order += array.keys
        return JobId(str(len(self.order)))

    def is_running(self, job):
        spec, run = read_spec(self.specs[int(job) - 1])
        (unit,) = (unit for unit in plan_units(stored_experiment(RunDir(run.root))) if unit.key == spec.key)
        if f"{run.root.name}/{spec.key}" in self.broken:
            write_attempt(run, spec.key, 1, ended={"outcome": "failed", "reason": "out of luck"})
        elif not manifest.read(run.unit(spec.key)):
            write_attempt(run, spec.key, 1, ended={"outcome": "complete"})
            finish_unit(unit, run)
        return False


@pytest.fixture
def here(write, home, tmp_path, monkeypatch):
    """Call the verb on this machine; returns the order of the units and the answer."""
    monkeypatch.setattr("hpcddm.launch.local.driver.POLL_SECONDS", 0.0)
    (tmp_path / "here.yaml").write_text("{name: here, scheduler: local, cores: 1}")

    def call(*guidance, broken=()):
        machine = Machine(home, broken)
        monkeypatch.setattr("hpcddm.commands.submission_flow.create_launcher", lambda site, where: machine)
        return machine.order, hpcddm("sweep", write(*guidance), "--site", tmp_path / "here.yaml", "--dir", home.root)

    return call


def test_on_this_machine_everything_runs_once_and_the_table_comes_at_the_end(here, home):
    order, done = here(1.0, 2.0)
    assert done.exit_code == 0, done.output
    assert len(order) == len(set(order)) == 28 and order[-1] == "guidance=2.0/report/all"
    assert done.output.count("1.50 / 0.2500 / 75.0%") == 4 and (home.root / "table.png").exists()
    again, done = here(1.0, 2.0, 3.0)
    assert again == [f"guidance=3.0/{key}" for key in FINAL] and done.exit_code == 0
    assert here(1.0, 2.0, 3.0)[0] == []


def test_on_this_machine_a_failure_of_one_setting_leaves_the_others_complete(here):
    order, done = here(1.0, 2.0, broken=[f"guidance=1.0/{DRAW}"])
    assert done.exit_code == 1 and order[-1] == "guidance=2.0/report/all" and "guidance=1.0/report/all" not in order
    assert f"{DRAW} failed: out of luck" in done.output and "hpcddm logs" in done.output
    again, done = here(1.0, 2.0)
    assert again == [f"guidance=1.0/{key}" for key in FINAL] and done.exit_code == 0
