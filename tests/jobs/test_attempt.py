from concurrent.futures import ThreadPoolExecutor

import pytest

from hpcddm.files import checked_reads
from hpcddm.jobs import attempt as attempts_module
from hpcddm.jobs.attempt import is_later_attempt, list_attempts
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt


def ranks(rank=0, owner="job-1", world_size=2):
    return Ranks(rank, rank, world_size, 1, owner)


def test_attempts_are_numbered_in_the_order_of_numbers_and_a_folder_that_somebody_copied_is_none(tmp_path):
    numbers = [open_attempt(tmp_path, ranks(owner=f"job-{index}")).number for index in range(11)]
    assert numbers == list(range(1, 12)) == [number for number, _ in list_attempts(tmp_path)]
    for name in ("attempt-12.bak", "attempt-", "attempt-x"):
        (tmp_path / name).mkdir()
    assert len(list_attempts(tmp_path)) == 11 and open_attempt(tmp_path, ranks(owner="job-11")).number == 12


def test_launches_at_once_get_a_folder_each(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        opened = threads.map(lambda name: open_attempt(tmp_path, ranks(owner=name)).number, "abcdefgh")
        assert sorted(opened) == list(range(1, 9))


def test_the_other_ranks_find_the_newest_folder_of_their_own_launch(tmp_path):
    open_attempt(tmp_path, ranks(owner="before"))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(open_attempt, tmp_path, ranks(1))
        mine = open_attempt(tmp_path, ranks())
        assert waiting.result(5) == mine and mine.number == 2
    again = open_attempt(tmp_path, ranks())
    assert open_attempt(tmp_path, ranks(1)) == again and again.number == 3


def test_a_rank_that_waits_in_vain_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts_module, "RENDEZVOUS_SECONDS", 0.1)
    open_attempt(tmp_path, ranks(owner="before"))
    with pytest.raises(TimeoutError, match="rank 0 of job-1 opened no attempt"):
        open_attempt(tmp_path, ranks(1))
    with pytest.raises(TimeoutError, match="rendezvous.json: rank 0 did not announce itself"):
        open_attempt(tmp_path, ranks()).wait_for_address()


def test_the_ranks_meet_where_rank_0_says_and_the_first_word_about_the_end_stands(tmp_path):
    attempt = open_attempt(tmp_path, ranks())
    attempt.publish_address("10.0.0.1", 4711)
    assert attempt.wait_for_address() == ("10.0.0.1", 4711)
    attempt.close("failed", "disk full")
    attempt.close("complete")
    ended = checked_reads.read_json(attempt.folder / "ended.json")
    assert (ended["outcome"], ended["reason"]) == ("failed", "disk full") and ended["started"] <= ended["ended"]


JOB = "slurm-quickstart-train-0123456789ab"


FOLLOWS = {
    "requeued": (f"{JOB}-7_3.1", f"{JOB}-7_3.0", True),
    "older": (f"{JOB}-7_3.0", f"{JOB}-7_3.1", False),
    "itself": (f"{JOB}-7_3.1", f"{JOB}-7_3.1", False),
    "neighbour": (f"{JOB}-7_2.1", f"{JOB}-7_3.0", False),
    "resubmitted": (f"{JOB}-12_3.0", f"{JOB}-7_3.9", True),
    "other submission": (f"{JOB[:-1]}c-12_3.0", f"{JOB}-7_3.9", False),
    "no queue": ("local-a-2", "local-a-1", False),
    "unreadable": ("", f"{JOB}-7_3.0", False),
}


def test_which_execution_of_a_job_follows_which():
    for case, (later, earlier, is_so) in FOLLOWS.items():
        assert is_later_attempt(later, earlier) == is_so, case


def test_an_attempt_bows_to_a_later_execution_even_when_another_submission_came_between(tmp_path):
    first = open_attempt(tmp_path, ranks(owner=f"{JOB}-7_3.0"))
    open_attempt(tmp_path, ranks(owner="slurm-x-ba9876543210-9_0.0"))
    assert not first.is_superseded()
    open_attempt(tmp_path, ranks(owner=f"{JOB}-7_3.1"))
    assert first.is_superseded()
