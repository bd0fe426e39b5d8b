"""Writing, moving and removing inside a run whose folders are links to what the user has, or become so meanwhile."""

import hashlib
import os
import threading
from contextlib import suppress

import pytest

from hpcddm.errors import UserError
from hpcddm.files import atomic, guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.attempt import Attempt
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.runs import training_states
from hpcddm.runs.lease import lease
from hpcddm.runs.run_dir import RunDir, set_aside

UNIT = "train/expert-02"


def digest(folder):
    """Names, kinds and contents of all below a folder."""
    digests = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        digests.update(repr((str(path.relative_to(folder)), content)).encode())
    return digests.hexdigest()


@pytest.fixture
def users(tmp_path):
    """Folders of the user beside the run, whose names are those of a unit's; in the end nothing there has changed."""
    folder = tmp_path / "user"
    for name in ("images-000000000064", ".staged-1-64-x", "thesis", "attempt-1"):
        (folder / name).mkdir(parents=True)
        (folder / name / "only-copy.txt").write_text("precious")
    for name in (".lease", "journal.jsonl", "rank0.log", "manifest.json", "remaining.json", ".reserve"):
        (folder / name).write_text("precious")
    before = digest(folder)
    yield folder
    assert digest(folder) == before


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(guarded_writes, "_guarded", set())
    run = RunDir(tmp_path / "real" / "run")
    run.unit(UNIT).mkdir(parents=True)
    # The way to a run may have links.
    (tmp_path / "link").symlink_to(tmp_path / "real")
    run = RunDir(tmp_path / "link" / "run")
    guarded_writes.guard(run.root)
    return run


def log(run):
    Attempt(run.logs(UNIT) / "attempt-1", 1, "me", 0.0).redirect_output(0)


def write_manifest(run):
    atomic.write_json(run.unit(UNIT) / "manifest.json", {})


def start(run):
    open_attempt(run.logs(UNIT), Ranks(0, 0, 1, 1, "me"))


def close(run):
    training_states.remove_earlier(run.unit(UNIT) / "state", "x", 64, False)


def hold(run):
    with lease(run.unit(UNIT) / ".lease", "test"):
        pass


WRITERS = {
    "unit, file": (UNIT, write_manifest),
    "stage, file": ("train", write_manifest),
    "folder in a unit": (f"{UNIT}/state", lambda run: atomic.write_json(run.unit(UNIT) / "state" / "x.json", {})),
    "unit, lease": (UNIT, hold),
    "lease": (f"{UNIT}/.lease", hold),
    "unit, set aside": (UNIT, lambda run: set_aside(run, UNIT)),
    "superseded": ("superseded", lambda run: set_aside(run, UNIT)),
    "journal": ("journal.jsonl", lambda run: atomic.append_line(run.journal, "{}")),
    "logs": ("logs", start),
    "logs of a unit": (f"logs/{UNIT}", start),
    "log": (f"logs/{UNIT}/attempt-1/rank0.log", log),
    "state, closed": (f"{UNIT}/state", close),
    "rest in jobs": ("jobs", lambda run: guarded_writes.remove(run.jobs / "remaining.json")),
    "a file to remove": (f"{UNIT}/start.json", lambda run: guarded_writes.remove(run.unit(UNIT) / "start.json")),
}


@pytest.mark.parametrize("place, write", WRITERS.values(), ids=WRITERS)
def test_a_link_is_named_and_nothing_behind_it_changes(run, users, place, write):
    (run.unit(UNIT) / "output").write_text("x")
    path = run.root / place
    if path.is_dir():
        path.rename(users.parent / "moved")
    path.parent.mkdir(parents=True, exist_ok=True)
    target = users / path.name if (users / path.name).is_file() else users
    path.symlink_to(target)
    with pytest.raises(UserError) as error:
        write(run)
    assert str(error.value).startswith(f"{path}") or str(error.value).startswith(f"{path.resolve().parent}")
    assert "is a link" in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_replaced_is_written_in_place_of_a_link(run, users):
    file = run.unit(UNIT) / "manifest.json"
    file.symlink_to(users / "manifest.json")
    atomic.write_json(file, {})
    assert not file.is_symlink() and file.read_text() == "{}\n"


def test_links_inside_what_is_removed_are_removed_and_not_followed(run, users):
    state = run.unit(UNIT) / "state"
    state.mkdir()
    (state / "images-000000000064").symlink_to(users)
    guarded_writes.remove(state)
    assert not state.exists()


def test_a_pipe_in_place_of_a_lease_is_named_and_does_not_block(run):
    os.mkfifo(run.unit(UNIT) / ".lease")
    with pytest.raises(Unreadable, match="is not a file"):
        hold(run)


WORK = {
    "close": close,
    "write": lambda run: atomic.write_json(run.unit(UNIT) / "state" / "thesis.json", {}),
    "remove": lambda run: guarded_writes.remove(run.unit(UNIT) / "state" / "thesis"),
    "move": lambda run: guarded_writes.move(run.unit(UNIT) / "state" / "thesis", run.unit(UNIT) / "state" / "moved"),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_folder_that_becomes_a_link_at_any_moment_leads_nowhere(run, users, work):
    """A thread puts folder and link in each other's place all the time while the other works there."""
    unit, is_over = run.unit(UNIT), threading.Event()
    (unit / "link").symlink_to(users)

    def swap():
        while not is_over.is_set():
            with suppress(OSError):
                (unit / "state").mkdir(exist_ok=True)
                (unit / "state" / "thesis").mkdir(exist_ok=True)
                os.rename(unit / "state", unit / f"folder-{os.urandom(4).hex()}")
                os.rename(unit / "link", unit / "state")
                os.rename(unit / "state", unit / "link")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            with suppress(UserError, OSError):
                work(run)
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("write", [hold, log])
def test_a_file_with_another_name_is_named_and_keeps_its_bytes(run, users, write):
    (run.logs(UNIT) / "attempt-1").mkdir(parents=True)
    for place in (run.unit(UNIT) / ".lease", run.logs(UNIT) / "attempt-1/rank0.log"):
        os.link(users / "rank0.log", place)
    with pytest.raises(Unreadable, match="has another name, too"):
        write(run)
