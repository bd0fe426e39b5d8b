"""How a job that has to leave comes back at sites of every kind, and when it does not."""

import json
import shutil
import signal
import subprocess

import pytest

from tests.real.endless import write_site
from tests.real.storm import KEY, Storm
from tests.whole_runs import TINY, hpcddm

pytestmark = pytest.mark.slurm


class Site(Storm):
    """The finished run without its first expert, at a site of some kind."""

    def prepare(self, finished, way):
        shutil.copytree(finished, self.run)
        for folder in (KEY, f"logs/{KEY}", "draw", "measure", "compare", "report", "sites"):
            shutil.rmtree(self.run / folder)
        hook = 'echo "$HPCDDM_EVENT $HPCDDM_UNIT" >> "$HPCDDM_RUN/told"'
        self.site = write_site(self.folder, requeue=way, hook=hook, stages={"train": {"nodes": 2}})
        return self

    def wrap(self, command, script):
        """Let a job that calls one of Slurm's commands get this instead, once."""
        path = self.folder / "tools" / command
        guard = f'mkdir {path}.used 2>/dev/null || exec {shutil.which(command)} "$@"'
        path.write_text(f"#!/bin/bash\n{guard}\n{script}\n")
        path.chmod(0o755)

    def call(self, *arguments):
        return hpcddm(*arguments, SLURM_CONF=self.conf)

    def submit(self):
        done = self.call("submit", "quickstart", "--site", self.site, "--run-dir", self.run, *TINY)
        return done.returncode, done.stdout + done.stderr

    def until_the_ranks_meet(self):
        before = len(list((self.run / "logs" / KEY).glob("attempt-*")))
        assert self.submit()[0] == 0
        tried = self.run / "logs" / KEY
        self.until(lambda: len(list(tried.glob("attempt-*"))) > before, 120, "an attempt")
        self.until(lambda: self.phase() in ("rendezvous", "step"), 120, "the ranks to meet")

    def verdict(self):
        self.until(lambda: self.last.verdict, 60, "a verdict")
        return self.last.decision

    def row(self, key=KEY):
        rows = json.loads(self.call("status", self.run, "--json").stdout)["units"]
        return next(row for row in rows if row["unit"] == key)


def metrics(run):
    return (run / "report/metrics.json").read_bytes()


FULL = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"


def test_where_requeueing_is_forbidden_it_submits_itself_and_the_final_step_waits_behind_it(home, finished, tmp_path):
    site = Site(tmp_path, home, 0).prepare(finished, "resubmit")
    site.wrap("sbatch", FULL)
    site.until_the_ranks_meet()
    first = site.last.job
    site.ranks()[0].send_signal(signal.SIGUSR2)
    assert site.verdict() == "resubmit"
    site.until(lambda: site.complete("report"), 300, "the report")
    assert site.last.job != first and site.last.number == 2
    assert metrics(site.run) == metrics(finished)
    site.until(lambda: (site.run / "told").exists(), 30, "the hook")
    assert (site.run / "told").read_text() == "complete report/all\n"


@pytest.mark.root
@pytest.mark.parametrize("way", ["scontrol", "resubmit"])
def test_a_unit_whose_attempts_can_leave_no_record_ends_with_the_reason_and_so_does_wait(home, finished, tmp_path, way):
    site = Site(tmp_path, home, 0).prepare(finished, way)
    logs = site.run / "logs" / KEY
    logs.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", logs], check=True)
    try:
        assert site.submit()[0] == 0
        waited = site.call("wait", site.run, "--timeout", "3")
    finally:
        subprocess.run(["umount", "--lazy", logs], check=True)
    assert waited.returncode == 3, waited.stdout + waited.stderr
    assert (site.run / "told").read_text() == f"stopped {KEY}\n"
    said = "".join(path.read_text() for path in (site.run / "jobs").glob("*_0.out"))
    assert said.count("; failed: ") == 1 and f"{logs}" in said and "Read-only file system" in said
    assert "could leave no record" in site.row()["reason"] and str(logs) in site.row()["reason"]
    assert site.call("retry", site.run, KEY, "--site", site.site).returncode == 0
    site.until(lambda: site.complete(KEY), 300, "the training")
    assert site.call("cancel", site.run).returncode == 0


@pytest.mark.long
def test_what_may_not_come_back_by_itself_waits_for_the_user(home, finished, tmp_path):
    site = Site(tmp_path, home, 0).prepare(finished, "none")
    site.until_the_ranks_meet()
    site.ranks()[1].send_signal(signal.SIGTERM)
    assert site.verdict() == "by hand"
    site.until(lambda: site.row()["state"] == "stopped", 60, "the job to leave the queue")
    assert site.row()["next"] == f"hpcddm retry {site.run} --site north"
    assert (site.run / "told").read_text() == f"stopped {KEY}\n"

    before = site.last.number
    assert site.submit()[0] == 0
    # Ranks look for it when they start, and then every ten seconds, which is longer than this training takes.
    (site.run / "STOP").touch()
    site.until(lambda: site.last.number > before, 120, "an attempt")
    assert site.verdict() == "stopped"
    code, said = site.submit()
    assert code == 2 and f"{site.run}/STOP" in said and "remove it" in said
    (site.run / "STOP").unlink()

    site.until_the_ranks_meet()
    site.slurm("scancel", site.last.job)
    assert site.verdict() == "cancelled"
    site.until(lambda: site.row()["state"] == "cancelled", 60, "the job to leave the queue")
    # What was in the queue behind it starts, finds nothing, and ends.
    site.until(lambda: site.row("report/all")["state"] == "stopped", 60, "the jobs behind it to end")

    again = site.call("retry", site.run)
    assert again.returncode == 0, again.stdout + again.stderr
    site.until(lambda: site.complete("report"), 300, "the report")
    assert metrics(site.run) == metrics(finished)
