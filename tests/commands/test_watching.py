"""Watching a run: `status --watch`."""

import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from hpcddm.commands import run_status
from hpcddm.commands import status as verb
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.unit_keys import expert_key
from tests.attempts import answer, submitted, write_attempt
from tests.commands.runs import complete_run
from tests.helpers import finish, hpcddm, tiny

EXPERT = expert_key(1)


@pytest.fixture
def run(tmp_path):
    """A run with one expert to be made."""
    return complete_run(tmp_path / "run", EXPERT)


def test_watching_needs_a_terminal(run):
    for arguments in (["--watch"], ["--watch", "--json"]):
        done = hpcddm("status", run.root, *arguments)
        assert done.exit_code == 2 and "--watch needs a terminal" in done.stderr


def watch(run):
    """Start `status --watch` on a terminal of its own; return the process and the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hpcddm.cli", "status", str(run.root), "--watch"]
    environment = os.environ | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    return process, ours


def read_until(terminal, word):
    said = b""
    while word not in said:
        said += os.read(terminal, 4096)
    return said


def test_watching_ends_quietly_on_ctrl_c_and_by_itself_when_all_is_complete(run):
    process, terminal = watch(run)
    read_until(terminal, b"next: hpcddm submit")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    finish(plan_units(tiny(run.root.parent)), run)
    process, terminal = watch(run)
    assert b"complete: " in read_until(terminal, b"index.html") and process.wait(20) == 0


@pytest.mark.parametrize("height, complete, remark", [(60, True, True), (16, False, True), (13, False, False)])
def test_on_a_small_screen_units_and_then_remarks_make_way_for_what_to_type(run, monkeypatch, height, complete, remark):
    token = submitted(run, [EXPERT])
    write_attempt(run, EXPERT, 1, token, "17_0", verdict={"decision": "failed", "reason": "the loss is nan"})
    answer(monkeypatch, {})
    console = verb.Console(width=160, height=height, file=io.StringIO())
    console.print(verb._screen(run_status.scan_run(run, run_status.QueueAnswer.query(run)), console))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= height and any(line.startswith(f"{EXPERT} ") for line in lines)
    assert any(line.startswith("shard/train-000") for line in lines) == complete
    assert any("the loss is nan" in line for line in lines) == remark
    assert "next: hpcddm logs" in console.file.getvalue()


def test_watching_asks_the_scheduler_seldom(run, monkeypatch):
    submitted(run, [EXPERT])
    began = time.time()
    asked, pauses, clock, really_sleep = answer(monkeypatch, {}), [], [began], time.sleep

    def sleep(seconds):
        if threading.current_thread() is not threading.main_thread():
            return really_sleep(seconds)  # A thread that an earlier test has left behind.
        pauses.append(seconds)
        clock[0] += seconds
        if len(pauses) == 60:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "time", lambda: clock[0])
    verb._watch(run, verb.Console(file=io.StringIO()))
    assert 300 <= clock[0] - began and len(asked) <= (clock[0] - began) / 30 + 1
    assert len(asked) >= 5 and all(5 <= seconds <= 6 for seconds in pauses)
