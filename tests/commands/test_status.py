"""The verb status: the truth in every state, readable wherever it is printed, and never a traceback."""

import json
import os
import shlex
import subprocess
import time
from dataclasses import replace

import pytest

from hpcddm.commands.submit_messages import print_nothing_to_do
from hpcddm.errors.next_step import command
from hpcddm.errors.printing import quoted
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.files import atomic
from hpcddm.launch.base import Job
from hpcddm.launch.decision import Decision
from hpcddm.launch.slurm.queue_jobs import make_job
from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest, training_states
from hpcddm.runs.files import KNOWN_METRICS
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG, CLUSTER_REPORT, MONOLITH, REPORT, ROUTER, expert_key
from tests.attempts import answer, beat, submitted, write_attempt
from tests.commands.runs import complete_run
from tests.helpers import finish, hpcddm, tiny

EXPERT = expert_key(1)
ENDED = time.time()
"""When this file was read; the tests run later, and what is so old then must be as old as it says."""


@pytest.fixture
def run(tmp_path):
    """A complete run, in a place with a name that rich takes for markup."""
    return complete_run(tmp_path / "[/b] run[red]")


@pytest.fixture
def open_run(run):
    """The same, with one expert to be made."""
    (run.unit(EXPERT) / "manifest.json").unlink()
    return run


@pytest.fixture
def begun(open_run, monkeypatch):
    """A function that gives this expert an attempt of a job, of which the queue says that it is in some state."""
    token = submitted(open_run, [EXPERT])

    def begin(state, number=1, **files):
        answer(monkeypatch, {EXPERT: Job(JobId("17_0"), state, nodes="h1")} if state else {})
        return write_attempt(open_run, EXPERT, number, token, "17_0", **files)

    begin.token = token
    return begin


def status(run):
    done = hpcddm("status", run.root)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(run):
    def no_constant(text):
        raise AssertionError(f"{text} is no JSON")

    return json.loads(hpcddm("status", run.root, "--json").stdout, parse_constant=no_constant)


def row(run, key=EXPERT):
    return {one["unit"]: one for one in as_json(run)["units"]}[key]


def verdict(decision, reason="why", ago=5.0):
    return {"decision": decision, "reason": reason, "exit_code": 0, "started": ENDED - 600, "ended": time.time() - ago}


def as_of_now(files):
    """The files of an attempt, with all times moved from when they were written down here to now."""
    passed = time.time() - ENDED
    moved = {}
    for name, values in files.items():
        times = {key: value + passed for key, value in values.items() if isinstance(value, float) and value > 1e9}
        moved[name] = values | times
    return moved


def squeue(word, reason="", nodes="", start="N/A"):
    return make_job(JobId("17_1"), word, reason, nodes, start)


