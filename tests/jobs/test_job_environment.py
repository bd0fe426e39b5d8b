"""What a process reads of its rank, its allocation and its node."""

import os
import socket

import pytest

from hpcddm.errors import UserError
from hpcddm.jobs.job_environment import Ranks, current_allocation, current_ranks, node_address

RANK_1 = {"GLOBALID": "1", "LOCALID": "1", "NTASKS": "2", "JOB_ID": "77"}
LOCAL = {f"SUBMITIT_LOCAL_{name}": value for name, value in RANK_1.items()}
LOCAL |= {"SUBMITIT_EXECUTOR": "local", "HPCDDM_LAUNCH": "abc"}
RANK_5 = {"STEP_ID": "0", "PROCID": "5", "LOCALID": "1", "NTASKS": "8", "JOB_NUM_NODES": "4", "JOB_ID": "31"}
SRUN = {f"SLURM_{name}": value for name, value in (RANK_5 | {"JOB_NAME": "train-0123abcd"}).items()}
SRUN |= {"SUBMITIT_EXECUTOR": "slurm"}


@pytest.fixture
def environment(monkeypatch):
    """Set variables where there are none of any launcher."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SUBMITIT_", "HPCDDM_"))]:
        monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


IN_SLURM = "slurm-train-0123abcd-31"


PROCESSES = [
    (LOCAL, Ranks(1, 1, 2, 1, "local-abc-77")),
    (SRUN, Ranks(5, 1, 8, 4, f"{IN_SLURM}.0")),
    (SRUN | {"SLURM_RESTART_COUNT": "2"}, Ranks(5, 1, 8, 4, f"{IN_SLURM}.2")),
    # The last element of an array carries the array's own id as its job id.
    (SRUN | {"SLURM_ARRAY_JOB_ID": "31", "SLURM_ARRAY_TASK_ID": "3"}, Ranks(5, 1, 8, 4, f"{IN_SLURM}_3.0")),
    # Another cluster, or this one a year later, gives the same id to another submission.
    (SRUN | {"SLURM_JOB_NAME": "train-89ef"}, Ranks(5, 1, 8, 4, "slurm-train-89ef-31.0")),
    # A local run inside an allocation is no rank of that allocation.
    (SRUN | LOCAL, Ranks(1, 1, 2, 1, "local-abc-77")),
]


@pytest.mark.parametrize("variables, ranks", PROCESSES)
def test_the_environment_says_who_a_process_is(environment, variables, ranks):
    environment(variables)
    assert current_ranks() == ranks


@pytest.mark.parametrize("variables", [{}, {"SLURM_JOB_ID": "31"}, {"SLURM_JOB_ID": "31", "SLURM_NTASKS": "4"}])
def test_outside_of_srun_a_process_is_alone(environment, variables):
    environment(variables)
    first, second = current_ranks(), current_ranks()
    assert (first.rank, first.world_size) == (0, 1) and first.owner != second.owner


JOB = {"JOB_ID": "81236", "ARRAY_JOB_ID": "81235", "ARRAY_TASK_ID": "3", "JOB_NUM_NODES": "3"}
JOB |= {"JOB_NODELIST": "n[1-3]", "JOB_CPUS_PER_NODE": "4(x2),8", "GPUS_ON_NODE": "2", "RESTART_COUNT": "5"}
ALLOCATED = {f"SLURM_{name}": value for name, value in JOB.items()}
ALLOCATED |= {"HPCDDM_STARTED": "1000", "HPCDDM_ENDS": "4600"}


def test_a_job_knows_its_nodes_processors_and_time(environment):
    environment(ALLOCATED)
    granted = current_allocation(6, 2)
    assert (granted.job, granted.restart, granted.nodes, granted.node_list) == ("81235_3", 5, 3, "n[1-3]")
    assert (granted.cpus, granted.gpus, granted.started, granted.ends) == (16, 6, 1000.0, 4600.0)
    environment({"HPCDDM_ENDS": ""})
    assert current_allocation(6, 2).ends is None, "nobody knows"


@pytest.mark.parametrize("answer", ["127.0.1.1", None])
def test_a_host_name_that_no_other_node_reaches_names_the_key_to_set(monkeypatch, answer):
    def resolve(host):
        if answer is None:
            raise OSError(-2, "Name or service not known")
        return answer

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    with pytest.raises(UserError, match="node-7: .* set the site key network_interface to one of: .*lo"):
        node_address(2, None)
    assert node_address(1, None) == node_address(2, "lo") == "127.0.0.1"
    monkeypatch.setattr(socket, "gethostbyname", lambda host: "10.0.0.7")
    assert node_address(2, None) == "10.0.0.7"


def test_an_interface_that_is_not_there_names_the_key_and_those_that_are():
    with pytest.raises(UserError, match="site key network_interface: .* no interface ib7 .*it has: .*lo"):
        node_address(2, "ib7")
