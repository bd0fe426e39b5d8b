"""One submit, two clusters of one accounting database: equal ids on both are two jobs, and nobody mixes them up."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddm.runs.journal import Journal
from tests.helpers import python, write_experiment, write_source
from tests.real.endless import slurm, wait_for
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm
HOME, ANNEX = "home", "annex"
HERE, THERE = ["train/expert-00", "train/expert-01"], ["train/expert-02", "train/expert-03"]
SITE = """
name: both
scheduler: slurm
cluster: home
partition: main
network_interface: lo
signal_lead_seconds: 30
recheck_seconds: 5
extra_sbatch: [{extra}]
resources: {{memory_gb: 1, minutes: 10}}
stages:
  train/expert-02: {{cluster: annex}}
  train/expert-03: {{cluster: annex}}
"""


def level_ids(conf: str) -> None:
    """Let both clusters give the same id next.

    Jobs of earlier tests take ids when their elements start, so their end comes first.
    """
    wait_for(lambda: not any(slurm(conf, "squeue", f"--clusters={name}", "-h") for name in (HOME, ANNEX)))
    last = {name: spend_ids(conf, name, 1) for name in (HOME, ANNEX)}
    while len(set(last.values())) > 1:
        behind = min(last, key=last.get)
        last[behind] = spend_ids(conf, behind, min(max(last.values()) - last[behind], 500))


def spend_ids(conf: str, cluster: str, count: int) -> int:
    """Let a cluster give this many ids, and return the last one.

    An array takes one, and one more for every element that is changed by itself.
    """
    held = ("--parsable", "--hold", "--wrap=true", f"--array=0-{count - 1}")
    array = slurm(conf, "sbatch", f"--clusters={cluster}", *held).split(";")[0]
    if count > 1:
        some = f"jobid={array}_[0-{count - 2}]"
        slurm(conf, "scontrol", f"--clusters={cluster}", "update", some, "comment=apart")
    slurm(conf, "scancel", f"--clusters={cluster}", array)
    return int(array) + count - 1


def first_id(said: str) -> str:
    """The id that both clusters gave first, from what submit says."""
    here, there = (re.search(rf"job (\d+)_\S+@{name}  ", said)[1] for name in (HOME, ANNEX))
    assert here == there, said
    return here


class Place:
    """A tiny experiment of four experts, two of them on the other cluster."""

    def __init__(self, folder: Path, conf: str, extra: str = "") -> None:
        self.run, self.conf, self._folder = folder / "run", conf, folder
        write_source(folder / "images")
        write_experiment(folder, cluster__experts=4)
        (folder / "both.yaml").write_text(SITE.format(extra=extra))

    def hpcddm(self, verb: str, *arguments: object) -> str:
        """What a verb prints when it succeeds."""
        done = hpcddm(verb, *arguments, SLURM_CONF=self.conf)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self) -> str:
        """What submit prints."""
        site = self._folder / "both.yaml"
        return self.hpcddm("submit", self._folder / "tiny.yaml", "--site", site, "--run-dir", self.run)

    def units(self) -> dict[str, dict]:
        """Rows of status, by unit."""
        return {row["unit"]: row for row in json.loads(self.hpcddm("status", self.run, "--json"))["units"]}

    def queue(self, cluster: str) -> list[str]:
        """Elements of this run in the queue of a cluster."""
        names = ",".join(one.job_name for one in Journal(self.run / "journal.jsonl").submissions())
        return slurm(self.conf, "squeue", f"--clusters={cluster}", "-h", "-r", f"--name={names}", "-o", "%i").split()

    def end(self) -> None:
        """Leave no job behind."""
        for cluster in (HOME, ANNEX):
            if jobs := self.queue(cluster):
                slurm(self.conf, "scancel", f"--clusters={cluster}", *jobs)


@pytest.fixture
def held(home, tmp_path):
    """A run whose jobs are held."""
    place = Place(tmp_path, home, '"--hold"')
    yield place
    place.end()


def test_equal_ids_on_two_clusters_are_two_jobs(held):
    level_ids(held.conf)
    said = held.submit()
    number = first_id(said)
    assert "looks in 1 s for what another cluster makes" in said
    assert f"{number}_0" in held.queue(HOME) and f"{number}_0" in held.queue(ANNEX)
    assert "nothing new to submit" in held.submit()
    rows = held.units()
    assert (rows["shard/train-000"]["job"], rows[THERE[0]]["job"]) == (f"{number}_0@home", f"{number}_0@annex")
    assert {row["state"] for row in rows.values()} == {"held"}
    assert rows[THERE[1]]["next"] == f"scontrol --clusters=annex release {number}_1"
    lines = [line.split() for line in held.hpcddm("status", held.run).splitlines()]
    assert ["train/expert-01", "held", "home"] in lines and ["train/expert-02", "held", "annex"] in lines
    everything = held.queue(HOME)
    assert f"cancelled job {number}_0@annex  {THERE[0]}" in held.hpcddm("cancel", held.run, THERE[0])
    assert held.queue(HOME) == everything, "the equal id here was cancelled, too"
    assert held.queue(ANNEX) == [f"{number}_1"]
    assert f"again: {THERE[0]}" in held.hpcddm("retry", held.run)
    assert len(held.queue(ANNEX)) == 2 and {row["state"] for row in held.units().values()} == {"held"}
    held.hpcddm("cancel", held.run)
    assert held.queue(HOME) == held.queue(ANNEX) == []


@pytest.mark.long
def test_selftest_tries_every_cluster_of_a_site(home, tmp_path):
    Place(tmp_path, home)
    done = hpcddm("selftest", "--site", tmp_path / "both.yaml", "--folder", tmp_path, "--json", SLURM_CONF=home)
    answer = json.loads(done.stdout)
    assert answer["passed"], answer
    checks = {check["check"] for check in answer["checks"]}
    assert {"storage@home", "storage@annex", "requeue@home", "requeue@annex", "accounting@annex"} <= checks


PROVE = """
import sys
from hpcddm.errors import UserError
from hpcddm.launch.slurm import shared_folder
from hpcddm.runs.run_dir import RunDir
shared_folder.PROOF_SECONDS, shared_folder.LATE_ANSWER_SECONDS = 60, 1
try:
    shared_folder.check_all_clusters(RunDir(__import__('pathlib').Path(sys.argv[1])), {'annex': '#SBATCH --array=0-3'})
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.root
def test_a_folder_that_the_other_cluster_does_not_see_is_refused_and_a_proof_is_kept(home, tmp_path):
    seen, hidden = tmp_path / "seen", tmp_path / "hidden"
    assert python(PROVE, seen, SLURM_CONF=home).returncode == 0
    assert (seen / "jobs/folder.seen@annex").exists()
    assert python(PROVE, seen, SLURM_CONF=home, PATH="/nowhere").returncode == 0, "asked once only"
    hidden.mkdir()
    # A file system that is mounted for this one process: the cluster's nodes see the empty folder below it.
    shell = 'mount -t tmpfs none "$2" && exec "$0" -c "$1" "$2"'
    command = ["unshare", "--mount", "sh", "-c", shell, sys.executable, PROVE, str(hidden)]
    done = subprocess.run(command, env=os.environ | {"SLURM_CONF": home}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"cluster annex cannot read or write {hidden} as this node can" in done.stderr


@pytest.fixture(scope="module")
def through(home, tmp_path_factory):
    """A run that went through both clusters to its end, and the id that both gave first."""
    place = Place(tmp_path_factory.mktemp("through"), home)
    level_ids(home)
    try:
        number = first_id(place.submit())
        assert "nothing new to submit" in place.submit()
        wait_for(lambda: {row["state"] for row in place.units().values()} <= {"complete", "failed", "stopped"}, 900)
    finally:
        place.end()
    return place, number


@pytest.mark.long
def test_the_final_step_runs_with_the_experts_of_both(through):
    place, number = through
    rows = place.units()
    assert {row["state"] for row in rows.values()} == {"complete"}, rows
    clusters = {unit: row["job"].partition("@")[2] for unit, row in rows.items()}
    assert {unit for unit, cluster in clusters.items() if cluster == ANNEX} == set(THERE)
    metrics = json.loads((place.run / "report/metrics.json").read_text())
    assert metrics and "nothing to submit" in place.submit()
    assert all((place.run / f"jobs/folder.seen@{name}").exists() for name in (HOME, ANNEX))
    assert (place.run / f"jobs/{number}_0@home.out").exists() and (place.run / f"jobs/{number}_0@annex.out").exists()
    assert "waits (--begin=now+" in (place.run / f"jobs/{number}_0@annex.out").read_text()


@pytest.mark.long
def test_costs_and_logs_are_those_of_each_cluster(through):
    place, _ = through
    found = json.loads(place.hpcddm("cost", place.run, "--json"))
    assert found["source"].startswith("sacct"), found["source"]
    for cluster, units in ((HOME, HERE), (ANNEX, THERE)):
        for unit in units:
            (row,) = [one for one in found["attempts"] if one["unit"] == unit and one["attempt"] == 1]
            job = row["job"].removesuffix(f"@{cluster}")
            command = ["sacct", f"--clusters={cluster}", "-X", "-n", "-P", "-j", job, "-o", "JobID,ElapsedRaw,State"]
            rows = slurm(place.conf, *command).split()
            assert rows == [f"{job}|{row['seconds']}|COMPLETED"]
            said = place.hpcddm("logs", place.run, unit, "--all")
            assert f"as job {job}@{cluster}" in said and f"{unit} is complete" in said
