"""The helper itself: a node sees the other one's changes late, and at once where it has no cache."""

import os


def stage_on_both(nodes):
    """Node b knows a folder that node a renames and makes anew, and has looked for a file that a makes."""
    (nodes.a / "staged").mkdir()
    (nodes.b / "staged").stat()
    assert not (nodes.b / "new").exists()
    (nodes.a / "staged").rename(nodes.a / "published")
    (nodes.a / "staged").mkdir()
    (nodes.a / "new").write_text("here")
    (nodes.b / "staged" / "file").write_text("of b")
    return os.listdir(nodes.server / "staged"), os.listdir(nodes.server / "published")


def test_a_renamed_name_leads_to_the_old_folder_and_what_was_absent_stays_so_until_its_folder_is_listed(late):
    assert stage_on_both(late) == ([], ["file"])
    assert not (late.b / "new").exists()
    os.listdir(late.b)
    assert (late.b / "new").read_text() == "here"


def test_without_a_cache_the_name_leads_to_the_new_folder_and_what_was_absent_is_there_at_once(fresh):
    assert stage_on_both(fresh) == (["file"], [])
    assert (fresh.b / "new").read_text() == "here"
