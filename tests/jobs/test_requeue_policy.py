"""What the batch script is told to do after an attempt: every way in which one can end."""

import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from hpcddm.jobs import requeue_policy
from hpcddm.jobs.attempt import BEGUN, ENDED, VERDICT, list_attempts
from hpcddm.jobs.attempt_records import AttemptRecord
from hpcddm.jobs.failure_cause import Cause
from hpcddm.jobs.fruitless_attempts import FRUITLESS, limit_unrecorded
from hpcddm.jobs.job_end import JobEnd
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.node_faults import MAX_FAULTS
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.outcome import Outcome, Verdict
from hpcddm.jobs.requeue_policy import decide_requeue
from hpcddm.jobs.spec import Spec
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir

KEY, TOKEN = "train/expert-00", "0123456789ab"
RUNNING = "JobId=7 JobState=RUNNING Reason=None Restarts={restart} PreemptTime=None"
STOPPED = {"outcome": "stopped", "reason": "SIGTERM"}
CRASHED = {"outcome": "failed", "reason": "RuntimeError: no luck"}


class Unit:
    """One unit of a run, whose attempts are written down as their processes would."""

    def __init__(self, root, **spec):
        self.run, self.restart = RunDir(root / "run"), -1
        settings = {"requeue": "scontrol", "signal_lead_seconds": 120} | spec
        Spec(KEY, [], {}, experiment={}, resources={}, **settings).write(self.run)
        self.map = self.run.jobs / f"{TOKEN}.json"
        self.map.parent.mkdir()
        self.map.write_text(json.dumps({"specs": [f"../specs/{KEY}.json"]}))

    def state(self, images, **saved):
        folder = self.run.unit(KEY) / "state" / f"images-{images:012d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"images": images, "trajectory": "f"} | saved))

    def open_attempt(self, restart, token=TOKEN):
        return open_attempt(self.run.logs(KEY), Ranks(0, 0, 1, 1, f"slurm-x-{token}-7_0.{restart}"))

    def attempt(
        self, ended=None, begun=None, code=1, job=RUNNING, slot=3600, reached=None, words=(), trajectory="f", srun=""
    ):
        """The next execution of the job and its verdict: (decision, event, reason); srun: its messages."""
        self.restart += 1
        if srun:
            (self.run.jobs / f"7_0.{self.restart}.srun").write_text(srun)
        if reached is not None:
            self.state(reached, trajectory=trajectory, attempt=len(list_attempts(self.run.logs(KEY))) + 1)
        if ended is not None or begun is not None:
            own = self.open_attempt(self.restart)
            if begun is not None:
                (own.folder / BEGUN).write_text(json.dumps({"images": begun, "trajectory": "f", "time": 0}))
            if ended:
                (own.folder / ENDED).write_text(json.dumps(ended))
        return self.verdict(code, job, slot, words)

    def refused(self, node="h2", job=None):
        """The next execution, whose ranks srun could not start on a node, and its verdict."""
        return self.attempt(None, code=167, job=job or partition(**FOUR), srun=expired(node))

    def verdict(self, code=1, job=RUNNING, slot=3600, words=(), as_program=False):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "PATH": "/usr/bin:/bin"}
        slurm |= {"SLURM_JOB_NAME": f"x-{TOKEN}", "SLURM_RESTART_COUNT": str(self.restart)}
        slurm |= {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "h1,h2"}
        slurm |= {"HPCDDM_ENDS": str(time.time() + slot), "HPCDDM_STARTED": str(time.time() - 10)}
        arguments, text = [str(self.map), str(code), *words], job.format(restart=self.restart)
        if as_program:
            command = [sys.executable, "-m", "hpcddm.jobs.requeue_policy", *arguments]
            said = subprocess.run(command, env=slurm, input=text, capture_output=True, text=True, check=True).stdout
        else:
            printed, here = io.StringIO(), mock.patch.multiple(sys, argv=["", *arguments], stdin=io.StringIO(text))
            with mock.patch.dict(os.environ, slurm, clear=True), here, redirect_stdout(printed):
                requeue_policy.main()
            said = printed.getvalue()
        decision, event, unit, self.changes, reason = said.rstrip("\n").split("|")
        assert unit == KEY
        return decision, event, reason

    def journal(self, units):
        """The journal of the run, with the submission of these units."""
        journal = Journal(self.run.journal)
        token = journal.record_intent("slurm", "north", units, "x")
        self.run.journal.write_text(self.run.journal.read_text().replace(token, TOKEN))
        return journal

    def record(self):
        return json.loads((self.run.logs(KEY) / f"attempt-{self.restart + 1}" / VERDICT).read_text())


