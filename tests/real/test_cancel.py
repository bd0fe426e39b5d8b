"""Cancelled jobs save before they leave, and stay away, on a real Slurm."""

import shutil
import subprocess
import sys

import pytest

from hpcddm.jobs.attempt_records import read_records
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import expert_key
from tests.real.endless import is_training, prepare, slurm, submit, wait_for, write_site
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
SAVING, RACING = expert_key(0), expert_key(1)
CANCEL_AFTER_THE_VERDICT_HAS_LOOKED = """#!/bin/bash
# The first answer is older than the user's scancel.
mkdir {tools}/looked 2>/dev/null || exec {scontrol} "$@"
{scontrol} "$@"
{scancel} $3
"""


@pytest.fixture
def run(home, tmp_path):
    """A run at a site that lets jobs requeue themselves; `tools` stand before Slurm's commands in its jobs."""
    site = write_site(tmp_path, signal_lead_seconds=60)
    made = prepare(tmp_path, str(site))
    arrays = [submit(made, key, str(site), home) for key in (SAVING, RACING)]
    yield made
    slurm(home, "scancel", *arrays)


def last(run: RunDir, key: str):
    return read_records(run.logs(key))[-1]


def test_a_cancelled_training_saves_first_and_what_is_cancelled_stays_away(run, home):
    wait_for(lambda: is_training(run, SAVING) and is_training(run, RACING))
    command = [sys.executable, "-m", "hpcddm.cli", "cancel", str(run.root), SAVING]
    with subprocess.Popen(command, env={"SLURM_CONF": home, "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE) as saying:
        said = saying.communicate(timeout=120)[0].decode()
    record = last(run, SAVING)
    assert "gone after" in said and (record.outcome, record.decision) == ("stopped", "cancelled"), said
    assert record.beat.saved_images == record.ended["images"] > 0

    # The user's own scancel, in the moment between the verdict and what follows from it.
    tools = run.root.parent / "tools"
    wrapper = CANCEL_AFTER_THE_VERDICT_HAS_LOOKED.format(
        tools=tools, scontrol=shutil.which("scontrol"), scancel=shutil.which("scancel")
    )
    (tools / "scontrol").write_text(wrapper.replace("$3", f"{last(run, RACING).job}"))
    (tools / "scontrol").chmod(0o755)
    slurm(home, "scancel", "--signal=USR2", last(run, RACING).job)
    wait_for(lambda: (tools / "looked").exists() and not slurm(home, "squeue", "-h", f"--job={last(run, RACING).job}"))
    assert last(run, RACING).decision == "cancelled"
    assert hpcddm("cancel", run.root, SLURM_CONF=home).stdout.startswith("nothing of this is in the queue")
