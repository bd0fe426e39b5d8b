"""The steps that trial jobs run on their nodes, as processes of this machine."""

from hpcddm.config.site import Site
from hpcddm.launch.selftest.check_results import CheckVerdict
from hpcddm.launch.selftest.checks import environment, rendezvous, signals, storage
from tests.launch.selftest.local_trial import LocalTrial


def tried(folder, **keys):
    """The rows of the checks that need no queue, on two ranks of this machine."""
    trial = LocalTrial(Site(name="here", scheduler="local", stages={"train": {"ranks_per_node": 2}}, **keys), folder)
    try:
        trial.run(120)
    finally:
        trial.cancel()
    return {check.__name__.rpartition(".")[2]: check.evaluate(trial.evidence) for check in CHECKS}


CHECKS = (rendezvous, signals, storage, environment)


def test_this_machine_passes(tmp_path):
    rows = tried(tmp_path)
    assert {row.verdict for row in rows.values()} == {CheckVerdict.OK}, rows
    assert "2 ranks" in rows["rendezvous"].finding


def test_a_scratch_that_cannot_be_written_is_named(tmp_path):
    row = tried(tmp_path, scratch="/proc/1/scratch")["storage"]
    assert row.verdict is CheckVerdict.FAIL and "site key scratch: /proc/1/scratch cannot be written" in row.finding
