"""The embedded driver with processes that end at once: order, cores, and what a failure leaves undone."""

import pytest

from hpcddm.config.site import Site
from hpcddm.jobs.fruitless_attempts import FRUITLESS
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.launch.array_items import make_items
from hpcddm.launch.local import driver as local_drive
from hpcddm.launch.local import machine_gpus
from hpcddm.launch.local.driver import EmbeddedDriver
from hpcddm.launch.local.machine_gpus import GpuPool
from hpcddm.launch.submission import decide_units
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.job import JobId
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH
from tests.helpers import FINAL, finish, tiny


class Machine:
    """A launcher whose units end by the next look; `broken` ones leave no manifest, `killed` ones die so many times."""

    def __init__(self, run, experiment, cores=2, broken=(), killed=None, **site):
        self.site, self.cores = Site(name="here", scheduler="local", **site), cores
        self.run, self.broken, self.killed = run, broken, dict(killed or {})
        self.units = {unit.key: unit for unit in plan_units(experiment)}
        self.alive, self.together, self.order = {}, [], []
        self.gpus = GpuPool(self.site)

    def submit(self, array, token, script):
        (key,) = array.keys
        assert all((self.run.unit(need) / "manifest.json").exists() for need in self.units[key].requires)
        self.alive[str(len(self.order))] = key
        self.order.append(key)
        self.together.append(sorted(self.alive.values()))
        return str(len(self.order) - 1)

    def states(self, submissions):
        return {}

    def is_running(self, job):
        for key in self.alive.values():
            attempt = open_attempt(self.run.logs(key), Ranks(0, 0, 1, 1, key))
            if self.killed.get(key):
                self.killed[key] -= 1
            elif key in self.broken:
                attempt.close("failed", "out of luck")
            else:
                finish([self.units[key]], self.run)
                attempt.close("complete")
        self.alive = {}
        return False


@pytest.fixture
def drive(tmp_path, monkeypatch):
    """Drive the tiny experiment on such a machine."""
    monkeypatch.setattr(local_drive, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(machine_gpus, "visible_gpus", list)
    run = RunDir(tmp_path / "run")
    run.root.mkdir()

    def driven(changes=None, **machine):
        experiment = tiny(tmp_path, **changes or {})
        launcher = Machine(run, experiment, **machine)
        decision = decide_units(experiment, run, launcher)
        absent, items = {*decision.elsewhere, *decision.blocked}, make_items(decision.to_run, experiment, run)
        return launcher, EmbeddedDriver(items, run, launcher, len(decision.complete), absent).drive()

    return driven


ENOUGH = {"evaluate__min_experts": 1}


def test_everything_runs_once_and_as_much_at_once_as_fits(drive):
    machine, failed = drive(cores=3)
    assert failed == {} and sorted(machine.order) == sorted(machine.units) and max(map(len, machine.together)) == 3


def test_a_unit_larger_than_the_machine_runs_alone(drive):
    machine, failed = drive(cores=2, stages={"train": {"ranks_per_node": 4}})
    assert failed == {} and [MONOLITH] in machine.together
    assert all(len(keys) == 1 for keys in machine.together if any(key.startswith("train/") for key in keys))


def test_a_failure_leaves_undone_what_reads_it_and_nothing_else(drive):
    machine, failed = drive(broken=["router/all"])
    assert failed == {"router/all": "out of luck"} and machine.units.keys() - set(machine.order) == {*FINAL}
    again, failed = drive()
    assert failed == {} and again.order == ["router/all", *FINAL]


def test_a_failure_of_an_expert_leaves_the_final_step_to_those_that_are_enough(drive):
    machine, failed = drive(ENOUGH, broken=["train/expert-01"])
    assert list(failed) == ["train/expert-01"] and machine.order[-1] == "report/all"
    machine, failed = drive(broken=["train/expert-00", "train/expert-01"])
    assert "report/all" not in machine.order


def test_the_final_step_waits_for_the_experts_that_run_even_when_enough_are_there(tmp_path, drive):
    drive(ENOUGH)
    (tmp_path / "run" / "train/expert-01" / "manifest.json").unlink()
    machine, _ = drive(ENOUGH, cores=8)
    assert machine.together == [[key] for key in ("train/expert-01", *FINAL)]


def test_a_unit_that_is_made_anew_and_fails_is_not_taken_for_its_old_self(drive, tmp_path):
    drive()
    (tmp_path / "run" / MONOLITH / "output.bin").write_bytes(b"damaged")
    assert drive(broken=[MONOLITH])[1] == {MONOLITH: "out of luck"}


@pytest.mark.parametrize("deaths, ends", [(1, True), (2, True), (3, False)])
def test_a_unit_whose_process_was_killed_is_tried_again_as_often_as_under_slurm(drive, deaths, ends):
    machine, failed = drive(killed={MONOLITH: deaths})
    assert machine.order.count(MONOLITH) == min(deaths + 1, FRUITLESS) == 3 - (deaths == 1)
    assert failed == ({} if ends else {MONOLITH: "the process died without a word"})


@pytest.mark.parametrize(
    ("words", "reason"), [("error: /x: no room\n", "/x: no room"), ("", "the process died without a word")]
)
def test_a_process_that_could_leave_no_record_is_reported_with_its_last_error(tmp_path, words, reason):
    driver = EmbeddedDriver([], RunDir(tmp_path), None, 0, [])
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/17_0_log.out").write_text(f"note\n{words}")
    assert driver._last_error(JobId("17")) == reason
