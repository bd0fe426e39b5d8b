"""What verbs advise to type in real situations: it can be pasted, and it does what it says."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from hpcddm.commands import submit as submitting
from hpcddm.commands import wait as waiting
from hpcddm.config import trusted_submissions
from hpcddm.errors.printing import quoted
from hpcddm.launch.base import Job
from hpcddm.loading import last_command
from hpcddm.pipeline.unit_graph import needed_by, plan_units
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONTINUATION, EXTRACTOR, REPORT, expert_key
from tests.attempts import answer, beat, submitted, write_attempt
from tests.commands.runs import bare_run
from tests.errors.test_next_step import commands_of, require_advice
from tests.helpers import FINAL, REPOSITORY, finish, hpcddm, tiny, write_experiment, write_source

EXPERT, OTHER = expert_key(0), expert_key(1)
ODD = "it's [a] folder; $HOME"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run in a folder with an odd name, of which nothing is made."""
    monkeypatch.setattr(waiting, "READ_SECONDS", 0.05)
    (tmp_path / ODD).mkdir()
    return bare_run(tmp_path / ODD / "run")


def made(run, *stages_not):
    """Make all units of a run complete, but for some stages or units."""
    units = plan_units(tiny(run.root.parent))
    finish([unit for unit in units if not unit.key.startswith(stages_not or ("no such",))], run)


def keep(run, words=("submit", "tiny.yaml"), folder=None, until=None):
    """Keep a command with a run, as a submission from a folder does."""
    one = last_command.SubmitCommand(list(words), str(folder or run.root.parent), until)
    last_command.store_command(one, run)
    return one


def made_up_to(stage, run):
    """Make what a submission up to a stage asks for complete; return all units, and the keys of these."""
    units = plan_units(tiny(run.root.parent))
    needed = needed_by(stage, units)
    finish([unit for unit in units if unit.key in needed], run)
    keep(run, until=stage)
    return units, needed


def seen(run, code=0):
    """Look at a run with both verbs; return the text, the object for programs, and the error of wait."""
    shown, values = hpcddm("status", run.root, "--exit-code"), json.loads(hpcddm("status", run.root, "--json").stdout)
    waited = hpcddm("wait", run.root, "--timeout", "0.002")
    assert (shown.exit_code, waited.exit_code) == (code, code), shown.output + waited.output
    require_advice(shown.output)
    require_advice(waited.output)
    for line in filter(None, [values["next"], *(unit["next"] for unit in values["units"])]):
        require_advice(f"next: {line}", 1)
    return shown.output, values, waited.output


JOB = JobId("17_0")
SITUATIONS = {
    "waits": (Job(JOB, "pending", "Priority"), {}, 5),
    "held": (Job(JobId("17_0@annex"), "held", "JobHeldUser"), {}, 3),
    "runs": (Job(JOB, "running", "h1"), {"heartbeat": beat()}, 5),
    "suspended": (Job(JOB, "suspended"), {"heartbeat": beat()}, 5),
    "too little memory": (None, {"verdict": {"decision": "gave up", "memory_gb": 9}}, 3),
    "cannot start": (None, {"verdict": {"decision": "waiting", "reason": "x; next: hpcddm status old"}}, 3),
}
SITUATIONS |= dict.fromkeys(("nothing submitted", "lost"), (None, {}, 3))
DECISIONS = ("failed", "gave up", "by hand", "stopped", "cancelled")
SITUATIONS |= {decision: (None, {"verdict": {"decision": decision}}, 3) for decision in DECISIONS}
AT_ONCE = ("by hand", "stopped", "cannot start", "cancelled", "nothing submitted")
"""Situations in which there is nothing to be read before."""
VERDICT = {"reason": "x", "exit_code": 1, "started": 0.0, "ended": 1.0}


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("sites, stop", [(1, False), (2, True)])
def test_whatever_becomes_of_a_unit_all_that_is_advised_can_be_pasted(run, monkeypatch, name, sites, stop):
    job, files, code = SITUATIONS[name]
    made(run, "train/expert-00", *FINAL)
    if sites == 2:
        Journal(run.journal).record_submitted(Journal(run.journal).record_intent("slurm", "south", [OTHER]), "3")
    if name != "nothing submitted":
        files = {key: VERDICT | value if key == "verdict" else value for key, value in files.items()}
        token = submitted(run, [EXPERT])
        if files:
            write_attempt(run, EXPERT, 1, token, "17_0", **files)
    if stop:
        run.stop.touch()
    answer(monkeypatch, {EXPERT: job} if job else {})
    shown, values, _ = seen(run, code)
    commands = commands_of(values["next"])
    assert (commands[0] == ["rm", str(run.stop)]) == (stop and name in AT_ONCE)
    advised = [words for line in shown.splitlines() for words in commands_of(line.partition("next: ")[2])]
    retries = [words for words in advised if "retry" in words]
    assert all(("--site" in words) == (sites == 2) for words in retries)
    if name == "too little memory":
        assert retries and all(words[3:6] == [EXPERT, "--resource", "memory_gb=9"] for words in retries)
    assert "status old" not in shown
    assert code != 5 or ("submit" not in shown and "retry" not in shown), "jobs that wait or run do it"


