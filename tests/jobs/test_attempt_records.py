import pytest

from hpcddm.jobs.attempt_records import read_records
from hpcddm.jobs.failure_cause import write_rank_end
from hpcddm.jobs.job_environment import Ranks
from hpcddm.runs.run_dir import RunDir
from tests.attempts import write_attempt

KEY = "train/expert-00"


DECISIONS = [
    ({"ended": {"outcome": "superseded"}}, "superseded"),
    ({"ended": {"outcome": "superseded"}, "verdict": {"decision": "cancelled"}}, "cancelled"),
    ({"ended": {"outcome": "stopped"}}, None),
    ({}, None),
]


@pytest.mark.parametrize("files, decision", DECISIONS)
def test_what_was_superseded_needs_no_decision_of_a_script_that_may_be_killed(tmp_path, files, decision):
    run = RunDir(tmp_path)
    write_attempt(run, KEY, 1, "0123456789ab", "17_0", **files)
    (record,) = read_records(run.logs(KEY))
    assert record.decision == decision


def test_ranks_that_no_job_has_make_a_damaged_record_and_are_not_counted_one_by_one(tmp_path):
    run, ended = RunDir(tmp_path), {"outcome": "failed", "reason": "rank 0 lost its peer"}
    folder = write_attempt(run, KEY, 1, ended=ended)
    (folder / "owner.json").write_text('{"owner": "me", "ranks": 1000000000000}')
    write_rank_end(folder, Ranks(0, 0, 2, 2, "me"), "failed", "broken pipe", 1)
    (record,) = read_records(run.logs(KEY))
    assert record.reason == "rank 0 lost its peer" and "holds more ranks than any job has" in record.file_errors[0]