@pytest.fixture
def unit(tmp_path):
    """A unit whose site lets jobs requeue themselves."""
    return Unit(tmp_path)


WAITING = {"outcome": "waiting", "reason": "it cannot start: train/expert-00 is not complete"}
FULL = {"outcome": "failed", "reason": "x: cannot save, 0 bytes are free", "final": True}
LEAVES = {"ended": STOPPED, "begun": 0, "reached": 64}
COMPLETING = "JobState=COMPLETING Reason={} Restarts={{restart}} PreemptTime={}"
REFUSAL = ("requeue", "Requested operation is disabled")
AT_NINE = "2026-11-20T09:03:12"
ENDS = {
    "complete": ({"ended": {"outcome": "complete"}, "begun": 0, "code": 0}, ("complete", "", "")),
    "told to leave": (LEAVES, ("requeue", "", "SIGTERM")),
    "Slurm refuses to requeue": (LEAVES | {"words": REFUSAL}, ("by hand", "stopped", "is disabled.*submit again")),
    "the user must mend it": ({"ended": FULL, "begun": 0}, ("failed", "stopped", "x: cannot save, 0 bytes are free$")),
    "inputs are missing": ({"ended": WAITING}, ("waiting", "", "")),
    "scancel while it waits": ({"ended": WAITING, "job": COMPLETING.format("None", "None")}, ("cancelled", "", "")),
    "scancel": (LEAVES | {"job": COMPLETING.format("None", "None")}, ("cancelled", "", "")),
    "lost node": (LEAVES | {"job": COMPLETING.format("NodeDown", "None")}, ("requeue", "", "")),
    "time limit": (LEAVES | {"job": COMPLETING.format("TimeLimit", "None")}, ("requeue", "", "")),
    "preemption": (LEAVES | {"job": COMPLETING.format("None", AT_NINE)}, ("requeue", "", "")),
    "in grace": (LEAVES | {"job": RUNNING.replace("Time=None", f"Time={AT_NINE}")}, ("requeue", "", "")),
    "no answer": (LEAVES | {"job": ""}, ("requeue", "", "")),
    "requeued by Slurm": ({"begun": 0, "job": RUNNING.replace("{restart}", "9")}, ("superseded", "", "")),
}


@pytest.mark.parametrize("attempt, expected", ENDS.values(), ids=ENDS)
def test_every_end_of_an_attempt_has_its_decision(unit, attempt, expected):
    decision, event, reason = unit.attempt(**attempt)
    assert (decision, event) == expected[:2] and re.search(expected[2], reason), reason


def test_the_verdict_is_a_program_whose_record_says_when_the_job_began_and_ended(unit):
    unit.open_attempt(0)
    unit.restart = 0
    assert unit.verdict(0, as_program=True)[0] == "requeue"
    record = unit.record()
    assert 9 < record["ended"] - record["started"] < 60 and record["exit_code"] == 0


def test_a_unit_that_was_cancelled_or_stopped_waits_for_nothing(unit):
    unit.run.stop.touch()
    decision, _, reason = unit.attempt(**LEAVES)
    assert decision == "stopped" and "STOP" in reason and "submit again" in reason
    assert unit.attempt(WAITING)[0] == "stopped"
    unit.journal([KEY]).record_cancelled(TOKEN, [KEY])
    assert unit.attempt(WAITING)[0] == "cancelled"


