"""What one process records of its unit, with a stage that does as it is told; and where libraries keep their caches."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest

from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.jobs import entry, job_environment
from hpcddm.jobs.attempt import SUPERSEDED, Superseded
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.jobs.unit import Result
from hpcddm.jobs.unit_inputs import UnitInputs
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from tests.helpers import tiny


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Run a unit of a stage with what its stage comes to; return the exit code and the record of the end."""
    run, units = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path))
    monkeypatch.setattr(entry, "_prepare_environment", lambda spec: None)
    monkeypatch.setattr(entry, "wait_for_inputs", lambda spec, run: UnitInputs({}, []))
    monkeypatch.setattr("hpcddm.jobs.attempt.Attempt.redirect_output", lambda attempt, rank: None)

    def ended(result, stage="train", rank=0):
        unit = next(unit for unit in units if unit.stage == stage)
        write_specs(make_items([unit], tiny(tmp_path), run), Site(name="here", scheduler="local"))
        if rank:
            open_attempt(run.logs(unit.key), Ranks(0, 0, 2, 1, "me"))
        monkeypatch.setattr(job_environment, "current_ranks", lambda: Ranks(rank, rank, 2, 1, "me"))

        def call(spec, unit):
            if isinstance(result, Exception):
                raise result
            (unit.folder / "output").write_text("done")
            return result

        monkeypatch.setattr(entry, "_call_stage", call)
        code = entry._run(run.spec(unit.key), StopFlag())
        record = checked_reads.read_json(run.logs(unit.key) / "attempt-1" / "ended.json")
        return code, record and (record["outcome"], record["reason"])

    return ended


DONE = Result(["output"], {})


def test_only_rank_0_says_that_a_unit_is_complete_or_stopped(ended):
    assert ended(DONE, rank=1) == ended(Stopped("SIGTERM"), rank=1) == (0, None)


@pytest.mark.parametrize(
    "result, rank, end", [(DONE, 0, ("complete", "")), (UserError("no luck"), 1, ("failed", "no luck"))]
)
def test_rank_0_says_so_and_every_rank_says_why_it_failed(ended, result, rank, end):
    assert ended(result, rank=rank) == (int(end[0] == "failed"), end)


FULL, GONE = OSError(28, "No space left on device"), OSError(116, "Stale file handle")
ENDINGS = [
    (FULL, True),
    (PermissionError(13, "Permission denied", "run/report"), True),
    (PermissionError(13, "Permission denied", "/scratch/of-this-node"), False),
    (RuntimeError("SafetensorError: IoError: No space left on device (os error 28)"), True),
    (GONE, False),
    (RuntimeError("no luck"), False),
    (UserError("no luck"), True),
]


@pytest.mark.parametrize("stage", ["train", "draw"])
@pytest.mark.parametrize(("error", "is_final"), ENDINGS)
def test_the_cause_decides_about_another_attempt_and_not_the_stage(ended, tmp_path, error, is_final, stage):
    if isinstance(error, OSError) and error.filename:
        error = type(error)(error.errno, error.strerror, str(tmp_path / error.filename))
    ended(error, stage=stage)
    record = next((tmp_path / "run/logs").rglob("ended.json"))
    assert json.loads(record.read_text())["final"] == is_final


ODD_RESOURCES = [
    ({"zero_stage": 9}, "resources: zero_stage: input should be 0, 1, 2 or 3, found 9; submit the run again"),
    ({"zero": 1}, "resources: zero: unknown key"),
]


@pytest.mark.parametrize("resources, words", ODD_RESOURCES)
def test_resources_that_no_site_has_given_are_named(ended, monkeypatch, resources, words):
    monkeypatch.setattr(Resources, "for_job", resources)
    code, (outcome, reason) = ended(DONE)
    assert (code, outcome) == (1, "failed") and words in reason and reason.endswith("; submit the run again")
    assert "specs/train/" in reason