STOPPED = {"outcome": "stopped", "reason": "SIGUSR2"}
SILENT = "the scheduler does not answer"
# What the queue says, what the last attempt left (of this submission), and what follows.
STATES = [
    (squeue("PENDING", "Priority"), None, "pending", "other jobs come first"),
    (squeue("PENDING", "Resources", start="2026-11-20T10:00:00"), None, "pending", "may start 2026-11-20 10:00:00"),
    (squeue("PENDING", "BeginTime"), {"verdict": verdict("requeue")}, "requeued", "after a requeue"),
    (squeue("PENDING", "JobHeldUser"), None, "held", "JobHeldUser"),
    (squeue("PENDING", "launch failed requeued held"), {}, "held", "launch failed requeued held"),
    (squeue("PENDING", "JobHoldMaxRequeue"), {}, "held", "JobHoldMaxRequeue"),
    (squeue("PENDING", "QOSUsageThreshold"), None, "pending", "QOSUsageThreshold"),
    (squeue("REQUEUE_HOLD", ""), {}, "held", ""),
    (squeue("RUNNING", nodes="held[1-2]"), {"heartbeat": beat()}, "running", ""),
    (squeue("SUSPENDED", nodes="h1"), {"heartbeat": beat()}, "suspended", ""),
    (squeue("CONFIGURING", nodes="h[1-2]"), None, "starting", ""),
    (squeue("STOPPED", nodes="h1"), {"heartbeat": beat()}, "suspended", ""),
    (squeue("CANCELLED", nodes="h1"), {"heartbeat": beat()}, "stopping", ""),
    (squeue("FAILED"), None, "stopping", ""),
    (squeue("REVOKED"), None, "running", "Slurm calls its job REVOKED"),
    (squeue("RUNNING", nodes="h[1-2]"), None, "starting", ""),
    (squeue("RUNNING", nodes="h[1-2]"), {"heartbeat": beat()}, "running", ""),
    (squeue("RUNNING", nodes="h[1-2]"), {"heartbeat": beat(age=600)}, "running", "no sign of life for 10 minutes"),
    (squeue("RUNNING", nodes="h1"), {"ended": STOPPED | {"ended": ENDED}}, "stopping", ""),
    (squeue("RUNNING", nodes="h1"), {"verdict": verdict("requeue", ago=90)}, "starting", "attempt 2 has not begun"),
    (squeue("COMPLETING", nodes="h1"), {"heartbeat": beat()}, "stopping", ""),
    (None, {"verdict": verdict("requeue", "SIGUSR2")}, "requeued", "between attempts 1 and 2 (SIGUSR2)"),
    (None, {"verdict": verdict("requeue", "SIGUSR2", 1000)}, "unknown", "was to come back after SIGUSR2"),
    (None, {"verdict": verdict("failed", "the loss is nan")}, "failed", "the loss is nan"),
    (None, {"verdict": verdict("gave up", "3 attempts")}, "gave up", "3 attempts"),
    (None, {"verdict": verdict("cancelled")}, "cancelled", "why"),
    (None, {"verdict": verdict("by hand")}, "stopped", "why"),
    (None, {"verdict": verdict("stopped")}, "stopped", "why"),
    (None, {"verdict": verdict("complete")}, "unknown", "its manifest is not here"),
    (None, {"ended": {"outcome": "failed", "reason": "no disk"}}, "failed", "no disk"),
    (None, {"heartbeat": beat()}, "stopping", "its job has left the queue; last sign of life"),
    (None, {"heartbeat": beat(age=120)}, "unknown", "attempt 1 left no word; last sign of life"),
    (None, None, "unknown", "its job 17_1 left the queue before Python began"),
    # Without an answer only a fresh heartbeat or a verdict is believed.
    (SILENT, {"heartbeat": beat()}, "running", "by its heartbeat"),
    (SILENT, {"heartbeat": beat(age=120)}, "unknown", f"{SILENT}; last sign of life"),
    (SILENT, {"verdict": verdict("requeue"), "heartbeat": beat()}, "unknown", SILENT),
    (SILENT, {"ended": STOPPED}, "unknown", SILENT),
    (SILENT, {"verdict": verdict("failed", "the loss is nan")}, "failed", "the loss is nan"),
    (SILENT, None, "unknown", SILENT),
]


@pytest.mark.parametrize("job, files, state, reason", STATES)
def test_a_state_follows_from_the_queue_and_the_last_attempt(open_run, monkeypatch, job, files, state, reason):
    token = submitted(open_run, [expert_key(0), EXPERT])
    answer(monkeypatch, None if job == SILENT else {EXPERT: job} if job else {})
    if files is not None:
        write_attempt(open_run, EXPERT, 1, token, "17_1", **as_of_now(files))
    found, shown = row(open_run), status(open_run)
    assert (found["state"], reason in found["reason"]) == (state, True), found
    assert (found["reason"] == "") or reason != "" or state == "stopping"
    assert state in shown and (SILENT in shown) == (as_json(open_run)["queue"] == "silent") == (job == SILENT)


def test_a_clock_that_is_behind_is_no_silence(open_run, monkeypatch):
    token = submitted(open_run, [expert_key(0), EXPERT])
    answer(monkeypatch, {EXPERT: squeue("RUNNING", nodes="h[1-2]")})
    folder = write_attempt(open_run, EXPERT, 1, token, "17_1", heartbeat=beat(age=240))
    assert "no sign of life for 4 minutes" in row(open_run)["reason"]
    os.utime(folder / "heartbeat.json")
    assert row(open_run)["reason"] == ""