def test_nothing_but_a_look_or_patience_is_advised_while_the_scheduler_is_silent_or_a_job_submits(run, monkeypatch):
    submitted(run, [CONTINUATION])
    answer(monkeypatch, {CONTINUATION: Job(JOB, "pending", "Dependency")})
    shown, values, _ = seen(run, 5)
    assert commands_of(values["next"]) == [["hpcddm", "wait", str(run.root)]] and "submit " not in shown
    made(run, "report")
    submitted(run, [REPORT])
    answer(monkeypatch, None)
    shown, values, _ = seen(run, 4)
    assert commands_of(values["next"]) == [["hpcddm", "status", str(run.root)]] and "submit" not in shown


def test_the_typed_command_is_repeated_with_its_overrides_and_from_its_folder(run, monkeypatch):
    made(run, "report")
    words = ["submit", "tiny.yaml", "data.source.folder=my $pictures", "evaluate.strategies=[top-1, 'top-2']"]
    words = keep(run, [*words, "--site", "sites/my site.yaml"]).words
    monkeypatch.chdir(run.root.parent)
    (there,) = require_advice(hpcddm("status", "run").output, 1)
    assert commands_of(there) == [["hpcddm", *words, "--run-dir", "run"]]
    monkeypatch.chdir("/")
    (elsewhere,) = require_advice(hpcddm("status", run.root).output, 1)
    assert commands_of(elsewhere) == [["cd", str(run.root.parent)], ["hpcddm", *words, "--run-dir", str(run.root)]]


