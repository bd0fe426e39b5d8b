"""Saves that end at any of their calls to the file system: the newest whole state is always found."""

from tests.training import outside


def killed(folder, saves):
    """What killed.py prints."""
    return outside.run("killed", folder, saves, timeout=300)[0]


def require_newest(found):
    """The state of the save that was confirmed, or of the one that was killed, if that was far enough."""
    for save in found:
        assert save["code"] == -9 and save["whole"] == "True", save
        assert save["found"] - save["confirmed"] in (0, 1), save
    # Both happen: killed before the state is published, and after.
    assert {save["found"] - save["confirmed"] for save in found} == {0, 1}


def test_the_newest_whole_state_is_found_wherever_in_a_save_the_process_was_killed(tmp_path):
    require_newest(killed(tmp_path, 100))