def test_a_failure_has_the_command_that_shows_it_and_then_the_one_that_retries_for_programs_too(open_run, monkeypatch):
    token = submitted(open_run, [expert_key(0), EXPERT])
    answer(monkeypatch, {})
    write_attempt(open_run, EXPERT, 1, token, "17_1", verdict=verdict("failed", "the loss is nan"))
    for found in (as_json(open_run), row(open_run)):
        assert found["next"].startswith("hpcddm logs ") and found["then"] == command("hpcddm", "retry", open_run.root)


def test_without_squeue_on_the_path_nothing_is_done_and_nothing_missing(open_run, monkeypatch):
    submitted(open_run, [EXPERT])
    monkeypatch.setenv("PATH", "/nowhere")
    assert row(open_run)["state"] == "unknown"


def test_the_failure_of_an_older_attempt_is_no_news_of_a_newer_job(open_run, monkeypatch):
    old = submitted(open_run, [EXPERT], "17", age=5000)
    write_attempt(open_run, EXPERT, 1, old, "17_0", verdict=verdict("failed", "old news"))
    answer(monkeypatch, {})
    assert row(open_run)["reason"] == "old news"
    submitted(open_run, [EXPERT], "18", age=400)
    found = row(open_run)
    assert found["state"] == "unknown" and "old news" not in found["reason"]
    assert found["reason"].startswith("its job 18_0 left the queue before Python began")
    answer(monkeypatch, {EXPERT: Job(JobId("18_0"), "pending", "Priority")})
    assert row(open_run)["state"] == "pending"


def test_a_cancelled_job_is_cancelled_and_one_that_was_never_confirmed_is_unknown(open_run, monkeypatch):
    answer(monkeypatch, {})
    submitted(open_run, [EXPERT], None)
    assert (row(open_run)["state"], "never confirmed" in row(open_run)["reason"]) == ("unknown", True)
    token = submitted(open_run, [EXPERT], "17")
    Journal(open_run.journal).record_cancelled(token)
    assert (row(open_run)["state"], row(open_run)["next"]) == ("cancelled", f"hpcddm retry {quoted(open_run.root)}")


def test_the_stop_file_is_told_and_what_to_do_about_it(open_run, begun):
    begun("running", heartbeat=beat())
    open_run.stop.touch()
    assert row(open_run)["state"] == "stopping"
    begun(None, verdict=verdict("stopped"))
    assert row(open_run)["next"] == f"rm {quoted(open_run.stop)} && hpcddm retry {quoted(open_run.root)}"


NEXT = [
    (Job(JobId("17_0"), "held", "JobHeldUser"), None, "scontrol release 17_0"),
    (Job(JobId("17_0"), "pending", "Priority"), None, ""),
    (None, "failed", "hpcddm logs {run} {unit}"),
    (None, "gave up", "hpcddm logs {run} {unit}"),
    (None, "by hand", "hpcddm retry {run}"),
    (None, None, "hpcddm logs {run} {unit}"),
]


@pytest.mark.parametrize("job, decision, following", NEXT)
def test_what_to_type_next(open_run, monkeypatch, job, decision, following):
    token = submitted(open_run, [EXPERT])
    answer(monkeypatch, {EXPERT: job} if job else {})
    if decision:
        write_attempt(open_run, EXPERT, 1, token, "17_0", verdict=verdict(decision))
    expected = following.format(run=quoted(open_run.root), unit=EXPERT)
    assert row(open_run)["next"] == expected
    lines = status(open_run).splitlines()
    assert (f"next: {expected}" if expected else f"under way; next: hpcddm wait {quoted(open_run.root)}") in lines
    is_to_be_mended = "logs" in expected
    assert (lines[-1] == f"after fixing that; next: hpcddm retry {quoted(open_run.root)}") == is_to_be_mended


def test_everything_that_a_running_training_says_is_shown(open_run, begun):
    begun("running", 3, heartbeat=beat(16, 32, saved=12))
    found = row(open_run)
    assert (found["attempts"], found["where"], found["job"]) == (3, "h1", "17_0")
    assert (found["done"], found["total"], found["step"], found["steps"]) == (16, 32, 2, 4)
    assert (found["loss"], found["rate"], found["seconds_left"], found["saved_images"]) == (0.25, 10.0, 1.6, 12)
    assert found["saved_seconds"] == pytest.approx(33, abs=2) and found["silent_seconds"] == pytest.approx(3, abs=2)
    shown = status(open_run)
    line = next(line for line in shown.splitlines() if line.startswith(EXPERT))
    assert line.split()[:-1] == [EXPERT, "running", "3", "h1", "16/32", "2/4", "0.2500", "10", "0:01"]
    assert "units complete, 1 running" in shown and "experts 75.0% (48 of 64 images)" in shown and "0:01 left" in shown


