"""Links that came with the folders of others: every verb names them, and changes nothing of the user's behind them."""

import hashlib
import os
import shutil

import pytest

from hpcddm.launch.script_template import store_parts
from hpcddm.runs.journal import Journal
from hpcddm.runs.unit_keys import expert_key
from tests.commands.runs import submitted_run
from tests.helpers import finish, hpcddm

EXPERT, OTHER = expert_key(1), expert_key(0)
NAMES = ("state", "tensorboard", "snapshots", "images-000000000064", "train", "expert-01", "attempt-1", "1")
FILES = ".lease manifest.json journal.jsonl remaining.json python_env.sh.j2 north.json experiment.json".split()


def digest(folder):
    """Hash names and contents of all below a folder."""
    files = {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}
    return hashlib.sha256(repr(files).encode()).hexdigest()


@pytest.fixture
def users(tmp_path):
    """What the user has beside the run, under the names that the package writes and removes."""
    folder = tmp_path / "user"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "only-copy.txt").write_text("precious")
    for name in FILES:
        (folder / name).write_text("precious")
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A submitted run of which an expert failed, with a state and logs, and what --redo replaced."""
    run, _, units = submitted_run(tmp_path, monkeypatch)
    store_parts(run, {})
    finish(units, run)
    (run.unit(EXPERT) / "manifest.json").unlink()
    for place in (run.unit(EXPERT) / "state", run.logs(EXPERT) / "attempt-1", run.superseded / "1", run.jobs):
        place.mkdir(parents=True)
        (place / "file").write_text("x")
    monkeypatch.setattr("hpcddm.launch.slurm.launcher.SlurmLauncher.states", lambda self, submissions: {})
    return run


def link(run, inside, users):
    """Put a link to what the user has in the place of something of the run."""
    path = run.root / inside
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    target = users / path.name
    path.symlink_to(target if target.is_file() else users)


def submit(run, *options):
    return hpcddm("submit", run.root.parent / "tiny.yaml", "--site", "slurm", "--run-dir", run.root, *options)


VERBS = {
    "status": lambda run: hpcddm("status", run.root),
    "submit": submit,
    "redo": lambda run: submit(run, "--redo", "train"),
    "retry": lambda run: hpcddm("retry", run.root),
    "clean": lambda run: hpcddm("clean", run.root, "--yes"),
    "sample": lambda run: hpcddm("sample", run.root, "--strategy", "top-1", "--output", run.root.parent / "grid.png"),
    "export": lambda run: hpcddm("export", run.root, EXPERT, "--output", run.root.parent / "exported"),
}


def all_leave_the_users_files_alone(run, users, verbs):
    """Run verbs; yield the name and the end of each, none of which is a traceback or has changed what the user has."""
    before = digest(users)
    for name in verbs:
        done = VERBS[name](run)
        assert done.exception is None or isinstance(done.exception, SystemExit), (name, done.exception)
        assert digest(users) == before, name
        yield name, done


IN_UNIT = (f"train/{EXPERT.split('/')[1]}", *(f"{EXPERT}/{name}" for name in ("state", ".lease", "tensorboard")))
ELSEWHERE = ("train", f"logs/{EXPERT}", "logs", "superseded", "jobs", "code", "specs", "scripts", "template", "sites")
ELSEWHERE += ("journal.jsonl", ".submit.lock")


@pytest.mark.parametrize("inside", [*IN_UNIT, *ELSEWHERE])
def test_nothing_of_the_users_changes_and_no_verb_ends_in_a_traceback(run, users, inside):
    link(run, inside, users)
    for name, _ in all_leave_the_users_files_alone(run, users, VERBS):
        assert os.path.islink(run.root / inside) or inside == f"{EXPERT}/.lease", name


IN_PLACE = ("journal.jsonl", ".submit.lock", f"{EXPERT}/.lease", "jobs/remaining.json", "experiment.json")
IN_PLACE += ("sites/north.json", "template/python_env.sh.j2", f"{EXPERT}/manifest.json", f"specs/{EXPERT}.json")


@pytest.mark.parametrize("inside", IN_PLACE)
def test_the_other_name_of_a_hard_link_keeps_its_content(run, users, inside):
    path = run.root / inside
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    other = users / path.name
    other.write_bytes(content)
    os.link(other, path)
    for name, done in all_leave_the_users_files_alone(run, users, ("status", "submit", "redo", "retry", "clean")):
        if inside in ("journal.jsonl", ".submit.lock") and name in ("submit", "redo", "retry"):
            assert done.exit_code == 1 and f"{path}: has another name, too (a hard link)" in done.output


@pytest.mark.parametrize("inside", IN_UNIT)
@pytest.mark.parametrize("verb", ["submit", "retry", "clean"])
def test_a_unit_with_a_link_is_named_and_is_not_submitted(run, users, inside, verb):
    link(run, inside, users)
    done = VERBS[verb](run)
    assert f"{EXPERT}: {run.root}/{inside} is a link; put the files themselves there, or remove it" in done.output
    assert (done.exit_code == 0) == (verb == "clean")
    if verb == "clean":
        assert not run.superseded.exists(), "what is not behind a link goes all the same"


def test_one_unit_with_a_link_keeps_no_other_back(run, users):
    link(run, f"{EXPERT}/state", users)
    (run.unit(OTHER) / "manifest.json").unlink()
    done = VERBS["submit"](run)
    assert done.exit_code == 1 and f"not submitted: {EXPERT}: " in done.output
    assert [key for line in Journal(run.journal).submissions()[1:] for key in line.units] == [OTHER]


def test_what_is_a_link_is_shown_as_damaged_and_not_exported(run, users):
    link(run, EXPERT, users)
    output = run.unit(OTHER) / "output.bin"
    output.unlink()
    output.symlink_to(run.unit("report/all") / "output.bin")
    run.journal.unlink()
    shown = VERBS["status"](run)
    assert shown.exit_code == 0 and "damaged" in shown.output and f"{run.root}/{EXPERT} is a link" in shown.output
    assert f"{output} is a link" in shown.output
    assert f"{EXPERT}: {run.root}/{EXPERT} is a link" in VERBS["export"](run).output
