"""A node whose jobs do not see the run swallows them within a second; it is named and avoided, on a real Slurm."""

import json
import os
import re
import subprocess

import pytest

from hpcddm.runs.unit_keys import expert_key
from tests.real.endless import is_training, prepare, slurm, submit, wait_for, write_site
from tests.real.storm import Storm
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
KEY = expert_key(0)
BLIND = 'mount -t tmpfs none "$0" && exec slurmd -D -N "$1"'


@pytest.fixture
def place(home, tmp_path):
    """A run, its site, and a node that cannot see the run; all is mended in the end."""
    site = write_site(tmp_path)
    run, hand = prepare(tmp_path, str(site)), Storm(tmp_path, home, 0)
    nodes = sorted(set(slurm(home, "sinfo", "-h", "-N", "-p", "main", "-o", "%N").split()))
    blind, others = nodes[-1], ",".join(nodes[:-1])
    old = hand.daemon("slurmd", "-N", blind)
    old.terminate()
    old.wait(30)
    command = ["unshare", "-m", "bash", "-c", BLIND, str(run.root), blind]
    daemon = subprocess.Popen(command, env=os.environ | {"SLURM_CONF": home}, stderr=subprocess.DEVNULL, cwd="/")
    try:
        yield run, site, blind, others
    finally:
        hpcddm("cancel", run.root, "--now", SLURM_CONF=home)
        daemon.terminate()
        daemon.wait(30)
        # It also resumes nodes that are still drained.
        hand.repair()


def test_a_node_that_cannot_see_the_run_is_named_and_avoided(place, home):
    run, site, blind, others = place
    slurm(home, "scontrol", "update", f"NodeName={others}", "State=DRAIN", "Reason=test")
    array = submit(run, KEY, str(site), home)
    wait_for(lambda: "JobState=FAILED" in slurm(home, "scontrol", "show", "job", "-o", str(array)), 60)
    slurm(home, "scontrol", "update", f"NodeName={others}", "State=RESUME")

    rows = json.loads(hpcddm("status", run.root, "--json", SLURM_CONF=home).stdout)["units"]
    reason = next(row["reason"] for row in rows if row["unit"] == KEY)
    # Slurm says 0:53, and since some version 1:0, where a job cannot write its output.
    assert f"ended on {blind} after" in reason
    assert re.search(r"before Python began \(FAILED, exit code (0:53|1:0)\)", reason)

    again = hpcddm("retry", run.root, KEY, SLURM_CONF=home)
    assert again.returncode == 0, again.stderr
    assert f"ended on {blind}" in again.stdout and "Jobs avoid it from now on" in again.stdout
    job = re.search(r"^job (\d+)", again.stdout, re.MULTILINE)[1]
    assert f"ExcNodeList={blind} " in slurm(home, "scontrol", "show", "job", "-o", job)
    wait_for(lambda: is_training(run, KEY), 240)
