"""What another scheduler may still be doing is not started here; and `auto` never means a login node by accident."""

import json
import socket
import time

import pytest

from hpcddm.errors import SchedulerUnreachable, UserError
from hpcddm.files import atomic
from hpcddm.launch.base import create_launcher
from hpcddm.launch.checks.other_schedulers import check_other_schedulers
from hpcddm.launch.load_site import load_site
from hpcddm.launch.slurm import client
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.helpers import DATA_STAGES, finish, hpcddm, tiny, write_source

UNITS = ["train/expert-00", "train/expert-01"]


@pytest.fixture
def clients(tmp_path, monkeypatch):
    """A function that puts programs in the way of Slurm's commands, each a line of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)

    def put(**scripts):
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/bash\n{script}\n")
            (folder / name).chmod(0o755)

    return put


DOWN = "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1"
NO_CLUSTER = "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1"


def test_auto_refuses_a_slurm_that_does_not_answer_or_is_too_slow_and_says_how_to_force_it(clients, monkeypatch):
    clients(sinfo=DOWN, sbatch="exit 1")
    with pytest.raises(SchedulerUnreachable, match="does not answer .*Unable to contact .* --site embedded"):
        load_site("auto")
    assert load_site("embedded").scheduler == "local"
    clients(sinfo="exec sleep 30")
    ask = client.query_slurm
    monkeypatch.setattr(client, "query_slurm", lambda *command, seconds: ask(*command, seconds=0.2))
    with pytest.raises(UserError, match="sinfo gave no answer in"):
        load_site("auto")


def test_auto_is_slurm_where_it_answers_and_this_machine_where_no_cluster_was_set_up(clients, capsys):
    clients(sinfo="exit 0", sbatch="exit 1")
    assert load_site("auto").name == "slurm"
    clients(sinfo=NO_CLUSTER)
    assert load_site("auto").name == "embedded"
    assert capsys.readouterr().err == "note: Slurm is installed, but for no cluster; running on this machine\n"


@pytest.fixture
def submitted(tmp_path):
    """A run whose data are there and whose experts were submitted to Slurm as job 100."""
    write_source(tmp_path / "images")
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    experiment = with_content_hashes(tiny(tmp_path), run)
    finish([unit for unit in plan_units(experiment) if unit.stage in DATA_STAGES], run)
    store_experiment(with_relative_paths(experiment, run), run)
    return run, experiment, record(run, UNITS)


def record(home, units):
    journal = Journal(home.journal)
    token = journal.record_intent("slurm", "north", units, "tiny-train")
    journal.record_submitted(token, "100")
    return token


def check(run, scheduler="local", names=UNITS):
    site = "embedded" if scheduler == "local" else "slurm"
    check_other_schedulers(Journal(run.journal).submissions(), run, create_launcher(load_site(site), run), names)


def in_queue(token):
    lines = [f"100|0|RUNNING|None|h1|N/A|tiny-train-{token}", f"100|1|PENDING|Priority||N/A|tiny-train-{token}"]
    return "; ".join(f"echo '{line}'" for line in ("Maintenance on Friday | see the wiki", *lines))


COMMANDS = {
    "submit": ("submit", "tiny.yaml", "--site", "embedded", "--run-dir", "run"),
    "dry run": ("submit", "tiny.yaml", "--site", "embedded", "--run-dir", "run", "--dry-run"),
    "retry": ("retry", "run", "--site", "embedded"),
    "run-unit": ("run-unit", "run", "train/expert-00"),
    "sweep": ("sweep", "s.yaml", "--site", "embedded", "--dir", "sweep"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_in_slurms_queue_is_not_started_on_this_machine(submitted, clients, tmp_path, monkeypatch, command):
    run, _, token = submitted
    monkeypatch.chdir(tmp_path)
    clients(squeue=in_queue(token), sinfo=DOWN, sbatch="exit 1")
    name = "train/expert-00"
    if command == "sweep":
        (tmp_path / "s.yaml").write_text("{name: s, experiment: tiny.yaml, grid: {evaluate.guidance: [1.0]}}")
        dry = hpcddm(*COMMANDS["sweep"], "--dry-run")
        assert dry.exit_code == 0, dry.output
        name = next(word for word in dry.output.split() if word.endswith("/train/expert-00"))
        clients(squeue=in_queue(record(RunDir(tmp_path / "sweep"), [name])))
    done = hpcddm(*COMMANDS[command])
    assert done.exit_code == 1, done.output
    assert name in done.output and "is running as job 100_0 of site north" in done.output
    assert "go on with --site north, or end its jobs first: hpcddm cancel" in done.output
    assert all(one.scheduler == "slurm" for one in Journal(run.journal).submissions())


def test_what_may_be_in_the_queue_of_a_slurm_that_does_not_answer_is_not_started(submitted, clients):
    run, _, _ = submitted
    clients(squeue=DOWN)
    with pytest.raises(UserError, match=r"train/expert-00 \(and 1 more\) was submitted to slurm by site north as job"):
        check(run)
    with pytest.raises(UserError, match="nobody answers here"):
        check(run, names=["train/expert-01", "router/all"])
    check(run, names=["router/all"])
    check(run, scheduler="slurm")


def test_what_is_over_for_sure_needs_no_answer(submitted, clients):
    run, experiment, token = submitted
    clients(squeue=DOWN)
    finish([unit for unit in plan_units(experiment) if unit.key == UNITS[0]], run)
    folder = run.logs(UNITS[1]) / "attempt-1"
    for name, content in (
        (None, None),
        ("owner.json", {"owner": f"slurm-tiny-train-{token}-100_1.0", "job": "100_1"}),
        ("verdict.json", {"decision": "requeue", "reason": "time limit"}),
    ):
        if name:
            atomic.write_json(folder / name, content)
        with pytest.raises(UserError, match=r"train/expert-01 was submitted"):
            check(run)
    atomic.write_json(folder / "verdict.json", {"decision": "gave up", "reason": "three times"})
    check(run)


def test_what_was_cancelled_or_has_left_the_queue_is_free(submitted, clients):
    run, _, token = submitted
    clients(squeue="exit 0")
    check(run)
    clients(squeue=DOWN)
    Journal(run.journal).record_cancelled(token, UNITS)
    check(run)


def test_what_runs_without_a_queue_is_not_submitted_to_one(submitted):
    run, journal = submitted[0], Journal(submitted[0].journal)
    journal.record_submitted(journal.record_intent("local", "embedded", ["train/monolith"]), "4711")
    check(run, "slurm", ["train/monolith"])
    folder = run.logs("train/monolith") / "attempt-1"
    folder.mkdir(parents=True)
    atomic.write_json(folder / "owner.json", {"owner": "local-4711", "job": "4711"})
    beat = Heartbeat(time.time(), "local-4711", 1, socket.gethostname(), 5, 10)
    (folder / heartbeat.FILE_NAME).write_text(json.dumps(vars(beat)))
    with pytest.raises(UserError, match=f"train/monolith runs without a queue on {socket.gethostname()}"):
        check(run, "slurm", ["train/monolith"])
    check(run, "slurm", ["train/expert-00"])
    atomic.write_json(folder / "ended.json", {"outcome": "stopped"})
    check(run, "slurm", ["train/monolith"])
