"""The verb retry: only what failed, with the stored experiment and site."""

import json
import os
from pathlib import Path

import pytest

from hpcddm.commands import retry as command
from hpcddm.launch.script_template import store_parts, stored_parts, user_parts
from hpcddm.launch.submission import store_site
from hpcddm.loading.last_command import SubmitCommand, store_command
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.commands.runs import submitted_run
from tests.helpers import FINAL, finish, hpcddm

EXPERT, OTHER = expert_key(1), expert_key(0)


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """The queue of a run whose every unit was submitted once; all but an expert and what reads it are complete."""
    _, queue, units = submitted_run(tmp_path, monkeypatch)
    finish([unit for unit in units if unit.key not in (EXPERT, *FINAL)], queue.run)
    return queue


@pytest.fixture
def run(queue):
    return queue.run


def retry(run, *arguments, code=0):
    done = hpcddm("retry", run.root, *arguments)
    assert done.exit_code == code, done.output
    return done.output


def submitted(queue):
    return [key for array in queue.submitted for key in array.keys]


def test_what_failed_and_what_reads_it_is_submitted_anew(run, queue):
    said = retry(run)
    assert submitted(queue) == [EXPERT, *FINAL] and f"again: {EXPERT}, {', '.join(FINAL)}" in said


OWN = {"slurm/job.sbatch.j2": "#!/bin/bash\n# as submitted\n"}


def test_it_follows_the_template_of_the_submission_from_every_folder(run, queue, tmp_path, monkeypatch):
    store_parts(run, OWN)
    (tmp_path / "elsewhere/slurm").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = retry(run)
    assert queue.template_parts == stored_parts(run) == OWN
    assert f"the batch script follows {run.root}/template/job.sbatch.j2, as submitted" in said
    (tmp_path / "elsewhere/slurm/python_env.sh.j2").write_text("# another one\n")
    queue.template_parts = user_parts()
    said = retry(run)
    assert "slurm/python_env.sh.j2 here is another one, which hpcddm submit would take" in said
    assert queue.template_parts == OWN


def minutes_of_expert(queue):
    minutes = {array.resources.minutes for array in queue.submitted if EXPERT in array.keys}
    queue.submitted.clear()
    return minutes


PLACES = [("mine.yaml", "mine.yaml"), ("mine", "mine.yaml"), ("mine", "slurm/sites/mine.yaml"), (None, "north.yaml")]


