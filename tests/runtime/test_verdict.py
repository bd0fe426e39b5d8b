"""What the batch script is told to do after an attempt: every way in which one can end."""

import json
import subprocess
import sys
import time

import pytest

from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.attempt import BEGUN, ENDED, VERDICT, attempts, open_attempt
from hpcddm.runtime.environment import Ranks
from hpcddm.runtime.spec import Spec
from hpcddm.runtime.verdict import FRUITLESS, parse_job

KEY, TOKEN = "train/expert-00", "0123456789ab"
RUNNING = "JobId=7 JobState=RUNNING Reason=None Restarts={restart} PreemptTime=None"
STOPPED = {"outcome": "stopped", "reason": "SIGTERM"}
CRASHED = {"outcome": "failed", "reason": "RuntimeError: no luck"}


class Unit:
    """One unit of a run, whose attempts are written down as their processes would."""

    def __init__(self, root, **spec):
        self.run, self.restart = RunDir(root / "run"), -1
        settings = {"requeue": "scontrol", "signal_lead_seconds": 120} | spec
        path = Spec(KEY, {}, {}, [], {}, **settings).write(self.run)
        self.map = self.run.jobs / f"{TOKEN}.json"
        self.map.parent.mkdir()
        self.map.write_text(json.dumps({"specs": [f"../specs/{KEY}.json"]}))
        assert path.exists()

    def attempt(self, ended=None, begun=None, code=1, job=RUNNING, slot=3600, reached=None, words=(), trajectory="f"):
        """The next execution of the job and its verdict: (decision, event, reason)."""
        self.restart += 1
        if reached is not None:
            state = self.run.unit(KEY) / "state" / f"images-{reached:012d}"
            state.mkdir(parents=True)
            saved = {"images": reached, "trajectory": trajectory, "attempt": len(attempts(self.run.logs(KEY))) + 1}
            (state / "state.json").write_text(json.dumps(saved))
        if ended is not None or begun is not None:
            own = open_attempt(self.run.logs(KEY), Ranks(0, 0, 1, 1, f"slurm-x-{TOKEN}-7_0.{self.restart}"))
            if begun is not None:
                (own.folder / BEGUN).write_text(json.dumps({"images": begun, "trajectory": "f", "time": 0}))
            if ended:
                (own.folder / ENDED).write_text(json.dumps(ended))
        return self.verdict(code, job, slot, words)

    def verdict(self, code, job, slot, words=()):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "PATH": "/usr/bin:/bin"}
        slurm |= {"SLURM_JOB_NAME": f"x-{TOKEN}", "SLURM_RESTART_COUNT": str(self.restart)}
        slurm |= {"HPCDDM_ENDS": str(time.time() + slot), "HPCDDM_STARTED": str(time.time() - 10)}
        command = [sys.executable, "-m", "hpcddm.runtime.verdict", self.map, str(code), *words]
        text = job.format(restart=self.restart)
        done = subprocess.run(command, env=slurm, input=text, capture_output=True, text=True, check=True)
        decision, event, unit, self.changes, reason = done.stdout.rstrip("\n").split("|")
        assert unit == KEY
        return decision, event, reason

    def journal(self, units):
        """The journal of the run, with the submission of these units."""
        journal = Journal(self.run.journal)
        token = journal.intend("slurm", "north", units, "x")
        self.run.journal.write_text(self.run.journal.read_text().replace(token, TOKEN))
        return journal

    def record(self):
        return json.loads((self.run.logs(KEY) / f"attempt-{self.restart + 1}" / VERDICT).read_text())


@pytest.fixture
def unit(tmp_path):
    """A unit whose site lets jobs requeue themselves."""
    return Unit(tmp_path)


def test_what_is_complete_is_done(unit):
    assert unit.attempt({"outcome": "complete"}, begun=0, code=0)[0] == "complete"


def test_what_was_told_to_leave_comes_back_and_the_record_says_when_the_job_began_and_ended(unit):
    assert unit.attempt(STOPPED, begun=0, code=0, reached=64) == ("requeue", "", "SIGTERM")
    record = unit.record()
    assert 9 < record["ended"] - record["started"] < 60 and record["exit_code"] == 0


@pytest.mark.parametrize(("way", "decision"), [("scontrol", "requeue"), ("resubmit", "resubmit"), ("none", "by hand")])
def test_the_site_says_how_it_comes_back(tmp_path, way, decision):
    assert Unit(tmp_path, requeue=way).attempt(STOPPED, begun=0, reached=64)[0] == decision


