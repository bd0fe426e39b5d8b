"""Training states on a disk: which are kept, and which one is continued."""

import errno
import json
import os
import threading
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save as save_bytes
from safetensors.torch import save_file

from hpcddm.config.site import Resources
from hpcddm.errors import UserError
from hpcddm.files import tensors
from hpcddm.jobs.attempt import Superseded
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.persistent_errors import PERSISTENT_ERRORS
from hpcddm.runs import training_states
from hpcddm.runs.run_dir import RunDir
from hpcddm.training.checkpoints import KEPT_STATES, Checkpoints
from hpcddm.training.meters import TrainingProgress

KEY = "train/expert-01"
pytestmark = pytest.mark.usefixtures("alone")


class Writer:
    """Stands for an engine and what it copies to the host: one small file."""

    def host_copy(self):
        return self

    def write(self, folder):
        save_file({"a": torch.zeros(3)}, folder / "weights")
        return [folder / "weights"]


def unit(folder, trajectory):
    """As much of a unit as its training states ask for."""
    attempt = open_attempt(folder / "logs", Ranks(0, 0, 1, 1, "slurm-x-0123456789ab-7_0.0"))
    ranks = Ranks(0, 0, 1, 1, attempt.owner)
    place = {"run": RunDir(folder), "key": KEY, "state": folder}
    own = {"trajectory": trajectory, "ranks": ranks, "resources": Resources(), "attempt": attempt}
    return SimpleNamespace(**place, **own, seal=lambda: None)


def save(folder, trajectory, *images):
    checkpoints = Checkpoints(unit(folder, trajectory), 10**9)
    for number in images:
        saved(checkpoints, Writer(), number)
    return checkpoints


def newest(checkpoints):
    """Agree on the newest state, and close its files; its content."""
    files, state = checkpoints.agree_on_newest()
    for file in files:
        with file:
            pass
    return state


def change(folder, images, values):
    """Change values of a state on the disk."""
    state = folder / f"images-{images:012d}" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | values))


def saved(checkpoints, engine, images):
    """Save, and wait for it."""
    checkpoints.save(engine, images, {})
    return checkpoints.wait()


def test_the_last_states_are_kept_and_the_newest_is_continued(tmp_path):
    state = newest(save(tmp_path, "mine", 10, 20, 30))
    assert state["images"] == 30 and len(list(tmp_path.glob("images-*"))) == KEPT_STATES


def test_states_of_a_training_with_other_settings_are_not_continued_and_push_out_none(tmp_path):
    save(tmp_path, "other", 1000, 2000)
    assert Checkpoints(unit(tmp_path, "mine"), 10**9).agree_on_newest() is None
    state = newest(save(tmp_path, "mine", 10, 20, 30))
    assert (state["images"], state["trajectory"]) == (30, "mine")


@pytest.mark.parametrize("content", [b"we", save_bytes({"a": torch.ones(3)})], ids=["torn", "of another step"])
def test_a_newest_state_of_other_bytes_is_passed_over_even_if_their_number_is_right(tmp_path, content):
    checkpoints = save(tmp_path, "mine", 10, 20)
    (tmp_path / "images-000000000020" / "weights").write_bytes(content)
    assert newest(checkpoints)["images"] == 10


@pytest.mark.parametrize("name", [".staged-\u00b2-x", ".staged--x", ".staged-\u0663\u0663-x"])
def test_a_folder_that_only_looks_like_a_staged_state_of_an_attempt_stays(tmp_path, name):
    (tmp_path / name).mkdir()
    assert newest(save(tmp_path, "mine", 10))["images"] == 10 and (tmp_path / name).is_dir()


def test_what_is_loaded_is_the_file_that_was_hashed(tmp_path):
    (file,), _ = save(tmp_path, "mine", 10).agree_on_newest()
    save_file({"a": torch.ones(3)}, tmp_path / "other")
    os.replace(tmp_path / "other", file.path)
    with file:
        assert tensors.read_whole(file, "a").tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("loop", [{"curve": "text"}, {"images": -1}, {"other": 1}, {"snapshots": {"x": {}}}])
def test_a_state_whose_progress_makes_no_sense_is_passed_over(tmp_path, loop, capsys):
    checkpoints = save(tmp_path, "mine", 10, 20)
    change(tmp_path, 20, {"loop": loop})
    assert newest(checkpoints)["images"] == 10
    assert "images-000000000020/state.json: holds no usable JSON (" in capsys.readouterr().out