@pytest.mark.parametrize(("given", "file"), PLACES)
def test_a_site_file_that_was_repaired_since_the_last_submission_counts(run, queue, tmp_path, monkeypatch, given, file):
    path = tmp_path / "work" / file
    path.parent.mkdir(parents=True)
    site = queue.site.model_dump(mode="json")
    path.write_text(json.dumps(site | {"setup": ["module load wrong"]}))
    os.utime(path, (1, 1))
    words = ["tiny", *(["--site", given] if given else [])]
    store_command(SubmitCommand(words, str(tmp_path / "work")), run)
    assert "was written since" not in retry(run, "--resource", "minutes=120") and minutes_of_expert(queue) == {120}
    assert "was written since" not in retry(run) and minutes_of_expert(queue) == {120}, "kept"
    path.write_text(json.dumps(site | {"setup": ["module load right"]}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert f"{path} was written since the last submission" in retry(run) and minutes_of_expert(queue) == {60}
    assert json.loads(run.site(queue.site.name).read_text())["setup"] == ["module load right"]
    assert "was written since" not in retry(run)


def test_a_site_file_that_was_renamed_meanwhile_is_named_with_the_option(run, queue, tmp_path):
    store_command(SubmitCommand(["tiny", "--site", "mine.yaml"], str(tmp_path)), run)
    (tmp_path / "mine.yaml").write_text(json.dumps(queue.site.model_dump(mode="json") | {"name": "south"}))
    assert f"is now that of another site, south; this retry uses the run's copy of {queue.site.name}" in retry(run)


def test_in_the_folder_of_the_run_its_own_files_are_no_word_of_the_users(run, queue, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
    planted = {"name": "north", "scheduler": "slurm", "hook": "touch /evil"}
    (run.root / "slurm/sites").mkdir(parents=True)
    (run.root / "slurm/sites/north.yaml").write_text(json.dumps(planted))
    (run.root / "slurm/python_env.sh.j2").write_text("touch /evil\n")
    run.site("north").write_text(json.dumps(queue.site.model_dump(mode="json") | planted))
    run.template.mkdir()
    (run.template / "python_env.sh.j2").write_text("touch /evil\n")
    monkeypatch.chdir(run.root)
    said = retry(RunDir(Path()), code=2)
    assert f"note: {run.root}/slurm/sites/north.yaml is passed over: it is inside the run {run.root}, " in said
    assert f"note: {run.root}/slurm/python_env.sh.j2 is passed over" in said and 'site key hook: "touch /evil"' in said
    assert "the site 'north' and the template that the run holds are not known here: no submission of yours" in said
    assert "no site named 'north'" in retry(RunDir(Path()), "--site", "north", code=2) and not queue.submitted
    retry(RunDir(Path()), "--site", "./slurm/sites/north.yaml")
    assert submitted(queue) == [EXPERT, *FINAL] and queue.site.hook == "touch /evil", "a path is the user's word"
    assert user_parts() == {}


def test_what_runs_is_left_alone(run, queue):
    queue.alive = [EXPERT, *FINAL]
    assert "nothing to retry" in retry(run) and submitted(queue) == []


def test_what_was_never_submitted_is_not_retried(run, queue):
    journal = Journal(run.journal)
    (one,) = journal.submissions()
    run.journal.unlink()
    journal.record_submitted(journal.record_intent("slurm", "north", [EXPERT]), "7")
    retry(run)
    assert submitted(queue) == [EXPERT, *FINAL], "what reads it goes along"
    run.journal.unlink()
    journal.record_submitted(journal.record_intent("slurm", "north", [MONOLITH]), "7")
    queue.submitted.clear()
    assert "nothing to retry" in retry(run) and submitted(queue) == []


def test_resources_change_for_what_failed_only(run, queue):
    queue.alive, queue.state = FINAL, "pending"
    retry(run, "--resource", "minutes=120", "--resource", "partition=long")
    changed = {key: array.resources for array in queue.submitted for key in array.keys}
    shapes = {key: (resources.minutes, resources.partition) for key, resources in changed.items()}
    assert shapes == {EXPERT: (120, "long")} | dict.fromkeys(FINAL, (60, None))


def test_a_named_unit_alone_leaves_other_failures(run, queue):
    (run.unit(OTHER) / "manifest.json").unlink()
    said = retry(run, EXPERT)
    assert submitted(queue) == [EXPERT], "the final step would lack the other"
    assert f"{OTHER} was not among what is submitted; draw, measure, compare, report wait for it" in said
    queue.submitted.clear()
    retry(run, EXPERT, OTHER)
    assert submitted(queue) == [OTHER, EXPERT, *FINAL]


def test_a_cancelled_unit_that_is_left_out_is_named_with_the_command_that_brings_it_back(run, queue):
    (run.unit(OTHER) / "manifest.json").unlink()
    journal = Journal(run.journal)
    (first,) = journal.submissions()
    journal.record_cancelled(first.uuid, [EXPERT, OTHER])
    said = retry(run, EXPERT)
    assert "elsewhere" not in said and "copy" not in said
    command = f"hpcddm retry {run.root} {OTHER}"
    assert f"{OTHER} was cancelled; draw, measure, compare, report wait for it; next: {command}\n" in said
    queue.alive = [EXPERT]
    queue.submitted.clear()
    retry(run, *command.split()[3:])
    assert submitted(queue) == [OTHER, *FINAL]


REFUSED = {
    "unknown": (["train/expert-09"], 2, "has no unit 'train/expert-09'; valid: shard/train-000"),
    "complete": ([OTHER], 1, f"{OTHER}: it is complete"),
    "reads what failed": ([FINAL[1]], 1, f"{FINAL[1]}: it reads {FINAL[0]}, which is not complete"),
    "no resource": ([EXPERT, "--resource", "minutes"], 2, "--resource minutes: needs NAME=VALUE"),
    "unknown resource": ([EXPERT, "--resource", "hours=2"], 2, "hours: unknown key; valid keys: partition"),
    "no number": ([EXPERT, "--resource", "minutes=many"], 2, "minutes: input should be a valid integer"),
    "unknown site": ([EXPERT, "--site", "nowhere"], 2, "no site named 'nowhere'"),
    "stage": (["evaluators"], 1, "evaluators/extractor: it is complete; nothing to retry"),
}


@pytest.mark.parametrize("arguments, code, words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_retried_is_named(run, queue, arguments, code, words):
    said = retry(run, *arguments, code=code)
    assert said.startswith("error: ") and words in said and said.count("\n") == 1 and submitted(queue) == []


def test_one_that_is_in_the_queue_is_named(run, queue):
    queue.alive = [EXPERT]
    assert f"{EXPERT}: it is in the queue or running; cancel it before" in retry(run, EXPERT, code=1)


def test_a_run_of_two_sites_asks_which(run, queue):
    store_site(queue.site.model_copy(update={"name": "south"}), run)
    Journal(run.journal).record_intent("slurm", "south", ["x"])
    assert "submitted from north, south; choose one with --site" in retry(run, code=2)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")


def test_the_images_are_found_from_anywhere(run, queue, elsewhere):
    (run.unit("shard/train-000") / "manifest.json").unlink()
    retry(run)
    assert submitted(queue)[0] == "shard/train-000"
    assert command.stored_experiment(run).data.source.folder == "../images"