def test_a_longer_slot_is_asked_for_by_a_new_job_for_only_operators_may_raise_a_limit(tmp_path):
    unit = Unit(tmp_path, raise_on_retry={"minutes": 1.5, "memory_gb": 2})
    job = RUNNING + " TimeLimit=00:20:00 MinMemoryNode=4G"
    decision, _, reason = unit.attempt(STOPPED, begun=0, job=job, slot=10)
    assert (decision, reason) == ("resubmit", "SIGTERM; asks for 30 minutes now")
    assert unit.changes == "--mem=4096M --time=30"


def test_a_unit_that_waits_no_longer_asks_for_the_user_with_the_reason(unit):
    unit.restart, reason = 0, "cluster annex is silent"
    assert unit.verdict(words=("wait", reason)) == ("by hand", "stopped", reason)


def test_who_was_cancelled_through_us_does_not_come_back_whatever_slurm_knows_of_it(unit):
    journal = unit.journal([KEY, "train/expert-01"])
    journal.record_cancelled(TOKEN, ["train/expert-01"])
    assert unit.attempt(**LEAVES)[0] == "requeue"
    journal.record_cancelled(TOKEN, [KEY])
    assert unit.attempt(STOPPED, begun=64, reached=128)[::2] == ("cancelled", "by hpcddm cancel")
    journal.record_not_cancelled(TOKEN, [KEY])
    assert unit.attempt(STOPPED, begun=128, reached=192)[0] == "requeue"


def test_an_execution_that_outlived_its_node_does_not_requeue_its_successor(unit):
    unit.attempt(STOPPED, begun=0)
    unit.open_attempt(1)
    assert unit.verdict()[0] == "superseded"


def test_an_execution_that_was_cut_off_early_leaves_no_attempt_that_its_successor_would_bow_to(unit):
    successor, unit.restart = unit.open_attempt(1), 0
    assert unit.verdict(job="")[0] == "superseded"
    assert not successor.is_superseded() and len(list(unit.run.logs(KEY).iterdir())) == 1


def test_states_of_other_settings_and_copied_ones_are_no_progress(unit):
    copied = unit.run.unit(KEY) / "state" / "images-000000000064.keep"
    copied.mkdir(parents=True)
    (copied / "state.json").write_text('["no state"]')
    said = [unit.attempt(CRASHED, begun=0, reached=900, trajectory="other")]
    said += [unit.attempt(CRASHED, begun=0) for _ in range(FRUITLESS - 1)]
    assert said[-1][0] == "gave up"


def test_there_is_no_limit_while_there_is_progress(unit):
    for number in range(3 * FRUITLESS):
        assert unit.attempt(CRASHED, begun=64 * number, reached=64 * (number + 1))[0] == "requeue"


def test_attempts_without_progress_stop_the_unit_with_the_last_reason(unit):
    said = [unit.attempt(CRASHED, begun=0) for _ in range(FRUITLESS)]
    assert [one[0] for one in said] == ["requeue"] * (FRUITLESS - 1) + ["gave up"]
    assert said[-1][1] == "stopped" and "without progress" in said[-1][2] and "no luck" in said[-1][2]


FRUITLESS_WAYS = {
    "dies before its first step": {"code": 137},
    "a slot too short for a step": {"ended": {"outcome": "stopped", "reason": "SIGUSR2"}, "code": 0, "slot": 100},
    "an earlier state that nobody can use": {"ended": CRASHED, "begun": 0},
}


@pytest.mark.parametrize("attempt", FRUITLESS_WAYS.values(), ids=FRUITLESS_WAYS)
def test_what_counts_as_no_progress(unit, attempt):
    unit.state(1000, attempt=99)
    assert [unit.attempt(**attempt)[0] for _ in range(FRUITLESS)][-1] == "gave up"


def test_progress_in_between_starts_the_count_anew(unit):
    said = [unit.attempt(CRASHED, begun=begun, reached=reached)[0] for begun, reached in PROGRESS]
    assert said == ["requeue"] * 5 + ["gave up"]


PROGRESS = [(0, None), (0, None), (0, 64), (64, None), (64, None), (64, None)]


