"""Submitting once, on a real Slurm whose answers get lost; the jobs are held and end with the test."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.slurm import client, sbatch
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from tests.helpers import write_experiment, write_source
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
REAL = Path(shutil.which("sbatch") or "sbatch").parent

LOST = {
    "killed": f'{REAL}/sbatch "$@" >/dev/null; kill -9 $$',
    "hanging": f'{REAL}/sbatch "$@" >/dev/null; exec sleep 60',
    "timing out": f"{REAL}/sbatch \"$@\" >/dev/null; echo 'Socket timed out on send/recv operation' >&2; exit 1",
    "slow": f'(sleep 2; {REAL}/sbatch "$@") >/dev/null 2>&1 & kill -9 $$',
}
"""Ways in which sbatch says nothing of a job that it submits."""


def slurm_says(conf, *command):
    done = subprocess.run(command, env=os.environ | {"SLURM_CONF": conf}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def run_of(place):
    return RunDir(place / "run")


@pytest.fixture
def place(tmp_path, home, monkeypatch):
    """A site whose jobs are held, a tiny experiment, a folder of wrappers; the jobs go at the end."""
    monkeypatch.setenv("SLURM_CONF", home)
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    (tmp_path / "held.yaml").write_text(f"{HELD}}}")
    (tmp_path / "bin").mkdir()
    yield tmp_path
    names = ",".join(one.job_name for one in Journal(run_of(tmp_path).journal).submissions())
    jobs = slurm_says(home, "squeue", "-h", f"--name={names}", "--format=%F") if names else []
    if jobs:
        slurm_says(home, "scancel", *set(jobs))


def wrap(place, command, script, once=False):
    """Put a script in the way of one of Slurm's commands; `once` makes only the first call odd."""
    path, used = place / "bin" / command, place / f"{command}.used"
    guard = f'mkdir {used} 2>/dev/null || exec {REAL}/{command} "$@"\n' if once else ""
    path.write_text(f"#!/bin/bash\n{guard}{script}\n")
    path.chmod(0o755)


def submit(place, *arguments, **environment):
    path = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    command = ("submit", place / "tiny.yaml", "--site", place / "held.yaml", "--run-dir", place / "run", *arguments)
    return hpcddm(*command, **path, **environment)


def units_in_queue(run, home):
    """Every unit that the queue holds, as often as it does, told by the journal's names."""
    found = []
    for one in Journal(run.journal).submissions():
        elements = slurm_says(home, "squeue", "-h", "-r", f"--name={one.job_name}", "--format=%K")
        found += [one.units[int(element)] for element in elements]
    return sorted(found)


ALL = """
assign/heldout-000 assign/train-000 assign/train-001 catalog/all cluster/all cluster_report/all compare/own
draw/0000000-0000024 encode/heldout-000 encode/train-000 encode/train-001 evaluators/classifier
evaluators/extractor expert_lists/all measure/own-0000000-0000024 measure_real/own-0000000-0000024 report/all router/all
shard/heldout-000 shard/train-000 shard/train-001 train/expert-00 train/expert-01 train/monolith
""".split()
HELD = "{name: held, scheduler: slurm, extra_sbatch: ['--hold']"


@pytest.mark.parametrize("how", LOST)
def test_a_job_of_which_sbatch_told_nothing_is_found_and_is_one(place, home, monkeypatch, how):
    wrap(place, "sbatch", LOST[how], once=True)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(client, "CLIENT_SECONDS", 2)
    monkeypatch.setattr(sbatch, "PAUSES", (0.5, 0.5, 0.5))
    run = RunDir(place / "run")
    run.root.mkdir()
    launcher = slurm_launcher.create(Site(name="held", scheduler="slurm", extra_sbatch=["--hold"]), run)
    keys, resources = ["a/x", "a/y"], launcher.site.resources_for("train")
    array = ArraySpec("tiny-train", keys, [run.spec(key) for key in keys], resources, [], 2)
    token = Journal(run.journal).record_intent("slurm", "held", array.keys, array.name)
    job = launcher.submit(array, token, "0001-train.sbatch")
    elements = slurm_says(home, "squeue", "-h", "-r", f"--name=tiny-train-{token}", "--format=%F_%K")
    assert sorted(elements) == [f"{job}_0", f"{job}_1"]
    launcher.cancel(job.element(0))
    assert slurm_says(home, "squeue", "-h", "-r", "-t", "PD", f"--job={job}", "--format=%F_%K") == [f"{job}_1"]


