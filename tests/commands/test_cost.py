"""The verb cost: what every attempt cost, from sacct or from the run's own records, and how much was for nothing."""

import json
import time

import pytest

from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import expert_key
from tests.attempts import beat, submitted, write_attempt
from tests.commands.runs import bare_run
from tests.helpers import hpcddm

EXPERTS = [expert_key(0), expert_key(1)]
EXPERT = EXPERTS[1]
NOW = int(time.time())
HOUR = 3600
TRES = "billing=4,cpu=4,gres/gpu=2,mem=8G,node=2"


@pytest.fixture
def run(tmp_path):
    """A run of which only the stored experiment is there."""
    return bare_run(tmp_path / "run")


@pytest.fixture
def sacct(tmp_path, monkeypatch):
    """Set what sacct prints; `sacct.asked()` are the arguments of all its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def answer(*rows, code=0):
        (folder / "rows").write_text("".join(f"{row}\n" for row in rows))
        script = f'#!/bin/sh\necho "$@" >> {folder}/asked\ncat {folder}/rows {">&2" if code else ""}\nexit {code}\n'
        (folder / "sacct").write_text(script)
        (folder / "sacct").chmod(0o755)

    answer.asked = lambda: (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    return answer


def execution(token, job, started, seconds, state="REQUEUED", tres=TRES):
    def clock(when):
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(when)) if when else "Unknown"

    end = clock(started and started + seconds)
    return f"{job}|tiny-train-{token}|{clock(started)}|{end}|{seconds}|{state}|{tres}"


def verdict(decision, started, seconds):
    return {"decision": decision, "reason": "", "exit_code": 0, "started": started, "ended": started + seconds}


def as_json(run, *arguments):
    done = hpcddm("cost", run.root, "--json", *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def attempts(run, *arguments):
    return as_json(run, *arguments)["attempts"]


@pytest.fixture
def requeued(run):
    """Two slots of one expert: images 0 to 100, of which 20 were not saved, then 80 to 128; each took an hour."""
    token = submitted(run, EXPERTS, age=4 * HOUR)
    first, second = NOW - 3 * HOUR, NOW - HOUR
    files = {"first_step": {"images": 0}, "ended": {"outcome": "stopped", "images": 100}}
    write_attempt(run, EXPERT, 1, token, "17_1", started=first, verdict=verdict("requeue", first, HOUR), **files)
    files = {"first_step": {"images": 80}, "ended": {"outcome": "complete", "images": 128}}
    write_attempt(run, EXPERT, 2, token, "17_1", started=second, verdict=verdict("complete", second, HOUR), **files)
    return token, first, second


def test_own_records_give_hours_and_the_share_that_was_repeated(run, requeued):
    first, second = attempts(run, "--records")
    assert (first["attempt"], first["seconds"], first["cpu_hours"], first["gpu_hours"]) == (1, HOUR, 4, 2)
    assert (first["wasted"], second["wasted"]) == (0.2, 0)
    assert not first["is_estimate"] and first["source"] == second["source"] == "records"
    total = as_json(run, "--records")["total"]
    assert (total["cpu_hours"], total["gpu_hours"]) == (8, 4) and not total["is_estimate"]
    assert (total["wasted_cpu_hours"], total["wasted_gpu_hours"]) == pytest.approx((0.8, 0.4))


def test_sacct_counts_every_execution_of_a_requeued_element_and_is_asked_once(run, requeued, sacct):
    token, first, second = requeued
    rows = [execution(token, "17_1", first - 2, HOUR + 4), execution(token, "17_1", second - 1, HOUR + 1, "COMPLETED")]
    sacct(*reversed(rows), execution(token, "17_[2-3]", None, 0, "PENDING"))
    found = as_json(run)
    assert [one["seconds"] for one in found["attempts"]] == [HOUR + 4, HOUR + 1]
    assert [one["source"] for one in found["attempts"]] == ["sacct", "sacct"] and found["source"].startswith("sacct")
    (asked,) = sacct.asked()
    assert "--duplicates" in asked and f"--name=tiny-train-{token}" in asked
    assert attempts(run, "--records")[0]["seconds"] == HOUR and len(sacct.asked()) == 1


def test_an_execution_that_died_before_python_is_wasted_and_told_by_sacct_alone(run, requeued, sacct):
    token, first, second = requeued
    sacct(
        execution(token, "17_1", first, HOUR),
        execution(token, "17_1", first + HOUR + 60, 30, "NODE_FAIL"),
        execution(token, "17_1", second, HOUR, "COMPLETED"),
        execution(token, "17_0", second, 5, "FAILED"),
        execution("ffffffffffff", "99_0", second, 5, "FAILED"),
    )
    found = [(one["unit"], one["attempt"], one["seconds"], one["wasted"]) for one in attempts(run)]
    expected = [(EXPERT, 1, HOUR, 0.2), (EXPERT, None, 30, 1.0), (EXPERT, 2, HOUR, 0.0), (EXPERTS[0], None, 5, 1.0)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert "node_fail before Python" in hpcddm("cost", run.root).stdout


def test_an_element_that_came_back_under_another_job_id_is_the_same_unit(run, sacct):
    token = submitted(run, EXPERTS, "17", age=4 * HOUR)
    first, second = NOW - 3 * HOUR, NOW - HOUR
    write_attempt(run, EXPERT, 1, token, "17_1", started=first, verdict=verdict("resubmit", first, HOUR))
    write_attempt(run, EXPERT, 2, token, "23_1", started=second, verdict=verdict("complete", second, HOUR))
    # Another job of the unit, which began at the same time as the first and died before Python.
    other = execution(token, "24_1", first, 9)
    sacct(other, execution(token, "17_1", first + 2, 100), execution(token, "23_1", second, 200))
    found = [(one["unit"], one["attempt"], one["seconds"]) for one in attempts(run)]
    assert found == [(EXPERT, None, 9), (EXPERT, 1, 100), (EXPERT, 2, 200)]


def test_gpus_that_accounting_does_not_count_are_taken_from_our_records(run, requeued, sacct):
    token, first, second = requeued
    tres = "billing=4,cpu=4,gres/gpu:a100=1,gres/gpu:v100=2,node=2"
    sacct(execution(token, "17_1", first, HOUR, tres="cpu=6,node=2"), execution(token, "17_1", second, HOUR, tres=tres))
    assert [(one["cpus"], one["gpus"]) for one in attempts(run)] == [(6, 2), (4, 3)]


DISABLED = "Slurm accounting storage is disabled"


SILENCE = {"": "sacct knows nothing of it", DISABLED: f"sacct does not answer: {DISABLED}"}


@pytest.mark.parametrize("row, words", SILENCE.items())
def test_without_sacct_the_own_records_count_and_the_output_says_so(run, requeued, sacct, row, words):
    sacct(*filter(None, [row]), code=int(bool(row)))
    assert [one["seconds"] for one in attempts(run)] == [HOUR, HOUR]
    assert as_json(run)["source"] == f"the run's own records ({words})"
    assert f"source: the run's own records ({words})" in hpcddm("cost", run.root).stdout


def test_an_attempt_that_died_unrecorded_is_an_estimate_until_its_last_sign_of_life(run):
    token, now = submitted(run, EXPERTS), time.time()
    write_attempt(run, EXPERT, 1, token, "17_1", started=now - 1000, heartbeat=beat(age=395))
    write_attempt(run, EXPERT, 2, token, "17_1", started=now - 300, ended={"outcome": "stopped", "ended": now - 100})
    first, second = attempts(run, "--records")
    assert first["seconds"] == pytest.approx(605, abs=3) and second["seconds"] == pytest.approx(200)
    assert first["is_estimate"] and second["is_estimate"] and first["ending"] == "no word"
    shown = hpcddm("cost", run.root, "--records").stdout
    assert "~10:0" in shown and "~ is an estimate" in shown


def test_a_running_attempt_counts_up_to_now_and_wastes_nothing(run):
    files = {"first_step": {"images": 0}, "heartbeat": beat()}
    write_attempt(run, EXPERT, 1, submitted(run, EXPERTS), "17_1", started=time.time() - 600, **files)
    (one,) = attempts(run, "--records")
    assert one["seconds"] == pytest.approx(600, abs=20) and (one["ending"], one["wasted"]) == ("running", 0)
    assert not one["is_estimate"] and one["ended"] is None
    assert "1 attempts still run" in hpcddm("cost", run.root, "--records").stdout


BEGUN = {"first_step": {"images": 0}}


@pytest.mark.parametrize(
    "files, wasted",
    [
        ({"ended": {"outcome": "complete"}}, 0.0),
        ({"ended": {"outcome": "already complete"}}, 1.0),
        ({"ended": {"outcome": "failed"}}, 1.0),
        ({"first_step": {"images": 10}, "ended": {"outcome": "failed", "images": 10}}, 1.0),
        ({"first_step": {"images": 0}, "heartbeat": beat(80, age=900, saved=60)}, 0.25),
        ({"first_step": {"images": 0}, "heartbeat": beat(80, age=900)}, 1.0),
        (BEGUN | {"heartbeat": beat(80, saved=60), "ended": {"outcome": "failed", "images": 60}}, 0.25),
        (BEGUN | {"heartbeat": beat(80, saved=60), "ended": {"outcome": "stopped", "images": 96}}, 0.0),
    ],
)
def test_what_led_to_nothing_is_wasted(run, files, wasted):
    write_attempt(run, EXPERT, 1, **files)
    assert attempts(run)[0]["wasted"] == wasted


def test_the_images_of_an_attempt_that_nobody_continued_at_once_are_compared_with_the_next_that_began(run):
    stopped = {"outcome": "stopped", "images": 100}
    write_attempt(run, EXPERT, 1, first_step={"images": 0}, ended=stopped)
    write_attempt(run, EXPERT, 2, ended={"outcome": "failed"})
    write_attempt(run, EXPERT, 3, first_step={"images": 50}, ended={"outcome": "complete", "images": 128})
    assert [one["wasted"] for one in attempts(run)] == [0.5, 1.0, 0.0]


def test_what_a_failed_attempt_had_not_saved_is_wasted_though_it_recorded_its_end(run):
    write_attempt(
        run, EXPERT, 1, **BEGUN, heartbeat=beat(80, age=900, saved=60), ended={"outcome": "failed", "images": 60}
    )
    write_attempt(run, EXPERT, 2, first_step={"images": 60}, ended={"outcome": "complete", "images": 128})
    assert [one["wasted"] for one in attempts(run)] == [0.25, 0.0]


def test_the_table_has_a_line_for_each_attempt_and_one_for_the_unit(run, requeued):
    lines = hpcddm("cost", run.root, "--records").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(EXPERT)]
    assert rows[0] == [EXPERT, "1", "17_1", "requeue", "1:00:00", "2", "2.00", "0.4000", "4", "4.00", "0.8000"]
    assert rows[2] == [EXPERT, "all", "2:00:00", "4.00", "0.4000", "8.00", "0.8000"]
    wasted = "0.4000 of them wasted (10.0%); 8.00 CPU-hours, 0.8000 of them wasted (10.0%)"
    assert f"total: 4.00 GPU-hours, {wasted}" in lines


def test_a_sweep_is_added_up_setting_by_setting(tmp_path):
    home = RunDir(tmp_path / "sweep")
    home.root.mkdir()
    token = submitted(home, ["a=1/train/expert-00", "a=2/train/expert-00"])
    ended = {"decision": "complete", "started": NOW - 3600, "ended": NOW}
    for number, label in enumerate(("a=1", "a=2")):
        place = bare_run(home.root / label)
        write_attempt(place, expert_key(0), 1, token, f"17_{number}", started=NOW - 3600, verdict=ended)
    (home.root / "sweep.json").write_text("{}")
    total = as_json(home, "--records")["total"]
    assert total["gpu_hours"] == pytest.approx(4) and total["cpu_hours"] == pytest.approx(8)
    said = hpcddm("cost", home.root, "--records").stdout
    assert [line.split()[:2] for line in said.splitlines() if line.startswith("a=")] == [["a=1", "all"], ["a=2", "all"]]