def test_a_rank_that_failed_by_itself_counts_though_another_left_while_it_waited(unit):
    srun = "srun: error: h1: task 0: Exited with exit code 1\nsrun: error: h1: task 1: Exited with exit code 75\n"
    assert [unit.attempt(None, code=75, srun=srun)[0] for _ in range(FRUITLESS)][-1] == "gave up"


def test_an_error_near_the_end_of_a_slot_is_not_replaced_by_the_time_limit(unit):
    said = [unit.attempt(CRASHED, job=f"{RUNNING} TimeLimit=00:10:00", slot=60) for _ in range(FRUITLESS)]
    assert said[-1][0] == "gave up" and "no luck" in said[-1][2] and "minutes" not in said[-1][2]


def test_whoever_is_cancelled_on_a_full_disk_is_cancelled(unit):
    unit.open_attempt(0)
    with mock.patch.object(requeue_policy, "write_error", return_value=OSError(28, "No space left on device")):
        decision, _, _ = unit.attempt(code=143, job=RUNNING.replace("RUNNING", "COMPLETING"))
    assert decision == "cancelled"


LEFT = "srun: error: h1: task 1: Exited with exit code 75\nsrun: error: h1: task 0: Killed\n"
"""Messages of srun about a rank that was told to stop while it waited for rank 0."""


@pytest.mark.parametrize(
    ("ended", "code", "srun"), [(STOPPED, 0, ""), (None, 140, ""), (None, 143, ""), (None, 137, LEFT)]
)
def test_who_is_ended_from_outside_before_its_first_step_does_not_count(unit, ended, code, srun):
    assert {unit.attempt(ended, code=code, srun=srun)[0] for _ in range(2 * FRUITLESS)} == {"requeue"}


def test_an_error_that_persists_ends_the_unit_whichever_rank_meets_it_and_whoever_records_first(unit):
    own = unit.open_attempt(0)
    own.ranks = Ranks(1, 1, 2, 1, own.owner)
    own.results["final"] = True
    own.report(Outcome.FAILED, "OSError: [Errno 28] No space left on device", 1)
    decision, _, reason = unit.attempt()
    assert (decision, "No space left" in reason) == ("failed", True)


def test_ranks_that_a_full_disk_silenced_are_not_said_to_have_lacked_memory(unit):
    unit.open_attempt(0)
    with mock.patch.object(requeue_policy, "write_error", return_value=OSError(28, "No space left on device")):
        decision, _, reason = unit.attempt(code=137, srun="srun: error: h1: task 0: Killed\n")
    assert (decision, "memory" in reason, "No space left" in reason) == ("failed", False, True)


def expired(node):
    """Messages of srun about a node that refused a launch."""
    return f"""srun: error: Task launch for StepId=7.0 failed on node {node}: Job credential expired
srun: error: Application launch failed: Job credential expired
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
srun: error: h9: task 0: Killed
"""


def partition(**states):
    """Words of scontrol and of sinfo about a job that avoids h7 in a partition with these nodes."""
    node = "NodeMemory=8000 PartitionTime=1:00:00 NodeName={} NodeState={} NodeKind=(null)|gpu:4|4|8000"
    return "\n".join([RUNNING + " ExcNodeList=h7", *(node.format(*item) for item in states.items())])


FOUR = {"h1": "mixed", "h2": "mixed", "h3": "idle", "h4": "idle"}


def test_a_node_that_refuses_launches_is_avoided_and_does_not_count_against_the_unit(unit):
    for _ in range(2):
        unit.attempt(CRASHED, begun=0, job=partition(**FOUR))
    assert unit.changes == ""
    for changes in ("ExcNodeList=h7,h2", "ExcNodeList=h7,h2 StartTime=now+15"):
        decision, _, reason = unit.refused()
        assert decision == "requeue" and "srun could not start the ranks on h2: Job credential expired" in reason
        assert unit.changes == changes and "the next attempt avoids h2" in reason
        record = unit.record()
        assert (record["outside"], record["by_slurm"], record["nodes"]) == (True, True, ["h2"])
    # It cannot start by its own fault, which nodes do not hide.
    decision, _, reason = unit.attempt(CRASHED, job=partition(**FOUR))
    assert decision == "gave up" and f"{FRUITLESS} attempts without progress; the last one: RuntimeError" in reason