def test_what_others_typed_is_not_advised(run, monkeypatch, tmp_path):
    made(run, "report")
    keep(run, ["submit", "/theirs/evil.yaml", "--site", "/theirs/site.yaml"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody else"))
    submitted(run, [OTHER])
    answer(monkeypatch, {})
    shown, values, _ = seen(run, 3)
    submit = ["hpcddm", "submit", str(run.experiment), "--run-dir", str(run.root), "--site", "north"]
    assert commands_of(values["next"]) == [submit] and "evil" not in shown and "/theirs" not in shown


@pytest.mark.parametrize("until", ["cluster", "train", "report"])
def test_a_run_that_was_asked_to_stop_at_a_stage_is_complete_up_to_it(run, monkeypatch, until):
    units, needed = made_up_to(until, run)
    answer(monkeypatch, {})
    shown, values, waited = seen(run, 0)
    if until == "report":
        assert "index.html" in shown and values["next"] == ""
        return
    assert f"all up to {until}, the last requested stage" in shown and f"all up to {until}" in waited
    assert [words for words in commands_of(values["next"]) if "submit" in words and "--until" not in words]
    assert [unit["next"] for unit in values["units"] if unit["unit"] not in needed] == [""] * (len(units) - len(needed))
    # One of the units that were asked for is gone: it is repeated as it was asked for.
    (run.unit("cluster/all") / "manifest.json").unlink()
    _, values, waited = seen(run, 3)
    assert commands_of(values["next"])[-1][-2:] == ["--until", until] and "nothing goes on by itself" in waited


@pytest.mark.parametrize("decision, code", [("failed", 3), ("cancelled", 0)])
def test_what_failed_behind_the_last_stage_still_needs_somebody(run, monkeypatch, decision, code):
    made_up_to("cluster", run)
    verdict = VERDICT | {"decision": decision}
    write_attempt(run, EXPERT, 1, submitted(run, [EXPERT]), "17_0", verdict=verdict)
    answer(monkeypatch, {})
    seen(run, code)
    answer(monkeypatch, {EXTRACTOR: Job(JOB, "running", "h1")})
    submitted(run, [EXTRACTOR], "18")
    seen(run, 5)


def pasted(line, folder):
    """Paste a line into a shell, with `hpcddm` as the only program that is not its own."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "hpcddm").write_text(f'#!/bin/sh\nexec {quoted(sys.executable)} -P -m hpcddm.cli "$@"\n')
    (programs / "hpcddm").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_real_run_goes_on_by_what_its_verbs_print(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "READ_SECONDS", 0.05)
    place, away = tmp_path / ODD, tmp_path / "away"
    place.mkdir()
    away.mkdir()
    write_source(place / "images")
    write_experiment(place)
    run, words = RunDir(place / "my run"), ["submit", "tiny.yaml", "seed=3", "--site", "embedded"]
    first = ["hpcddm", *words, "--run-dir", "my run", "--until", "catalog", "--wait"]
    done = pasted(f"cd {quoted(place)} && {' '.join(map(quoted, first))}", away)
    assert done.returncode == 0, done.stderr
    assert commands_of(require_advice(done.stdout, 1)[0]) == [["hpcddm", *words, "--run-dir", "my run"]]
    # The rest, with the same settings: nothing is stale, and what was made stays.
    whole = seen(run, 0)[1]["next"]
    assert commands_of(whole) == [["cd", str(place)], ["hpcddm", *words, "--run-dir", str(run.root)]]
    rest = pasted(f"{whole} --dry-run", away)
    assert rest.returncode == 0 and "catalog/all" not in rest.stdout and "report/all" in rest.stdout, rest.stderr
    # What was made is lost: the command that follows the log brings it back, and ends at the same stage.
    (run.unit("catalog/all") / "manifest.json").unlink()
    shown = seen(run, 3)[0]
    again = pasted(require_advice(shown)[-1], away)
    assert again.returncode == 0 and "not requested" in again.stdout, again.stdout + again.stderr + again.args[2]
    seen(run, 0)


def test_a_sweep_is_repeated_as_a_sweep(run, monkeypatch):
    home = RunDir(run.root.parent)
    (home.root / "sweep.json").write_text("{}")
    made(run, "report")
    one = keep(home, ["sweep", "guidance", "--only", "guidance=1.5", "--site", "north"], "/")
    assert trusted_submissions.is_known(home.root, asdict(one))
    steps = [last_command.repeat_commands(run), *map(last_command.retry_commands, (run, home))]
    assert steps == [(("cd", "/"), ("hpcddm", *one.words, "--run-dir", home.root))] * 3
    home.command.unlink()
    assert str(last_command.resubmit_step(run)) == "submit the sweep again with the command that began it"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with an experiment of two sites and the file of one of them, where nothing is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submitting, "_run_here", lambda *arguments: 0)
    write_source(tmp_path / "images")
    write_experiment(tmp_path, experts__sites=["mine", "theirs"], site="mine", distill=None)
    (tmp_path / "mine site.yaml").write_text("name: mine\nscheduler: local\n")
    return tmp_path


def test_the_first_submission_at_one_of_two_sites_advises_to_repeat_what_was_typed(here, monkeypatch):
    words = ["submit", "tiny.yaml", "--site", "mine site.yaml", "--run-dir", "run"]
    done = hpcddm(*words)
    assert done.exit_code == 0, done.output
    (line,) = {line for line in require_advice(done.output)}
    assert "waiting for elsewhere" in done.output and commands_of(line) == [["hpcddm", *words]]
    # One that names no site is at this one.
    monkeypatch.chdir(here / "images")
    again = hpcddm("submit", here / "run/experiment.json", "--run-dir", here / "run")
    assert again.exit_code == 0 and "   site mine   " in again.output, again.output
    assert f"note: at site {here}/mine site.yaml, as in your last command for this run" in again.output
    # What others typed is not believed.
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "somebody else"))
    assert "as in your last command" not in hpcddm("submit", here / "tiny.yaml", "--run-dir", here / "run").output
