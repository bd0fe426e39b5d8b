import os

import pytest

from hpcddm.runtime.ranks import Ranks, from_environment

LOCAL = {
    "SUBMITIT_EXECUTOR": "local",
    "SUBMITIT_LOCAL_GLOBALID": "1",
    "SUBMITIT_LOCAL_LOCALID": "1",
    "SUBMITIT_LOCAL_NTASKS": "2",
    "SUBMITIT_LOCAL_JOB_ID": "77",
    "HPCDDM_LAUNCH": "abc",
}
SLURM = {
    "SUBMITIT_EXECUTOR": "slurm",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_ID": "31",
    "SLURM_JOB_NAME": "train-0123abcd",
}


@pytest.fixture
def environment(monkeypatch):
    """Start from an environment without any launcher."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SUBMITIT_", "HPCDDM_"))]:
        monkeypatch.delenv(name)

    def set_variables(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    "variables, ranks",
    [
        (LOCAL, Ranks(1, 1, 2, 1, "local-abc-77")),
        (SLURM, Ranks(5, 1, 8, 4, "slurm-train-0123abcd-31.0")),
        (SLURM | {"SLURM_RESTART_COUNT": "2"}, Ranks(5, 1, 8, 4, "slurm-train-0123abcd-31.2")),
        # The last element of an array carries the array's own id as its job id.
        (
            SLURM | {"SLURM_ARRAY_JOB_ID": "31", "SLURM_ARRAY_TASK_ID": "3"},
            Ranks(5, 1, 8, 4, "slurm-train-0123abcd-31_3.0"),
        ),
        # Another cluster, or this one a year later, gives the same id to another submission.
        (SLURM | {"SLURM_JOB_NAME": "train-89ef"}, Ranks(5, 1, 8, 4, "slurm-train-89ef-31.0")),
        # A local run inside an allocation is no rank of that allocation.
        (SLURM | LOCAL, Ranks(1, 1, 2, 1, "local-abc-77")),
    ],
)
def test_the_environment_says_who_a_process_is(environment, variables, ranks):
    environment(variables)
    assert from_environment() == ranks


@pytest.mark.parametrize("variables", [{}, {"SLURM_JOB_ID": "31"}, {"SLURM_JOB_ID": "31", "SLURM_NTASKS": "4"}])
def test_outside_of_srun_a_process_is_alone(environment, variables):
    environment(variables)
    first, second = from_environment(), from_environment()
    assert (first.rank, first.world_size) == (0, 1) and first.owner != second.owner


@pytest.mark.parametrize(
    "variables, name", [(LOCAL, "SUBMITIT_LOCAL_NTASKS"), (SLURM, "SLURM_NTASKS"), (SLURM, "SLURM_JOB_NAME")]
)
def test_half_a_launcher_is_an_error_and_not_one_rank(environment, variables, name):
    environment({key: value for key, value in variables.items() if key != name})
    with pytest.raises(KeyError):
        from_environment()