def test_a_requeue_that_slurm_refuses_asks_for_the_user(unit):
    said = unit.attempt(STOPPED, begun=0, reached=64, words=("requeue", "Requested operation is disabled"))
    assert said[:2] == ("by hand", "stopped") and "is disabled" in said[2] and "submit again" in said[2]


def test_what_the_user_must_mend_first_stops_at_once(unit):
    full = {"outcome": "failed", "reason": "x: cannot save, 0 bytes are free", "final": True}
    assert unit.attempt(full, begun=0) == ("failed", "stopped", "x: cannot save, 0 bytes are free")


def test_a_unit_whose_inputs_are_missing_waits_for_them_and_has_not_failed(unit):
    waiting = {"outcome": "waiting", "reason": "it cannot start: train/expert-00 is not complete"}
    assert unit.attempt(waiting)[:2] == ("waiting", "")


def test_a_unit_that_was_cancelled_or_stopped_waits_for_nothing(unit):
    waiting = {"outcome": "waiting", "reason": "it cannot start: train/expert-00 is not complete"}
    job = "JobState=COMPLETING Reason=None Restarts={restart} PreemptTime=None"
    assert unit.attempt(waiting, job=job)[0] == "cancelled"
    unit.run.stop.touch()
    assert unit.attempt(waiting)[0] == "stopped"
    unit.journal([KEY]).cancelled(TOKEN, [KEY])
    assert unit.attempt(waiting)[0] == "cancelled"


def test_a_longer_slot_is_asked_for_by_a_new_job_for_only_operators_may_raise_a_limit(tmp_path):
    unit = Unit(tmp_path, escalate={"minutes": 1.5, "memory_gb": 2})
    job = RUNNING + " TimeLimit=00:20:00 MinMemoryNode=4G"
    decision, _, reason = unit.attempt(STOPPED, begun=0, job=job, slot=10)
    assert (decision, reason) == ("resubmit", "SIGTERM; asks for 30 minutes now")
    assert unit.changes == "--mem=4096M --time=30"


def test_a_unit_that_waits_no_longer_asks_for_the_user_with_the_reason(unit):
    unit.restart = 0
    assert unit.verdict(1, RUNNING, 3600, ("wait", "cluster annex is silent")) == (
        "by hand",
        "stopped",
        "cluster annex is silent",
    )


def test_scancel_is_the_users_word(unit):
    job = "JobState=COMPLETING Reason=None Restarts={restart} PreemptTime=None"
    assert unit.attempt(STOPPED, begun=0, job=job, reached=64)[0] == "cancelled"


def test_who_was_cancelled_through_us_does_not_come_back_whatever_slurm_knows_of_it(unit):
    journal = unit.journal([KEY, "train/expert-01"])
    journal.cancelled(TOKEN, ["train/expert-01"])
    assert unit.attempt(STOPPED, begun=0, reached=64)[0] == "requeue"
    journal.cancelled(TOKEN, [KEY])
    assert unit.attempt(STOPPED, begun=64, reached=128)[::2] == ("cancelled", "by hpcddm cancel")
    journal.kept(TOKEN, [KEY])
    assert unit.attempt(STOPPED, begun=128, reached=192)[0] == "requeue"


@pytest.mark.parametrize(
    "job",
    [
        "JobState=COMPLETING Reason=NodeDown Restarts={restart} PreemptTime=None",
        "JobState=COMPLETING Reason=TimeLimit Restarts={restart} PreemptTime=None",
        "JobState=RUNNING Reason=None Restarts={restart} PreemptTime=2026-11-20T09:03:12",
        "JobState=COMPLETING Reason=None Restarts={restart} PreemptTime=2026-11-20T09:03:12",
        "",
    ],
    ids=["lost node", "time limit", "preemption, in grace", "preemption", "no answer"],
)
def test_the_time_limit_preemption_and_silence_are_not_the_users_word(unit, job):
    assert unit.attempt(STOPPED, begun=0, job=job, reached=64)[0] == "requeue"


def test_what_slurm_has_requeued_itself_is_not_requeued_again(unit):
    assert unit.attempt(None, begun=0, job="JobState=RUNNING Reason=None Restarts=9")[0] == "superseded"


