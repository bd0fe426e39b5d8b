"""What a requeued expert cost, on a real Slurm: our own records against its accounting."""

import json
import os
import subprocess
import time
from contextlib import suppress
from functools import partial

import psutil
import pytest

from hpcddm.runs.unit_keys import expert_key
from tests.real.endless import is_training, prepare, slurm, submit, wait_for
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
EXPERT = expert_key(1)
SECONDS = 3
"""How far our records may be from accounting, for each attempt whose end was recorded."""


@pytest.fixture(scope="module")
def stormy(home, tmp_path_factory):
    """An endless two-node expert that died without a word, was requeued by two signals, and stopped; run and job."""
    run = prepare(tmp_path_factory.mktemp("cost"), "testbed-home")
    array = submit(run, EXPERT, "testbed-home", home)
    job = f"{array}_0"
    try:
        endings = (partial(kill, home), partial(send, home, "USR2"), partial(send, home, "TERM"), stop)
        for number, end in enumerate(endings, 1):
            wait_for(partial(is_training, run, EXPERT, number))
            end(run, job)
        wait_for(lambda: not slurm(home, "squeue", "--noheader", f"--jobs={array}", "--states=R,CG,PD"))
    finally:
        subprocess.run(["scancel", array], env=os.environ | {"SLURM_CONF": home}, check=False)
    return run, job


def send(conf, signal, run, job):
    slurm(conf, "scancel", f"--signal={signal}", job)


def stop(run, job):
    run.stop.touch()


def kill(conf, run, job):
    """End batch script and ranks at once, as the death of a node would: nobody can record anything; then come back."""
    # Long enough for a heartbeat that is not the first one: its time is all that will be known of the end.
    time.sleep(5)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            # Other clusters and testbeds count their jobs from numbers of their own, which may be the same.
            names = ("SLURM_CONF", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
            element = tuple(environment.get(name) for name in names)
            if element == (conf, *job.split("_")) and "slurmstepd" not in process.name():
                process.kill()
    wait_for(lambda: not slurm(conf, "squeue", "--noheader", f"--jobs={job}", "--states=R,CG"))
    slurm(conf, "scontrol", "requeue", job)


def executions(conf, job):
    """Seconds of every execution, the oldest first, as Slurm's accounting has them; none while it is behind."""
    wanted = ["-X", "-D", "-n", "-P", "-j", job, "-S", "now-1hours", "-o", "Start,ElapsedRaw,End"]
    rows = [line.split("|") for line in slurm(conf, "sacct", *wanted).splitlines()]
    if any(end == "Unknown" for _, _, end in rows):
        return []
    return [int(seconds) for _, seconds, _ in sorted(rows)]


def cost(run, conf, *arguments):
    """Where the figures are from, and the attempts at the expert."""
    done = hpcddm("cost", run.root, "--json", *arguments, SLURM_CONF=conf)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["source"], [one for one in found["attempts"] if one["unit"] == EXPERT]


def test_own_records_without_sacct_are_true_to_seconds_and_a_death_is_an_estimate(stormy, home, partner):
    run, job = stormy
    accounted = wait_for(lambda: len(found := executions(home, job)) == 4 and found, 30)
    # The other cluster keeps no accounting, so sacct is out of reach there.
    source, own = cost(run, partner)
    assert source.startswith("the run's own records (sacct does not answer")
    pairs = [(one["seconds"], seconds) for one, seconds in zip(own, accounted, strict=True)]
    assert all(abs(recorded - seconds) <= SECONDS for recorded, seconds in pairs[1:]), pairs
    assert abs(pairs[0][0] - pairs[0][1]) <= 5 * SECONDS, "a guess, but not a wild one"
    assert [one["is_estimate"] for one in own] == [True, False, False, False]
    assert [one["ending"] for one in own] == ["no word", "requeue", "requeue", "stopped"]
    assert [one["cpus"] for one in own] == [2, 2, 2, 2]


def test_sacct_tells_the_same_four_executions(stormy, home):
    run, job = stormy
    source, found = cost(run, home)
    assert [one["seconds"] for one in found] == executions(home, job)
    assert {(one["source"], one["job"], one["cpus"]) for one in found} == {("sacct", job, 2)}
    assert source.startswith("sacct")


def test_what_was_saved_on_a_signal_is_not_wasted_and_what_died_unsaved_is(stormy, home):
    _, found = cost(stormy[0], home)
    assert [one["wasted"] for one in found] == [1, 0, 0, 0]


def test_status_and_logs_say_what_happened(stormy, home):
    run, job = stormy
    rows = json.loads(hpcddm("status", run.root, "--json", SLURM_CONF=home).stdout)["units"]
    (row,) = [row for row in rows if row["unit"] == EXPERT]
    assert (row["state"], row["attempts"], row["job"]) == ("stopped", 4, job)
    assert row["next"] == f"rm {run.root}/STOP && hpcddm retry {run.root}" and row["saved_images"] > 0
    said = hpcddm("logs", run.root, EXPERT, "--all", SLURM_CONF=home).stdout
    heads = [line for line in said.splitlines() if line.startswith("===")]
    words = ("no word about its end", "requeue (SIGUSR2)", "requeue (SIGTERM)", "stopped")
    assert len(heads) == 4 and all(word in head for word, head in zip(words, heads, strict=True)), heads