def test_the_figures_of_a_running_training_are_shown(open_run, begun):
    figures = {"loss": 0.25, "learning_rate": 1e-4, "gradient_norm": 1.5}
    figures |= {"images_per_second": 2048.25, "data_wait": 0.025, "tflops": 0.01234, "memory_gib": 0.3333}
    begun("running", heartbeat=beat(16, 32, figures=figures))
    found, wide = row(open_run), status(open_run)
    assert figures.items() <= found.items() and found["rate"] == 10.0
    line = next(line for line in wide.splitlines() if line.startswith(EXPERT))
    assert line.split()[6:11] == ["0.2500", "2048", "2.5%", "0.0123", "0.333"]
    assert "img/s  wait  TFLOP/s    GiB" in wide
    begun(None, heartbeat=beat(16, 32, age=900, figures=figures))
    found = row(open_run)
    assert [found[key] for key in ("images_per_second", "data_wait", "tflops", "memory_gib")] == [None] * 4
    assert (found["learning_rate"], found["gradient_norm"]) == (1e-4, 1.5)


def test_what_an_attempt_before_the_last_one_saved_is_still_there(open_run, begun):
    begun("running", heartbeat=beat(48, 64, saved=40), verdict=verdict("requeue"))
    begun("running", 2)
    found = row(open_run)
    assert (found["done"], found["saved_images"], found["rate"], found["seconds_left"]) == (48, 40, None, None)


def test_keys_for_programs_stay(run):
    assert as_json(run).keys() >= {"run", "queue", "complete", "expert_images", "seconds_left", "next", "then", "units"}
    keys = "unit state reason next site job where attempts done total step steps loss rate seconds_left saved_images"
    more = "images_per_second data_wait tflops memory_gib learning_rate gradient_norm"
    more += " cluster skipped saved_seconds silent_seconds user changes faulty_nodes then"
    assert row(run).keys() == {*keys.split(), *more.split()}


def test_a_node_that_ended_attempts_is_named_until_a_state_is_saved(open_run, begun):
    reason = "srun could not start the ranks on h2: Job credential expired"
    begun("running", verdict=verdict("requeue", reason) | {"by_slurm": True, "nodes": ["h2"]})
    begun("running", 2)
    assert f"node h2 is to blame for an attempt at {EXPERT}: {reason}" in status(open_run)
    assert row(open_run)["faulty_nodes"] == {"h2": reason}
    begun("running", 2, heartbeat=beat(48, 64, saved=40))
    assert row(open_run)["faulty_nodes"] == {}


def test_a_job_that_is_being_cancelled_is_stopping(open_run, begun):
    begun("running", heartbeat=beat())
    Journal(open_run.journal).record_cancelled(begun.token, [EXPERT])
    assert (row(open_run)["state"], row(open_run)["reason"]) == ("stopping", "by hpcddm cancel")


SOUTH = [expert_key(number) for number in (2, 3)]


@pytest.fixture
def two_sites(tmp_path, monkeypatch):
    """A run of two sites, each with half of the experts, as it is at one of them: its jobs, and what is complete."""

    def at(site, *complete, jobs=()):
        sites = {"experts__sites": ["north", "north", "south", "south"], "site": "north", "cluster__experts": 4}
        run, experiment = RunDir(tmp_path / site), tiny(tmp_path, **sites)
        store_experiment(experiment, run)
        units = plan_units(experiment)
        finish([unit for unit in units if unit.site is None or unit.key in complete], run)
        journal = Journal(run.journal)
        own = journal.record_intent("slurm", site, [unit.key for unit in units if unit.site == site])
        journal.record_submitted(own, "17")
        answer(monkeypatch, {key: Job(JobId("17_0"), "running", nodes="h1") for key in jobs})
        return run

    return at


