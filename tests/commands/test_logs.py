"""The verb logs: one attempt, all of them, or what comes; and the scheduler's own files where no attempt was opened."""

import json
import subprocess
import sys
import threading
import time

import pytest

from hpcddm.errors.next_step import command
from hpcddm.runs.journal import Journal
from hpcddm.runs.unit_keys import expert_key
from tests.attempts import beat, submitted, write_attempt
from tests.commands.runs import bare_run
from tests.helpers import hpcddm

EXPERTS = [expert_key(0), expert_key(1)]
EXPERT = EXPERTS[0]


@pytest.fixture
def run(tmp_path):
    """A run of which only the stored experiment is there."""
    run = bare_run(tmp_path / "run")
    run.jobs.mkdir()
    return run


def journal(run, scheduler, job, units=EXPERTS):
    return submitted(run, units, job, scheduler, age=0)


def verdict(decision, reason=""):
    return {"decision": decision, "reason": reason, "started": time.time() - 60, "ended": time.time()}


def test_slurm_kept_the_output_of_the_batch_script_and_of_the_rank(run):
    journal(run, "slurm", "17")
    (run.jobs / "17_0.out").write_text("not this element\n")
    (run.jobs / "17_1.out").write_text("python: command not found [/n]\n")
    (run.jobs / "17_1_2.out").write_text("")
    done = hpcddm("logs", run.root, EXPERTS[1], "--rank", 2)
    assert done.exit_code == 0 and f"no attempt at {EXPERTS[1]}" in done.stdout
    assert f"--- {run.jobs}/17_1.out\npython: command not found [/n]\n" in done.stdout
    assert done.stdout.endswith(f"--- {run.jobs}/17_1_2.out\n(empty)\n") and "not this" not in done.stdout
    assert "17_1_2" not in hpcddm("logs", run.root, EXPERTS[1]).stdout


def test_what_nobody_kept_and_an_attempt_that_is_not_there_are_errors(run):
    journal(run, "slurm", "17")
    done = hpcddm("logs", run.root, EXPERT)
    assert done.exit_code == 1 and f"no attempt at '{EXPERT}', and its job 17 left no output" in done.stderr
    assert done.stderr.endswith(f"next: {command('hpcddm', 'status', run.root)}\n")
    (run.jobs / "17_0.out").write_text("kept")
    for number in (1, 0):
        done = hpcddm("logs", run.root, EXPERT, "--attempt", number)
        assert done.exit_code == 2 and f"no attempt at '{EXPERT}'" in done.stderr


def test_a_rank_or_attempt_that_is_not_there_is_told_with_those_that_are(run):
    folder = write_attempt(run, EXPERT, 1)
    (folder / "rank1x.log").write_text("")
    for option, number, words in (
        ("--rank", 7, "rank7.log: no such log; ranks: 0"),
        ("--attempt", 5, f"{EXPERT} has no attempt 5; there are: 1"),
        ("--attempt", 0, f"{EXPERT} has no attempt 0; there are: 1"),
    ):
        done = hpcddm("logs", run.root, EXPERT, option, number)
        assert done.exit_code == 2 and words in done.stderr
    assert f"no attempt at 'router/all'; there are logs of: {EXPERT}" in hpcddm("logs", run.root, "router/all").stderr


def test_a_unit_that_died_on_this_machine_before_it_could_open_an_attempt(run, monkeypatch):
    monkeypatch.setattr("hpcddm.launch.local.launcher.ENTRY", "hpcddm.no_such_module")
    done = hpcddm("run-unit", run.root, "shard/train-000")
    assert done.exit_code == 1 and f"hpcddm logs {run.root} shard/train-000" in done.stderr
    (one,) = Journal(run.journal).submissions()
    (run.jobs / f"{one.job}_0_log.out").write_text("No module named torch\n")
    assert hpcddm("logs", run.root, "shard/train-000").stdout.endswith("No module named torch\n")


def test_a_newer_job_that_died_before_python_comes_before_an_older_attempt(run):
    old = submitted(run, EXPERTS, "17")
    write_attempt(run, EXPERT, 1, old, "17_0", verdict=verdict("failed"))
    assert "attempt 1 says this" in hpcddm("logs", run.root, EXPERT).stdout
    submitted(run, EXPERTS, "18", age=100)
    assert "attempt 1 says this" in hpcddm("logs", run.root, EXPERT).stdout, "it has not left anything yet"
    (run.jobs / "18_0.out").write_text("module: not found\n")
    said = hpcddm("logs", run.root, EXPERT).stdout
    assert said.endswith("module: not found\n") and "--attempt 1" in said and "says this" not in said
    assert hpcddm("logs", run.root, EXPERT, "--attempt", 1).stdout.endswith("attempt 1 says this\n")