def test_the_types_of_a_stored_progress_are_all_there():
    stored, own = ([field.name for field in fields(one)] for one in (training_states.LoopProgress, TrainingProgress))
    assert stored == own


def test_a_state_of_an_earlier_version_is_neither_continued_nor_passed_over(tmp_path):
    checkpoints = save(tmp_path, "mine", 10)
    change(tmp_path, 10, {"files": {"weights": 7}, "format": 1})
    with pytest.raises(UserError, match="images-000000000010 was saved by an earlier version"):
        checkpoints.agree_on_newest()


def test_a_folder_is_staged_under_a_name_of_its_own_even_for_the_same_images(tmp_path):
    names = []

    class Noting(Writer):
        def write(self, folder):
            names.append(folder.name)
            return super().write(folder)

    checkpoints = Checkpoints(unit(tmp_path, "mine"), 10**9)
    for _ in range(3):
        saved(checkpoints, Noting(), 10)
    assert len(set(names)) == 3


def test_an_attempt_whose_job_has_begun_anew_publishes_no_state(tmp_path):
    checkpoints = save(tmp_path, "mine", 10)
    open_attempt(tmp_path / "logs", Ranks(0, 0, 1, 1, "slurm-x-0123456789ab-7_0.1"))
    with pytest.raises(Superseded):
        saved(checkpoints, Writer(), 20)
    assert newest(checkpoints)["images"] == 10


def test_an_attempt_of_another_submission_takes_nothing_over(tmp_path):
    checkpoints = save(tmp_path, "mine", 10)
    open_attempt(tmp_path / "logs", Ranks(0, 0, 1, 1, "slurm-x-ba9876543210-8_0.0"))
    saved(checkpoints, Writer(), 20)
    assert newest(checkpoints)["images"] == 20


@pytest.mark.parametrize("code, is_lasting", [(errno.EIO, False), (errno.ENOSPC, True), (errno.EDQUOT, True)])
def test_an_error_of_the_disk_is_named_with_the_bytes_and_may_pass(tmp_path, code, is_lasting):
    class Failing(Writer):
        def write(self, folder):
            raise OSError(code, os.strerror(code))

    checkpoints = save(tmp_path, "mine", 10)
    words = f"cannot save the training state of about 76 bytes, [0-9]+ bytes are free .*{os.strerror(code)}"
    with pytest.raises(UserError, match=words) as caught:
        saved(checkpoints, Failing(), 20)
    assert (caught.value.__cause__.errno in PERSISTENT_ERRORS) == is_lasting
    assert newest(checkpoints)["images"] == 10 and not list(tmp_path.glob(".staged-*"))


def test_a_rank_that_died_during_a_save_is_no_full_disk(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("Connection closed by peer")

    checkpoints = save(tmp_path, "mine", 10)
    monkeypatch.setattr(dist, "all_gather_object", broken)
    with pytest.raises(RuntimeError, match="closed by peer"):
        saved(checkpoints, Writer(), 20)


def test_the_training_goes_on_while_a_state_is_written_and_is_told_of_it_once(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Writer):
        def write(self, folder):
            begun.set()
            assert go_on.wait(30)
            return super().write(folder)

    checkpoints = Checkpoints(unit(tmp_path, "mine"), 10**9)
    checkpoints.save(Slow(), 10, {})
    assert begun.wait(30) and checkpoints.saving_seconds >= 0 and checkpoints.take_published() is None
    assert not list(tmp_path.glob("images-*"))
    go_on.set()
    state = checkpoints.wait()
    assert state.images == 10 and state.copy_seconds <= state.seconds
    assert checkpoints.take_published() is None and checkpoints.saving_seconds is None


def test_no_state_is_begun_while_another_is_written(tmp_path):
    checkpoints = Checkpoints(unit(tmp_path, "mine"), 10**9)
    checkpoints.save(Writer(), 10, {})
    with pytest.raises(RuntimeError, match="wait for it first"):
        checkpoints.save(Writer(), 20, {})
    assert checkpoints.wait().images == 10


def test_no_state_of_a_longer_training_is_continued(tmp_path):
    save(tmp_path, "mine", 10, 20)
    assert newest(Checkpoints(unit(tmp_path, "mine"), 15))["images"] == 10
    training_states.remove_earlier(tmp_path, "mine", 15, keep=True)
    assert [path.name for path in tmp_path.glob("images-*")] == ["images-000000000010"]