def test_a_site_that_trains_for_another_one_waits_and_then_hands_over(two_sites, tmp_path, monkeypatch):
    for complete in (0, 1):
        run = two_sites("south", *SOUTH[:complete], jobs=SOUTH[complete:])
        hand_over = f"hand over {', '.join(SOUTH)} to site north; next: "
        hand_over += f"tar -C {run.root} -cf for-north.tar {' '.join(SOUTH)}"
        wait = [f"under way; next: hpcddm wait {run.root}", f"when they are complete, {hand_over}"]
        assert status(run).splitlines()[-2:] == wait
        # What the other site makes is of no use here.
        assert "copy" not in status(run) and {one["next"] for one in as_json(run)["units"]} == {""}
    last = status(two_sites("south", *SOUTH)).splitlines()[-1]
    assert last == hand_over
    monkeypatch.chdir(tmp_path)
    subprocess.run(shlex.split(last.partition("next: ")[2]), check=True)
    here = two_sites("north")
    subprocess.run(["tar", "-C", here.root, "-xf", "for-north.tar"], check=True)
    assert {row(here, key)["state"] for key in SOUTH} == {"complete"}


def test_the_site_that_needs_the_experts_of_another_one_waits_and_then_copies_them(two_sites):
    own = ["evaluators/extractor", "evaluators/classifier", MONOLITH, expert_key(0), expert_key(1), ROUTER]
    run = two_sites("north", *own[:-1], jobs=own[-1:])
    again = f"hpcddm submit {run.experiment} --run-dir {run.root} --site north"
    copy = f"copy {', '.join(SOUTH)} of site south into {run.root}; next: {again}"
    assert status(run).splitlines()[-2:] == [f"under way; next: hpcddm wait {run.root}", copy]
    run = two_sites("north", *own)
    assert row(run, SOUTH[0])["next"] == again


def test_a_setting_of_a_sweep_finds_its_jobs_in_the_journal_of_the_sweep(open_run, monkeypatch):
    home = RunDir(open_run.root.parent)
    submitted(home, ["other/train/expert-01", f"{open_run.root.name}/{EXPERT}"])
    answer(monkeypatch, {})
    assert "its job 17_1 left the queue" in row(open_run)["reason"]


def test_what_looks_like_markup_is_printed_as_it_is(open_run):
    write_attempt(open_run, EXPERT, 1, ended={"outcome": "failed", "reason": "[/red] no such tag [bold]"})
    shown = status(open_run)
    assert "[/red] no such tag [bold]" in shown and f"hpcddm logs {quoted(open_run.root)} {EXPERT}" in shown
    (open_run.unit("shard/train-000") / "output.bin").unlink()
    assert row(open_run, "shard/train-000")["reason"] == f"{open_run.unit('shard/train-000')}/output.bin is missing"
    assert "[/b] run[red]" in status(open_run)


@pytest.mark.parametrize("columns", ["40", "100"])
def test_a_reason_and_a_command_are_never_cut(open_run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    reason = "a reason of about eighty letters stands on one line, for somebody may search for it"
    write_attempt(open_run, EXPERT, 1, ended={"outcome": "failed", "reason": reason})
    assert f"{EXPERT}: failed, {reason}; next: hpcddm logs {quoted(open_run.root)} {EXPERT}" in status(open_run)


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_heartbeat_with_a_number_that_is_none_is_named_and_passed_over(open_run, loss):
    folder = write_attempt(open_run, EXPERT, 1, heartbeat=beat(figures={"loss": loss}))
    assert row(open_run)["loss"] is None and row(open_run)["state"] == "unknown"
    assert f"{folder}/heartbeat.json: holds no usable JSON (" in status(open_run)


def test_skipped_steps_stand_beside_the_loss(open_run):
    write_attempt(open_run, EXPERT, 1)
    assert row(open_run)["skipped"] == 0
    write_attempt(open_run, EXPERT, 1, heartbeat=beat(figures={"loss": 0.25, "skipped": 3}))
    assert row(open_run)["skipped"] == 3 and "(3" in status(open_run)


def test_a_stale_unit_gives_the_words_of_submit(run):
    before = manifest.read(run.unit(EXPERT))
    manifest.publish(run.unit(EXPERT), replace(before, settings=before.settings | {"seed": 7}))
    last = status(run).splitlines()[-1]
    assert last.startswith("submit will refuse: settings changed") and "seed: 7 -> 0" in last
    again = f"hpcddm submit {quoted(run.experiment)} --run-dir {quoted(run.root)} --redo train"
    assert last.endswith(f"; next: {again}")


ANIMALS, LETTERS = ["ant", "bee", "cat", "dog"], ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "key, source, line",
    [
        (None, None, None),
        (None, ANIMALS, "ant, bee, cat, dog"),
        (LETTERS, ANIMALS, "a, b, c, d"),
        (LETTERS, None, "a, b, c, d"),
    ],
)
def test_the_classes_are_named_in_one_line(run, tmp_path, key, source, line):
    store_experiment(tiny(tmp_path, data__class_names=key), run)
    folder = run.unit(CATALOG)
    if source:
        before = manifest.read(folder)
        manifest.publish(folder, replace(before, results=before.results | {"class_names": source}))
    elif key:
        (folder / "manifest.json").write_text("torn")
    said = [one.removeprefix("4 classes: ") for one in status(run).splitlines() if one.startswith("4 classes")]
    assert said == ([line] if line else [])