AT_0, AT_64 = {"images": 0}, {"images": 64}
BY_SLURM = {"decision": "requeue", "outside": True, "by_slurm": True}
LAST = JobEnd(1, {}, 0, None, 0.0)
REFUSED = replace(LAST, cause=Cause("srun could not begin", is_outside=True))


def test_a_unit_that_only_nodes_end_stops_in_the_end(tmp_path):
    verdict = AttemptRecord(1, tmp_path, {}, {}, {}, BY_SLURM, None)
    for number, decision in ((MAX_FAULTS - 1, Outcome.REQUEUE), (MAX_FAULTS, Outcome.GAVE_UP)):
        decided, reason = decide_requeue("scontrol", [verdict] * (number - 1) + [replace(verdict)], REFUSED, 0, [])
        assert decided == decision, reason
    assert f"{MAX_FAULTS} attempts without progress, ended by nodes or by Slurm and not by the unit" in reason


def test_a_partition_never_runs_dry(unit):
    unit.refused(job=partition(h1="mixed", h2="mixed"))
    assert unit.changes == ""
    unit.refused(job=partition(h1="mixed", h2="mixed", h3="down*", h4="drained"))
    assert "ExcNodeList" not in unit.changes
    for node in ("h3", "h4"):
        unit.refused(node)
        assert unit.changes.split()[0] == f"ExcNodeList=h7,{node}"


def test_a_site_may_forbid_to_avoid_nodes_and_to_come_back(tmp_path):
    unit = Unit(tmp_path, max_excluded_nodes=0)
    assert unit.refused()[0] == "requeue" and unit.changes == ""
    assert Unit(tmp_path / "other", requeue="none").attempt(**LEAVES)[0] == "by hand"


def test_who_submits_itself_anew_tells_sbatch_which_nodes_to_avoid(tmp_path):
    unit = Unit(tmp_path, requeue="resubmit")
    assert [unit.refused()[0] for _ in range(2)] == ["resubmit"] * 2
    assert unit.changes == "--exclude=h7,h2 --begin=now+15"
    assert unit.attempt(**LEAVES, job=partition(**FOUR))[0] == "resubmit"
    assert unit.changes == "--exclude=h7,h2"


def test_who_is_killed_while_a_node_of_its_job_is_down_does_not_count(unit):
    job = partition(h1="mixed", h2="down*", h3="idle", h4="idle")
    _, _, reason = unit.attempt(None, code=137, job=job)
    assert "h2 does not respond" in reason and unit.record()["by_slurm"]
    unit.attempt(None, code=137, job=partition(h1="mixed", h2="mixed", h3="down*", h4="idle"))
    assert not unit.record()["by_slurm"], "a node that is not of its job"


def test_the_next_execution_that_slurm_starts_by_itself_avoids_the_node_that_died(unit):
    job = partition(h1="mixed", h2="down*", h3="idle", h4="idle").replace("{restart}", "9")
    lost = "srun: error: Node failure on h2\n"
    decision, _, reason = unit.attempt(STOPPED, begun=0, code=0, job=job, srun=lost)
    assert decision == "superseded" and "Slurm lost h2" in reason
    assert unit.changes == "ExcNodeList=h7,h2" and unit.record()["nodes"] == ["h2"]


def test_earlier_submissions_do_not_count(unit):
    for number in range(FRUITLESS):
        unit.open_attempt(number, token="aaaaaaaaaaaa")
    assert unit.attempt(CRASHED, begun=0)[0] == "requeue"


