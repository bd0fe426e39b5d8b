import threading

import pytest

from hpcddm.files import checked_reads
from hpcddm.jobs import attempt as attempts_module
from hpcddm.jobs.attempt import is_later_attempt, list_attempts
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt


def ranks(rank=0, owner="job-1", world_size=2):
    return Ranks(rank, rank, world_size, 1, owner)


def test_attempts_are_numbered_in_the_order_of_numbers(tmp_path):
    numbers = [open_attempt(tmp_path, ranks(owner=f"job-{index}")).number for index in range(11)]
    assert numbers == list(range(1, 12)) == [number for number, _ in list_attempts(tmp_path)]


def test_a_folder_that_somebody_copied_is_no_attempt(tmp_path):
    first = open_attempt(tmp_path, ranks())
    for name in ("attempt-1.bak", "attempt-", "attempt-x"):
        (tmp_path / name).mkdir()
    assert list_attempts(tmp_path) == [(1, first.folder)] and open_attempt(tmp_path, ranks(owner="job-2")).number == 2


def test_two_launches_at_once_get_two_folders(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(open_attempt(tmp_path, ranks(owner=name)).number))
        for name in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))


def test_the_other_ranks_find_the_folder_of_their_own_launch(tmp_path):
    open_attempt(tmp_path, ranks(owner="before"))
    found = []
    waiting = threading.Thread(target=lambda: found.append(open_attempt(tmp_path, ranks(1))))
    waiting.start()
    mine = open_attempt(tmp_path, ranks())
    waiting.join(5)
    assert found == [mine] and mine.number == 2


def test_of_two_folders_of_one_owner_the_newest_is_taken(tmp_path):
    open_attempt(tmp_path, ranks())
    mine = open_attempt(tmp_path, ranks())
    assert open_attempt(tmp_path, ranks(1)) == mine and mine.number == 2


def test_a_rank_that_waits_in_vain_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts_module, "RENDEZVOUS_SECONDS", 0.1)
    open_attempt(tmp_path, ranks(owner="before"))
    with pytest.raises(TimeoutError, match="rank 0 of job-1 opened no attempt"):
        open_attempt(tmp_path, ranks(1))
    with pytest.raises(TimeoutError, match="rendezvous.json: rank 0 did not announce itself"):
        open_attempt(tmp_path, ranks()).wait_for_address()


def test_the_ranks_meet_where_rank_0_says(tmp_path):
    attempt = open_attempt(tmp_path, ranks())
    attempt.publish_address("10.0.0.1", 4711)
    assert attempt.wait_for_address() == ("10.0.0.1", 4711)


def test_the_first_word_about_the_end_stands(tmp_path):
    attempt = open_attempt(tmp_path, ranks())
    attempt.close("failed", "disk full")
    attempt.close("complete")
    ended = checked_reads.read_json(attempt.folder / "ended.json")
    assert (ended["outcome"], ended["reason"]) == ("failed", "disk full") and ended["started"] <= ended["ended"]


JOB = "slurm-quickstart-train-0123456789ab"


@pytest.mark.parametrize(
    ("later", "earlier", "is_so"),
    [
        (f"{JOB}-7_3.1", f"{JOB}-7_3.0", True),
        (f"{JOB}-7_3.0", f"{JOB}-7_3.1", False),
        (f"{JOB}-7_3.1", f"{JOB}-7_3.1", False),
        (f"{JOB}-7_2.1", f"{JOB}-7_3.0", False),
        (f"{JOB}-12_3.0", f"{JOB}-7_3.9", True),
        (f"{JOB[:-1]}c-12_3.0", f"{JOB}-7_3.9", False),
        ("local-a-2", "local-a-1", False),
        ("", f"{JOB}-7_3.0", False),
    ],
    ids=["requeued", "older", "itself", "neighbour", "resubmitted", "other submission", "no queue", "unreadable"],
)
def test_which_execution_of_a_job_follows_which(later, earlier, is_so):
    assert is_later_attempt(later, earlier) == is_so


def test_an_attempt_bows_to_a_later_execution_even_when_another_submission_came_between(tmp_path):
    first = open_attempt(tmp_path, ranks(owner=f"{JOB}-7_3.0"))
    open_attempt(tmp_path, ranks(owner="slurm-x-ba9876543210-9_0.0"))
    assert not first.is_superseded()
    open_attempt(tmp_path, ranks(owner=f"{JOB}-7_3.1"))
    assert first.is_superseded()
