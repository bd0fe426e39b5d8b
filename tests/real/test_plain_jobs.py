"""A cluster without job arrays that requeues nothing by default: every unit is a plain job, and comes back."""

import json
import os
import re
import signal
import subprocess

import pytest

from hpcddm.launch.load_site import load_site
from hpcddm.runs.journal import Journal
from tests.controllers import partner_with
from tests.helpers import write_experiment, write_source
from tests.real.storm import KEY
from tests.real.test_coming_back import Site, metrics
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm


@pytest.fixture
def bare(partner):
    """SLURM_CONF of a cluster with MaxArraySize=0 and JobRequeue=0."""
    with partner_with(MaxArraySize=0, JobRequeue=0):
        yield partner


@pytest.mark.long
@pytest.mark.parametrize("way", ["scontrol", "resubmit"])
def test_a_plain_job_comes_back_and_the_final_step_waits_behind_it(bare, finished, tmp_path, way):
    site = Site(tmp_path, bare, 0).prepare(finished, way)
    site.until_the_ranks_meet()
    first = site.last.job
    rows = site.slurm("squeue", "-h", "-r", "-o", "%F|%K|%j").split()
    assert rows and all(row.split("|")[1] == "N/A" for row in rows)
    assert site.row()["state"] == "running" and site.row("report/all")["state"] == "pending"
    site.ranks()[0].send_signal(signal.SIGUSR2)
    assert site.verdict() == ("requeue" if way == "scontrol" else way)
    site.until(lambda: site.complete("report"), 300, "the report")
    assert site.last.number == 2 and (site.last.job == first) == (way == "scontrol")
    assert metrics(site.run) == metrics(finished)
    said = site.call("logs", site.run, KEY, "--all").stdout
    assert f"as job {first}" in said and "attempt 2" in said


def test_plain_jobs_are_submitted_once_throttled_and_cancelled(bare, tmp_path):
    write_source(tmp_path / "images")
    write_experiment(tmp_path, cluster__experts=4, experts__training__batch=32)
    site, run = tmp_path / "bare.yaml", tmp_path / "run"
    site.write_text("{name: bare, scheduler: slurm, extra_sbatch: [--hold], max_parallel: 2}")

    def call(*arguments):
        done = hpcddm(*arguments, SLURM_CONF=bare)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def queue(field):
        command = ["squeue", "-h", "-o", f"%i|{field}"]
        said = subprocess.run(
            command, env=os.environ | {"SLURM_CONF": bare}, capture_output=True, text=True, check=True
        )
        return dict(line.split("|") for line in said.stdout.split())

    submit = ("submit", tmp_path / "tiny.yaml", "--site", site, "--run-dir", run)
    call(*submit)
    jobs = {unit: one.job for one in Journal(run / "journal.jsonl").submissions() for unit in one.units}
    assert len(set(jobs.values())) == len(jobs), "every unit is a job"
    behind = [set(re.findall("[0-9]+", queue("%E")[jobs[f"train/expert-0{index}"]])) for index in range(4)]
    experts = {jobs[f"train/expert-0{index}"] for index in range(4)}
    assert [sorted(one & experts) for one in behind] == [[], [], [jobs[KEY]], [jobs["train/expert-01"]]]
    assert "nothing new to submit" in call(*submit)
    call("cancel", run, KEY)
    assert jobs[KEY] not in queue("%K")
    states = {row["unit"]: row["state"] for row in json.loads(call("status", run, "--json"))["units"]}
    assert states[KEY] == "cancelled" and states["train/expert-01"] == "held"
    call("cancel", run)
    assert not {*jobs.values()} & queue("%K").keys()


def test_the_draft_of_such_a_cluster_lets_its_jobs_come_back(bare, tmp_path):
    path = tmp_path / "bare.yaml"
    done = hpcddm("site", "init", "bare", "--output", path, SLURM_CONF=bare)
    assert done.returncode == 0, done.stderr
    assert load_site(str(path)).requeue == "scontrol"