def test_a_process_of_this_machine_that_died_before_it_said_a_word(open_run):
    submitted(open_run, [EXPERT], "4711", "local", age=5)
    assert row(open_run)["state"] == "starting"
    submitted(open_run, [EXPERT], "4712", "local", age=60)
    assert row(open_run)["reason"] == "its job 4712 left the queue before Python began"
    assert f"next: hpcddm logs {quoted(open_run.root)} {EXPERT}" in status(open_run).splitlines()


def test_foreign_things_in_the_bookkeeping_are_passed_over(run):
    run.journal.write_text("[]\n3\n{}\n")
    (run.logs(EXPERT) / "attempt-1.bak").mkdir(parents=True)
    content = json.loads((run.unit(EXPERT) / "manifest.json").read_text())
    (run.unit(EXPERT) / "manifest.json").write_text(json.dumps(content | {"settings": "text"}))
    assert row(run)["state"] == "damaged" and row(run)["attempts"] == 0
    assert "manifest.json: holds no usable JSON (settings: Input should be an object)" in row(run)["reason"]
    (run.unit(EXPERT) / "manifest.json").unlink()
    folder = write_attempt(run, EXPERT, 1)
    names = ("owner", "first_step", "heartbeat", "ended", "verdict")
    for name in names:
        (folder / f"{name}.json").write_text("[3]")
    found = row(run)
    assert found["state"] == "unknown" and EXPERT in status(run)
    for name in names:
        assert f"{folder}/{name}.json: holds no usable JSON (Input should be an object)" in found["reason"]


def test_the_page_about_the_clusters_is_named_until_there_is_one_about_all(run):
    page = f"clusters {run.unit(CLUSTER_REPORT) / 'clusters.html'}"
    assert page not in status(run)
    (run.unit(REPORT) / "manifest.json").unlink()
    assert status(run).splitlines()[-2] == page
    found = manifest.read(run.unit(CLUSTER_REPORT))
    manifest.publish(run.unit(CLUSTER_REPORT), replace(found, results={"warnings": ["one", "another"]}))
    assert status(run).splitlines()[-2] == f"{page}, with 2 warnings"
    (run.unit(CLUSTER_REPORT) / "manifest.json").unlink()
    assert page not in status(run)


MADE_BEFORE = {"heartbeat": beat(32, 32, age=900, saved=32), "ended": {"outcome": "complete", "ended": ENDED - 800}}
NOTHING = dict.fromkeys("step loss rate seconds_left saved_images silent_seconds images_per_second".split())
NOTHING |= {"done": 0, "total": 0}


@pytest.mark.parametrize("job", ["pending", "running", "configuring", None])
def test_a_unit_that_is_made_anew_shows_nothing_of_the_making_before(open_run, monkeypatch, job):
    """Also while its job runs and has not begun it, and before there is a job."""
    before = submitted(open_run, [EXPERT], "16", age=1000)
    write_attempt(open_run, EXPERT, 1, before, "16_0", started=ENDED - 950, **MADE_BEFORE)
    if job:
        submitted(open_run, [EXPERT], age=10)
    answer(monkeypatch, {EXPERT: Job(JobId("17_0"), job, "h1")} if job else {})
    assert NOTHING.items() <= row(open_run).items() and "32/32" not in status(open_run)


