"""The code changes while jobs are in the queue, on a real Slurm: they run what was submitted, and say what that was."""

import json
import os
import signal

import pytest

from hpcddm.jobs.attempt_records import read_records
from hpcddm.launch.submission import store_experiment
from hpcddm.runs import manifest
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.checkouts import break_imports, clone, hpcddm
from tests.helpers import tiny
from tests.real.endless import prepare, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]
KEY = "train/expert-00"
SITE = "{name: north, scheduler: slurm, partition: main, network_interface: lo, resources: {memory_gb: 1, minutes: 20}}"


@pytest.fixture
def killed(home, tmp_path):
    """An expert whose process was killed while it trained, after the checkout was edited; the rest is cancelled."""
    site = tmp_path / "north.yaml"
    site.write_text(SITE)
    run, checkout = prepare(tmp_path, str(site)), clone(tmp_path)
    store_experiment(with_relative_paths(tiny(tmp_path, experts__training__images=16_000), run), run)
    submitted = hpcddm(checkout, "retry", run.root, KEY, "--site", site, SLURM_CONF=home)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    wait_for(lambda: [one for one in read_records(run.logs(KEY)) if one.begun])
    break_imports(checkout)
    os.kill(read_records(run.logs(KEY))[0].owner["pid"], signal.SIGKILL)
    yield run, submitted.stdout
    assert hpcddm(clone(tmp_path / "again"), "cancel", run.root, SLURM_CONF=home).returncode == 0


def test_a_requeued_expert_completes_from_what_was_submitted_and_its_manifest_says_so(killed):
    run, said = killed
    made = wait_for(lambda: manifest.read(run.unit(KEY)), 240)
    assert [one.number for one in read_records(run.logs(KEY))] == [1, 2]
    (kept,) = run.code.glob("*.json")
    stored = json.loads(kept.read_text())
    assert made.record["code"] == stored["digest"] == kept.stem and f"code {kept.stem}" in said
    assert made.record["commit"] == stored["commit"] and made.record["modified"] is False
    assert "changes" not in made.record
