"""What `status` says of living jobs, on a real Slurm without accounting, and where nobody answers."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from hpcddm.runs.unit_keys import expert_key
from tests.real.endless import is_training, prepare, slurm, submit, wait_for
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
FIRST, SECOND = expert_key(0), expert_key(1)
SITE = "testbed-partner"


@pytest.fixture(scope="module")
def watched(partner, tmp_path_factory):
    """A run with one expert that trains and one that waits for it; the run and both jobs."""
    run = prepare(tmp_path_factory.mktemp("watched"), SITE)
    arrays = [submit(run, FIRST, SITE, partner)]
    arrays.append(submit(run, SECOND, SITE, partner, after=(arrays[0],)))
    said = run.root / "followed"
    command = [sys.executable, "-m", "hpcddm.cli", "logs", str(run.root), FIRST, "--follow"]
    with open(said, "w") as output, subprocess.Popen(command, stdout=output) as following:
        try:
            wait_for(lambda: is_training(run, FIRST))
            yield run, *(f"{array}_0" for array in arrays)
            assert following.wait(30) == 0, "the unit is stopped, and its log still followed"
        finally:
            slurm(partner, "scancel", *arrays)
            following.kill()
    words = ["waiting for attempt 1", "attempt 1 ended: requeue (SIGUSR2)", "saved at", "attempt 2 ended: stopped"]
    assert all(word in said.read_text() for word in words), said.read_text()


@pytest.fixture(scope="module")
def nobody(partner, tmp_path_factory):
    """A SLURM_CONF of a cluster whose controller is down."""
    path = tmp_path_factory.mktemp("down") / "slurm.conf"
    with open(partner) as file:
        path.write_text(re.sub("(?m)^SlurmctldPort=.*", "SlurmctldPort=9", file.read()))
    return str(path)


def rows(run, conf, **environment):
    done = hpcddm("status", run.root, "--json", SLURM_CONF=conf, **environment)
    assert done.returncode == 0, done.stderr
    return {row["unit"]: row for row in json.loads(done.stdout)["units"]}


def test_running_and_pending_with_everything_that_is_known(watched, partner):
    run, job, _ = watched
    # The first sign of life has no pace yet.
    wait_for(lambda: rows(run, partner)[FIRST]["rate"])
    first, second = (rows(run, partner)[key] for key in (FIRST, SECOND))
    assert (first["state"], first["job"], first["attempts"]) == ("running", job, 1)
    assert re.fullmatch(r"p\[\d+[-,]\d+\]", first["where"])
    assert first["total"] == 8_000_000 and first["step"] > 0 and first["rate"] > 0 and first["seconds_left"] > 0
    assert (second["state"], second["reason"]) == ("pending", "waits for the jobs before it")


def test_a_held_job_is_held_and_the_command_that_is_told_releases_it(watched, partner):
    run, _, job = watched
    slurm(partner, "scontrol", "hold", job)
    second = rows(run, partner)[SECOND]
    assert second["state"] == "held" and second["reason"].startswith("JobHeld")
    slurm(partner, *shlex.split(second["next"]))
    assert rows(run, partner)[SECOND]["state"] == "pending"


def test_with_the_controller_down_only_the_heartbeat_is_believed(watched, nobody):
    run, job, _ = watched
    found = rows(run, nobody)
    assert (found[FIRST]["state"], found[FIRST]["reason"]) == ("running", "by its heartbeat")
    assert found[SECOND]["state"] == "unknown" and "does not answer" in found[SECOND]["reason"]


def test_a_requeue_is_seen_as_one_and_never_as_anything_else(watched, partner):
    run, job, _ = watched
    slurm(partner, "scancel", "--signal=USR2", job)
    seen = []
    while not is_training(run, FIRST, 2):
        row = rows(run, partner)[FIRST]
        seen.append((row["state"], row["reason"]))
        assert len(seen) < 200
    assert {"requeued"} < {state for state, _ in seen} <= {"running", "starting", "stopping", "requeued"}, seen
    again = rows(run, partner)[FIRST]
    assert (again["state"], again["attempts"]) == ("running", 2) and again["saved_images"] > 0


def test_stopped_by_the_file_and_cancelled_before_it_began_and_never_done_in_silence(watched, partner, nobody):
    run, job, waiting = watched
    slurm(partner, "scancel", waiting)
    run.stop.touch()
    first = wait_for(lambda: (row := rows(run, partner)[FIRST])["state"] == "stopped" and row, 60)
    assert first["next"] == f"rm {run.root}/STOP && hpcddm retry {run.root}"
    # For half a minute after its submission it might still be on its way.
    second = wait_for(lambda: (row := rows(run, partner)[SECOND])["state"] == "unknown" and row, 60)
    assert waiting in second["reason"]
    found = rows(run, nobody)
    assert found[FIRST]["state"] == "stopped" and found[SECOND]["state"] == "unknown"