def test_neither_does_one_that_is_outdated_nor_one_that_waits_here(open_run):
    """A report reads an expert that is made anew; on this machine units wait without a job."""
    submitted(open_run, [EXPERT, REPORT], "16", "local", age=1000)
    for key in (EXPERT, REPORT):
        write_attempt(open_run, key, 1, started=time.time() - 950, **MADE_BEFORE)
    for key in (EXPERT, REPORT):
        assert NOTHING.items() <= row(open_run, key).items()
    assert row(open_run)["state"] == "missing"


@pytest.mark.parametrize("images, shown", [(16, 16), (32, 32), (64, 0)])
def test_a_training_that_waits_is_where_the_state_is_from_which_it_goes_on(open_run, monkeypatch, images, shown):
    """A state of more images than the training shall see is of no use to it."""
    write_attempt(open_run, EXPERT, 1, submitted(open_run, [EXPERT], "16", age=1000), "16_0", **MADE_BEFORE)
    submitted(open_run, [EXPERT], age=10)
    unit = next(unit for unit in plan_units(tiny(open_run.root.parent)) if unit.key == EXPERT)
    inputs = {key: manifest.read(open_run.unit(key)) for key in unit.inputs}
    state = {"trajectory": unit.expected(inputs).trajectory, "images": images, "format": training_states.FORMAT}
    folder = open_run.unit(EXPERT) / training_states.FOLDER / training_states.folder_name(images)
    atomic.write_json(folder / training_states.STATE, state)
    answer(monkeypatch, {EXPERT: Job(JobId("17_0"), "pending", "Priority")})
    found = row(open_run)
    assert (found["done"], found["total"]) == ((shown, 32) if shown else (0, 0))
    assert found["saved_images"] == (shown or None) and found["loss"] is None
    assert (f"{shown}/32" in status(open_run)) == bool(shown)


def test_units_that_cannot_start_after_a_failure_share_one_line(tmp_path, monkeypatch):
    run, experiment = RunDir(tmp_path / "run"), tiny(tmp_path)
    store_experiment(experiment, run)
    units = [unit.key for unit in plan_units(experiment)]
    broken = [key for key in units if key.startswith("shard/")]
    token = submitted(run, units)
    for number, key in enumerate(units):
        end = verdict("waiting", f"{key} cannot start: shard/train-000 is not complete; see: x")
        end = verdict("failed", "no such folder") if key in broken else end
        write_attempt(run, key, 1, token, f"17_{number}", verdict=end)
    answer(monkeypatch, {})
    (line,) = [line for line in status(run).splitlines() if "cannot start" in line]
    failed = ", ".join(f"{key} (failed)" for key in broken)
    assert f"and {len(units) - len(broken) - 3} more: stopped, cannot start before {failed}" in line


def test_units_that_lacked_what_is_there_by_now_keep_their_reason(open_run, begun):
    end = verdict("waiting", f"{EXPERT} cannot start: expert_lists/all is not complete")
    begun(None, verdict=end)
    assert (row(open_run)["state"], row(open_run)["reason"]) == ("stopped", end["reason"])


def test_metrics_that_are_younger_than_a_comparison_are_counted_with_the_command_that_computes_them(run, capsys):
    made = manifest.read(run.unit("compare/own"))
    for missing, verb in ((), ""), (("kid",), "1 metric is"), (("fd", "kid"), "2 metrics are"):
        known = [metric.key for metric in all_metrics() if metric.key not in missing]
        manifest.publish(run.unit("compare/own"), replace(made, results={KNOWN_METRICS: known}))
        lines = [line for line in status(run).splitlines() if "not computed" in line]
        assert len(lines) == bool(missing)
        for line in lines:
            assert line.startswith(f"{verb} not computed: {', '.join(missing)}; next: hpcddm submit ")
            assert line.endswith(" --redo compare")
    print_nothing_to_do(Decision({}, complete=["compare/own"]), run)
    assert f"\n{lines[0]}\n" in capsys.readouterr().out