def test_an_execution_that_outlived_its_node_does_not_requeue_its_successor(unit):
    unit.attempt(STOPPED, begun=0)
    open_attempt(unit.run.logs(KEY), Ranks(0, 0, 1, 1, f"slurm-x-{TOKEN}-7_0.1"))
    assert unit.verdict(1, RUNNING, 3600)[0] == "superseded"


def test_an_execution_that_was_cut_off_early_leaves_no_attempt_that_its_successor_would_bow_to(unit):
    unit.restart = 1
    successor = open_attempt(unit.run.logs(KEY), Ranks(0, 0, 1, 1, f"slurm-x-{TOKEN}-7_0.1"))
    unit.restart = 0
    assert unit.verdict(1, "", 3600)[0] == "superseded"
    assert not successor.is_superseded() and len(list(unit.run.logs(KEY).iterdir())) == 1


def test_states_of_other_settings_and_copied_ones_are_no_progress(unit):
    copied = unit.run.unit(KEY) / "state" / "images-000000000064.keep"
    copied.mkdir(parents=True)
    (copied / "state.json").write_text('["no state"]')
    said = [unit.attempt(CRASHED, begun=0, reached=900, trajectory="other")]
    said += [unit.attempt(CRASHED, begun=0) for _ in range(FRUITLESS - 1)]
    assert said[-1][0] == "gave up"


def test_stop_in_the_run_s_folder_ends_the_chain(unit):
    unit.run.stop.touch()
    decision, event, reason = unit.attempt(STOPPED, begun=0, reached=64)
    assert decision == "stopped" and "STOP" in reason and "submit again" in reason


def test_there_is_no_limit_while_there_is_progress(unit):
    for number in range(3 * FRUITLESS):
        assert unit.attempt(CRASHED, begun=64 * number, reached=64 * (number + 1))[0] == "requeue"


def test_attempts_without_progress_stop_the_unit_with_the_last_reason(unit):
    said = [unit.attempt(CRASHED, begun=0) for _ in range(FRUITLESS)]
    assert [one[0] for one in said] == ["requeue"] * (FRUITLESS - 1) + ["gave up"]
    assert said[-1][1] == "stopped" and "without progress" in said[-1][2] and "no luck" in said[-1][2]


def test_progress_in_between_starts_the_count_anew(unit):
    said = [unit.attempt(CRASHED, begun=0), unit.attempt(CRASHED, begun=0), unit.attempt(CRASHED, begun=0, reached=64)]
    said += [unit.attempt(CRASHED, begun=64), unit.attempt(CRASHED, begun=64)]
    assert [one[0] for one in said] == ["requeue"] * 5
    assert unit.attempt(CRASHED, begun=64)[0] == "gave up"


def test_a_state_that_an_earlier_training_left_and_nobody_can_use_is_no_progress(unit):
    state = unit.run.unit(KEY) / "state" / "images-000000001000"
    state.mkdir(parents=True)
    (state / "state.json").write_text(json.dumps({"images": 1000, "trajectory": "f", "attempt": 99}))
    assert [unit.attempt(CRASHED, begun=0)[0] for _ in range(FRUITLESS)][-1] == "gave up"


def test_who_dies_before_its_first_step_counts(unit):
    assert [unit.attempt(None, code=137)[0] for _ in range(FRUITLESS)][-1] == "gave up"


@pytest.mark.parametrize(("ended", "code"), [(STOPPED, 0), (None, 140), (None, 143)])
def test_who_is_ended_from_outside_before_its_first_step_does_not_count(unit, ended, code):
    assert {unit.attempt(ended, code=code)[0] for _ in range(2 * FRUITLESS)} == {"requeue"}


def test_a_slot_that_is_too_short_for_a_step_counts(unit):
    slots = [unit.attempt({"outcome": "stopped", "reason": "SIGUSR2"}, code=0, slot=100) for _ in range(FRUITLESS)]
    assert slots[-1][0] == "gave up"


def test_earlier_submissions_do_not_count(unit):
    for number in range(FRUITLESS):
        open_attempt(unit.run.logs(KEY), Ranks(0, 0, 1, 1, f"slurm-x-aaaaaaaaaaaa-6_0.{number}"))
    assert unit.attempt(CRASHED, begun=0)[0] == "requeue"


def test_what_slurm_says_of_a_job_is_read_word_by_word():
    assert parse_job("JobId=7 JobName=a=b Reason=None odd") == {"JobId": "7", "JobName": "a=b", "Reason": "None"}
