"""What a job reads of its own allocation."""

import pytest

from hpcddm.runtime import allocation

SLURM = {
    "SLURM_JOB_ID": "81236",
    "SLURM_ARRAY_JOB_ID": "81235",
    "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2),8",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_RESTART_COUNT": "5",
    "HPCDDM_STARTED": "1000",
    "HPCDDM_ENDS": "4600",
}


@pytest.fixture
def inside(monkeypatch):
    """Set the variables of a job."""
    return lambda **changes: [monkeypatch.setenv(key, value) for key, value in (SLURM | changes).items()]


def test_a_job_knows_its_nodes_processors_and_time(inside):
    inside()
    found = allocation.from_environment(6, 2)
    assert (found.job, found.restart, found.nodes, found.node_list) == ("81235_3", 5, 3, "n[1-3]")
    assert (found.cpus, found.gpus, found.started, found.ends) == (16, 6, 1000.0, 4600.0)


def test_an_end_that_nobody_knows_is_none(inside):
    inside(HPCDDM_ENDS="")
    assert allocation.from_environment(6, 2).ends is None


def test_outside_slurm_the_ranks_are_all_there_is(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = allocation.from_environment(2, 4)
    assert (found.job, found.cpus, found.gpus, found.nodes, found.ends) == (None, 8, 0, 1, None)
