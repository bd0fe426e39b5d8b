"""Training states on a disk: which are kept, and which one is continued."""

import pytest
import torch.distributed as dist

from hpcddm.training.checkpoints import KEPT, Checkpoints


class Writer:
    """Stands for an engine: what it saves is one small file."""

    def save(self, folder):
        (folder / "weights").write_bytes(b"weights")


@pytest.fixture(autouse=True)
def alone():
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def save(folder, fingerprint, *images):
    checkpoints = Checkpoints(folder, fingerprint, 1)
    for number in images:
        checkpoints.save(Writer(), number, {})
    return checkpoints


def test_the_last_states_are_kept_and_the_newest_is_continued(tmp_path):
    folder, state = save(tmp_path, "mine", 10, 20, 30).newest()
    assert state["images"] == 30 and len(list(tmp_path.glob("images-*"))) == KEPT


def test_longer_trainings_with_other_settings_push_out_no_state(tmp_path):
    save(tmp_path, "other", 1000, 2000)
    folder, state = save(tmp_path, "mine", 10, 20, 30).newest()
    assert (state["images"], state["fingerprint"]) == (30, "mine")


def test_a_torn_newest_state_is_passed_over(tmp_path):
    checkpoints = save(tmp_path, "mine", 10, 20)
    (tmp_path / "images-000000000020" / "weights").write_bytes(b"we")
    assert checkpoints.newest()[1]["images"] == 10