@pytest.mark.parametrize(("way", "flag"), [("scontrol", "Comment="), ("resubmit", "--comment=")])
def test_attempts_that_an_ill_disk_does_not_record_wait_longer_and_end(tmp_path, way, flag, monkeypatch):
    unit, ill = Unit(tmp_path, requeue=way), OSError(5, "Input/output error")
    monkeypatch.setattr(requeue_policy, "open_attempt", mock.Mock(side_effect=ill))
    monkeypatch.setattr(requeue_policy, "write_error", lambda folder: ill)
    comments, waits = ["(null)"], []
    for _ in range(FRUITLESS - 1):
        decision, event, reason = unit.attempt(job=f"{RUNNING} Comment={comments[-1]}")
        assert (decision, event) == ("requeue" if way == "scontrol" else way, "")
        assert "could leave no record" in reason
        words = dict(word.lstrip("-").split("=", 1) for word in unit.changes.split())
        comments.append(words[flag.strip("-=")])
        waits.append(words["StartTime" if way == "scontrol" else "begin"])
    assert waits == ["now+15", "now+30"]
    decision, event, reason = unit.attempt(job=f"{RUNNING} Comment={comments[-1]}")
    assert (decision, event) == ("gave up", "stopped")
    assert f"{FRUITLESS} attempts in a row" in reason and str(unit.run.logs(KEY)) in reason


@pytest.mark.parametrize("way", ["scontrol", "resubmit"])
def test_a_unit_whose_attempts_can_never_be_recorded_ends_at_once_with_the_folder(tmp_path, way):
    unit = Unit(tmp_path, requeue=way)
    unit.run.logs(KEY).parent.mkdir(parents=True)
    # To root, a file in its place is what a folder without permission is to others.
    unit.run.logs(KEY).touch()
    decision, event, reason = unit.attempt()
    assert (decision, event, str(unit.run.logs(KEY)) in reason) == ("failed", "stopped", True)


def test_a_recorded_attempt_ends_the_count_of_those_without_a_record(unit):
    decision, _, _ = unit.attempt(CRASHED, job=f"{RUNNING} Comment=unrecorded-attempts:2")
    assert (decision, unit.changes) == ("requeue", "Comment=")
    decision, _, reason = unit.attempt(CRASHED, job=f"{RUNNING} Comment=mine")
    assert (decision, unit.changes) == ("requeue", "")


def test_the_users_own_comment_stays_and_a_longer_wait_too():
    verdict = Verdict(Outcome.REQUEUE, "why", "StartTime=now+480")
    first = limit_unrecorded(verdict, "ill disk", Path("logs"), "project-x")
    assert first.changes == "StartTime=now+480 Comment=project-x,unrecorded-attempts:1"
    again = limit_unrecorded(verdict, "ill disk", Path("logs"), "project-x,unrecorded-attempts:2")
    assert again.decision == Outcome.GAVE_UP
    odd = limit_unrecorded(verdict, "ill disk", Path("logs"), "a|b*$(c)")
    assert odd.changes.endswith(" Comment=abc,unrecorded-attempts:1"), "words and fields of the batch script"
    after = limit_unrecorded(verdict, "", Path("logs"), "project-x,unrecorded-attempts:1")
    assert after.changes == "StartTime=now+480 Comment=project-x"


def test_a_verdict_that_cannot_be_written_counts_too(unit):
    (unit.open_attempt(0).folder / VERDICT).mkdir()
    decision, _, reason = unit.attempt(job=f"{RUNNING} Comment=unrecorded-attempts:2")
    assert (decision, "could leave no record" in reason) == ("gave up", True)


@pytest.mark.parametrize(
    ("key", "words"), [("draw/a", "such a unit starts again each time"), (KEY, "limit of 10 minutes")]
)
def test_a_unit_that_needs_longer_than_its_slot_is_told_which_key(tmp_path, key, words):
    unit = Unit(tmp_path, is_collective=key == KEY)
    ended = {"outcome": "stopped", "reason": "SIGUSR2"}
    said = [unit.attempt(ended, code=0, job=f"{RUNNING} TimeLimit=00:10:00", slot=60) for _ in range(FRUITLESS)]
    decision, _, reason = said[-1]
    assert decision == "gave up" and words in reason and reason.endswith("--resource minutes=20")