def test_what_fails_after_the_training_is_recorded_with_its_reason(ended, monkeypatch):
    def full(folder, outputs):
        raise UserError("disk full")

    monkeypatch.setattr(manifest, "describe_outputs", full)
    assert ended(DONE, rank=1)[1] is None
    as_rank_1 = lambda logs, ranks, *told: open_attempt(logs, Ranks(1, 1, 2, 1, ranks.owner))  # noqa: E731
    monkeypatch.setattr(entry, "open_attempt", as_rank_1)
    assert ended(DONE) == (1, ("failed", "disk full"))


@pytest.mark.parametrize("stage, words", [("train", "continues where this one was"), ("shard", "starts over")])
def test_a_unit_that_is_stopped_says_what_comes_of_it(ended, stage, words, capfd):
    assert ended(Stopped("SIGTERM"), stage) == (0, ("stopped", "SIGTERM"))
    assert f"stopped: SIGTERM; the next attempt {words}" in capfd.readouterr().out


OWNER = "slurm-tiny-train-0123456789ab-7_0"


WAYS = [Superseded(SUPERSEDED), RuntimeError("Connection closed by peer"), UserError("cannot save")]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("leaving", WAYS, ids=["it noticed", "its peer left first", "its state is not its own"])
def test_an_execution_that_was_replaced_does_not_end_the_step_of_its_successor(tmp_path, monkeypatch, rank, leaving):
    run = RunDir(tmp_path / "run")
    unit = next(unit for unit in plan_units(tiny(tmp_path)) if unit.stage == "train")
    write_specs(make_items([unit], tiny(tmp_path), run), Site(name="here", scheduler="slurm"))

    def is_replaced(settings, unit):
        """The scheduler starts the job anew, and then the stage leaves by one of the ways out."""
        open_attempt(unit.run.logs(unit.key), Ranks(0, 0, 2, 1, f"{OWNER}.1"))
        raise leaving

    monkeypatch.setattr(entry, "wait_for_inputs", lambda spec, run: UnitInputs({}, []))
    monkeypatch.setattr("hpcddm.jobs.attempt.Attempt.redirect_output", lambda attempt, rank: None)
    monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(run=is_replaced))
    # It would end this very process.
    monkeypatch.setattr(entry, "_leave_if_superseded", lambda attempt: None)
    open_attempt(run.logs(unit.key), Ranks(0, 0, 2, 1, f"{OWNER}.0"))
    monkeypatch.setattr(job_environment, "current_ranks", lambda: Ranks(rank, rank, 2, 1, f"{OWNER}.0"))
    assert entry._run(run.spec(unit.key), StopFlag()) == 0


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Where the cache lies when nobody was there before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"hpcddm-cache-{os.getuid()}"


def test_the_cache_is_this_users_alone_and_used_again(cache):
    assert entry._own_cache() == entry._own_cache() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


PLANTED = {
    "link": lambda cache: cache.symlink_to(cache.parent),
    "file": lambda cache: cache.touch(),
    "open": lambda cache: (cache.mkdir(), cache.chmod(0o777)),
    "of another user": lambda cache: (cache.mkdir(), os.chown(cache, 12345, 12345)),
}


@pytest.mark.parametrize("made", PLANTED)
def test_a_cache_that_somebody_else_may_write_to_is_not_used(cache, made):
    if made == "of another user" and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    PLANTED[made](cache)
    found = entry._own_cache()
    assert found != cache and found.is_dir() and stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["state", ".lease", "tensorboard"])
def test_a_unit_with_a_link_fails_by_name_and_nothing_is_written_behind_it(ended, tmp_path, name):
    key = next(unit.key for unit in plan_units(tiny(tmp_path)) if unit.stage == "train")
    link, target = RunDir(tmp_path / "run").unit(key) / name, tmp_path / "user"
    link.parent.mkdir(parents=True)
    target.mkdir()
    link.symlink_to(target)
    reason = f"{key}: {link} is a link; put the files themselves there, or remove it"
    assert ended(DONE) == (1, ("failed", reason)) and list(target.iterdir()) == []


def test_what_fails_before_there_is_an_attempt_is_one_line(tmp_path):
    command = [sys.executable, "-P", "-m", "hpcddm.jobs.entry", tmp_path / "run/specs/train/expert-00.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and done.stdout.count("\n") == 1 and "submit the run again" in done.stdout, done.stdout
    assert "Traceback" not in done.stderr