def test_all_attempts_stand_in_order_each_with_how_it_ended(run):
    token = submitted(run, EXPERTS)
    ended = {"outcome": "stopped", "reason": "SIGUSR2", "ended": time.time() - 90}
    write_attempt(run, EXPERT, 1, token, "17_0", ended=ended, verdict=verdict("requeue", "SIGUSR2"))
    write_attempt(run, EXPERT, 2, token, "17_0", heartbeat=beat(age=900))
    (write_attempt(run, EXPERT, 3, token, "17_0") / "rank0.log").unlink()
    write_attempt(run, EXPERT, 10, token, "17_0", heartbeat=beat())
    said = hpcddm("logs", run.root, EXPERT, "--all").stdout
    heads = [line.split() for line in said.splitlines() if line.startswith("===")]
    assert [head[2] for head in heads] == ["1", "2", "3", "10"]
    assert said.index("attempt 1 says this") < said.index("attempt 2 says this") < said.index("attempt 10 says this")
    lines = [line for line in said.splitlines() if line.startswith("===")]
    assert lines[0].endswith("stopped, then: requeue (SIGUSR2)") and "on h[1-2]  as job 17_0  ended 20" in lines[0]
    assert lines[1].endswith("no word about its end") and lines[3].endswith("running")
    assert "(no log of rank 0)" in said
    assert hpcddm("logs", run.root, EXPERT, "--all", "--attempt", 1).exit_code == 2


def grow(folder, *texts, pause=0.7, **files):
    for text in texts:
        time.sleep(pause)
        with open(folder / "rank0.log", "ab") as file:
            file.write(text)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def test_following_goes_on_with_the_next_attempt_and_ends_with_the_unit(run):
    token = submitted(run, EXPERTS)
    first = write_attempt(run, EXPERT, 1, token, "17_0", heartbeat=beat())

    def live():
        # A letter of two bytes is torn between two writes.
        stopped = {"outcome": "stopped", "reason": "SIGUSR2", "ended": time.time()}
        grow(first, "half \u00e9".encode()[:-1], "\u00e9 whole\n".encode()[1:], ended=stopped)
        time.sleep(0.7)
        grow(first, verdict=verdict("requeue", "SIGUSR2"))
        time.sleep(0.7)
        second = write_attempt(run, EXPERT, 2, token, "17_0")
        grow(second, b"the end\n", ended={"outcome": "complete"}, verdict=verdict("complete"))

    thread = threading.Thread(target=live)
    thread.start()
    started = time.time()
    said = hpcddm("logs", run.root, EXPERT, "--follow").stdout
    thread.join()
    assert time.time() - started < 20
    words = ["attempt 1 says this\nhalf \u00e9 whole\n", "--- attempt 1 ended: requeue (SIGUSR2)"]
    words += ["waiting for attempt 2", "attempt 2 says this\nthe end\n", "--- attempt 2 ended: complete"]
    places = [said.find(word) for word in words]
    assert -1 not in places and places == sorted(places), said


@pytest.mark.parametrize("decision", ["gave up", "failed", "cancelled", "by hand", "stopped", None])
def test_following_ends_with_a_unit_that_does_not_come_back(run, decision):
    """On this machine, where nobody decides, with the word of rank 0."""
    if decision:
        write_attempt(run, EXPERT, 1, submitted(run, EXPERTS), "17_0", verdict=verdict(decision, "why"))
    else:
        write_attempt(run, EXPERT, 1, ended={"outcome": "failed", "reason": "why"})
    said = hpcddm("logs", run.root, EXPERT, "--follow").stdout
    assert said.endswith(f"--- attempt 1 ended: {decision or 'failed'} (why)\n") and "attempt 1 says this" in said


def test_following_shows_the_end_of_a_long_log_and_leaves_quietly_on_ctrl_c(run):
    folder = write_attempt(run, EXPERT, 1, submitted(run, EXPERTS), "17_0", heartbeat=beat(age=900))
    (folder / "rank0.log").write_text("".join(f"line {number}\n" for number in range(20000)))
    command = [sys.executable, "-m", "hpcddm.cli", "logs", str(run.root), EXPERT, "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = ""
    while "no sign of life" not in said:
        said += process.stdout.readline()
    process.send_signal(2)
    rest, complaint = process.communicate(timeout=20)
    assert (process.returncode, complaint) == (0, "")
    assert "line 19999\n" in said and "line 100\n" not in said


def test_following_waits_for_a_job_that_has_not_begun_and_refuses_what_was_never_submitted(run):
    token = submitted(run, EXPERTS)
    threading.Timer(3.0, write_attempt, (run, EXPERT, 1, token, "17_0"), {"verdict": verdict("failed")}).start()
    said = hpcddm("logs", run.root, EXPERT, "--follow").stdout
    assert "waiting for attempt 1" in said and "attempt 1 says this" in said
    assert hpcddm("logs", run.root, "router/all", "--follow").exit_code == 2


def test_a_stage_with_one_unit_needs_no_unit(run):
    write_attempt(run, "report/all", 1)
    assert "attempt 1 says this" in hpcddm("logs", run.root, "report").output
    several = hpcddm("logs", run.root, "train")
    named = f"train has 3 units; name one: train/monolith, {', '.join(EXPERTS)}"
    assert several.exit_code == 2 and named in several.output
