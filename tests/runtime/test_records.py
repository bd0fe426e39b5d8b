import pytest

from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.records import records
from tests.attempts import write_attempt

KEY = "train/expert-00"


@pytest.mark.parametrize(
    "files, decision",
    [
        ({"ended": {"outcome": "superseded"}}, "superseded"),
        ({"ended": {"outcome": "superseded"}, "verdict": {"decision": "cancelled"}}, "cancelled"),
        ({"ended": {"outcome": "stopped"}}, None),
        ({}, None),
    ],
)
def test_what_was_superseded_needs_no_decision_of_a_script_that_may_be_killed(tmp_path, files, decision):
    run = RunDir(tmp_path)
    write_attempt(run, KEY, 1, "0123456789ab", "17_0", **files)
    (record,) = records(run.logs(KEY))
    assert record.decision == decision