def test_a_submit_that_dies_after_sbatch_is_continued_and_nothing_is_submitted_twice(place, home):
    wrap(place, "sbatch", f'{REAL}/sbatch "$@" >/dev/null; case "$*" in *test-only*) ;; *) kill -9 $PPID;; esac')
    for _ in range(2):
        assert submit(place).returncode == -9
    (place / "bin/sbatch").unlink()
    done = submit(place)
    assert done.returncode == 0, done.stderr
    assert units_in_queue(run_of(place), home) == ALL
    assert all(one.job for one in Journal(run_of(place).journal).submissions())
    assert "nothing new to submit" in submit(place).stdout


def test_a_cluster_with_small_arrays_gets_small_arrays(place, home):
    wrap(place, "scontrol", f'{REAL}/scontrol "$@" | sed "s/^MaxArraySize .*/MaxArraySize = 2/"')
    done = submit(place, "cluster.experts=5", "cluster.clustering.fine_clusters=10", "experts.training.batch=20")
    assert done.returncode == 0, done.stderr
    pieces = [one.units for one in Journal(run_of(place).journal).submissions() if "expert-" in one.units[0]]
    assert [len(units) for units in pieces] == [2, 2, 1] and sum(pieces, []) == [f"train/expert-0{k}" for k in range(5)]
    assert len(units_in_queue(run_of(place), home)) == len(ALL) + 3
    assert "nothing new to submit" in submit(place).stdout


def test_a_limit_on_jobs_leaves_the_rest_for_later(place, home):
    others = len(slurm_says(home, "squeue", "-h", "-r", "--me", "--format=%i"))
    (place / "held.yaml").write_text(f"{HELD}, max_submitted: {others + 7}}}")
    done = submit(place)
    assert done.returncode == 0 and "units remain" in done.stdout and "site key max_submitted" in done.stdout
    taken = units_in_queue(run_of(place), home)
    assert 0 < len(taken) - 1 < len(ALL) and taken.count("submission/all") == 1, "a last job submits the rest"
    (place / "held.yaml").write_text(f"{HELD}}}")
    assert submit(place).returncode == 0
    assert units_in_queue(run_of(place), home) == sorted([*ALL, "submission/all"])


def test_cancel_ends_this_runs_jobs_and_no_other(place, home):
    other = slurm_says(home, "sbatch", "--parsable", "--hold", "--array=0-1", "--wrap=true", "-J", "tiny-train-000")[0]
    try:
        assert submit(place).returncode == 0
        done = hpcddm("cancel", place / "run", "train/expert-01", "report/all")
        assert done.returncode == 0, done.stderr
        gone = {"train/expert-01", "report/all"}
        assert units_in_queue(run_of(place), home) == [key for key in ALL if key not in gone]
        assert "draw/0000000-0000024 will find it missing" in done.stdout
        again = hpcddm("retry", place / "run")
        assert again.returncode == 0, again.stderr
        assert units_in_queue(run_of(place), home) == ALL, "what waits behind a retried unit is submitted anew"
        assert hpcddm("cancel", place / "run", SCANCEL_STATE="RUNNING").returncode == 0
        assert units_in_queue(run_of(place), home) == [], "the user's own filter of scancel passes over jobs of ours"
        assert len(slurm_says(home, "squeue", "-h", "-r", f"--job={other}")) > 0
        assert "nothing was cancelled" in hpcddm("cancel", place / "run").stdout
    finally:
        slurm_says(home, "scancel", other)


def test_retry_takes_the_stored_site_and_changes_resources_of_what_failed_only(place, home):
    assert submit(place).returncode == 0
    assert hpcddm("cancel", place / "run", "train/expert-01").returncode == 0
    (place / "held.yaml").unlink()
    done = hpcddm("retry", place / "run", "--resource", "minutes=7")
    assert done.returncode == 0, done.stderr
    limits = {}
    for one in Journal(run_of(place).journal).submissions():
        for line in slurm_says(home, "squeue", "-h", "-r", f"--name={one.job_name}", "--format=%K=%l"):
            element, _, limit = line.partition("=")
            limits[one.units[int(element)]] = limit
    assert sorted(limits) == ALL and {key for key, limit in limits.items() if limit == "7:00"} == {"train/expert-01"}
    assert json.loads((place / "run/sites/held.json").read_text())["extra_sbatch"] == ["--hold"]
    assert Path(place / "run/scripts").is_dir()
