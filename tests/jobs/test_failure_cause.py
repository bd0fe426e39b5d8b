"""The cause of a failure is told from what follows from it."""

import os

import pytest

from hpcddm.jobs import failure_cause
from hpcddm.jobs.failure_cause import TAIL_BYTES, find_cause, oom_kills, read_tails, write_rank_end
from hpcddm.jobs.job_environment import Ranks

PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:55440"
NCCL = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote process exited or there was a network error"
STORE = "DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (h1, 4711)."
NO_MEETING = "TimeoutError: rendezvous.json: rank 0 did not announce itself in 300 s on h1"
OWN = "ValueError: no such class"
KILLED = """srun: error: h2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=12.0
srun: error: h1: task 0: Exited with exit code 1
"""
SWAPPED = """srun: error: h1: task 0: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=12.0
srun: error: h2: task 1: Killed
"""
KILLED_IN_THE_END = """srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 12.0 ON h1 CANCELLED AT 2026-11-22T04:15:13 ***
srun: error: h2: tasks 1-2: Killed
"""
OOM = """srun: error: h3: tasks 1,3: Out Of Memory
srun: launch/slurm: _step_signal: Terminating StepId=12.0
"""
NOT_STARTED = """srun: error: Task launch for StepId=12.0 failed on node h2: Communication connection failure
srun: error: Application launch failed: Communication connection failure
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: h1: task 0: Killed
srun: launch/slurm: _step_signal: Terminating StepId=12.0
"""
SEEMS = "out of memory on h2, it seems: rank 1 was killed without a word"


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Let ranks, in this order, say how they ended: rank -> its reason; rank k lies on node h(k+1)."""

    def attempt(reasons, outcome="failed"):
        for rank, reason in reasons.items():
            monkeypatch.setattr(failure_cause.socket, "gethostname", lambda rank=rank: f"h{rank + 1}")
            write_rank_end(tmp_path, Ranks(rank, 0, 2, 2, "me"), outcome, reason, 1)
        return tmp_path

    return attempt


@pytest.mark.parametrize("consequence", [PEER, NCCL, STORE])
def test_a_ranks_own_error_outranks_those_that_its_siblings_got_from_its_end(attempt, consequence):
    assert find_cause(attempt({0: consequence, 1: OWN}), 2).reason == f"rank 1 on h2: {OWN}"


def test_where_all_have_lost_their_peers_the_first_word_counts(attempt):
    assert find_cause(attempt({1: PEER, 0: STORE}), 2).reason == f"rank 1 on h2: {PEER}"


def test_a_node_on_which_srun_could_start_nothing_is_the_cause_and_not_the_ranks_that_it_killed_then(attempt):
    cause = find_cause(attempt({}), None, NOT_STARTED)
    assert cause.reason == "srun could not start the ranks on h2: Communication connection failure"
    assert not cause.is_memory


FROM_OUTSIDE = {
    "srun: error: Task launch for StepId=7.0 failed on node h2: Job credential expired": ["h2"],
    "srun: error: Task launch for StepId=7.0 failed on node h2: Invalid job credential": ["h2"],
    "srun: error: Task launch for 7.0 failed on node h2: Communication connection failure": ["h2"],
    "srun: error: Task launch for StepId=7.0 failed on node h2: Socket timed out on send/recv operation": ["h2"],
    "srun: error: Task launch for StepId=7.0 failed on node h2: Job prolog failed": ["h2"],
    "srun: error: Node failure on h2": ["h2"],
    "srun: error: Node failure on h[2-3],h7": ["h[2-3],h7"],
    "srun: error: Step StepId=7.0 missing from node(s) h2": ["h2"],
    "slurmstepd-h1: error: *** STEP 7.0 ON h1 CANCELLED AT 2026-11-25T19:03:53 DUE TO NODE FAILURE, SEE SLURMCTLD": [],
    "srun: error: Unable to create step for job 7: Job/step already completing or completed": [],
    "srun: error: Unable to create step for job 7: Unable to contact slurm controller (connect failure)": [],
    "srun: error: Unable to create step for job 7: Required node not available (down, drained or reserved)": [],
    "srun: error: Unable to confirm allocation for job 7: Socket timed out on send/recv operation": [],
    "srun: error: Application launch failed: Zero Bytes were transmitted or received": [],
    "srun: error: timeout waiting for task launch, started 0 of 2 tasks": [],
    "srun: error: Aborting, io error and missing step on node 1": [],
    "srun: error: Cannot communicate with node 1.  Aborting job.": [],
    "srun: Force Terminated StepId=7.0": [],
    "srun: Force Terminated job 7": [],
    "slurmstepd: error: *** STEP 7.0 ON h1 CANCELLED AT 2026-11-25T19:03:53 ***": [],
}


@pytest.mark.parametrize("srun", FROM_OUTSIDE)
def test_an_end_that_no_rank_caused_is_from_outside_and_names_the_node_where_srun_does(attempt, srun):
    cause = find_cause(attempt({}), None, f"srun: cluster configuration lacks support for cpu binding\n{srun}\n")
    assert cause.is_outside and list(cause.nodes) == FROM_OUTSIDE[srun] and not cause.is_memory


OWN_FAULT = [
    "srun: error: h1: task 0: Exited with exit code 2\nsrun: Force Terminated StepId=7.0",
    f"{KILLED}slurmstepd: error: *** STEP 7.0 ON h1 CANCELLED AT 2026-11-25T19:03:53 ***",
    "srun: error: Unable to create step for job 7: More processors requested than permitted",
    "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
    "srun: error: Task launch for StepId=7.0 failed on node h2: Slurmd could not execve job",
    "slurmstepd: error: *** STEP 7.0 ON h1 CANCELLED AT 2026-11-25T19:03:53 DUE TO TIME LIMIT ***",
    "slurmstepd: error: execve(): python: No such file or directory\nsrun: error: h1: task 0: Exited with exit code 2",
]


@pytest.mark.parametrize("srun", OWN_FAULT)
def test_an_end_by_the_units_own_fault_is_not_from_outside(attempt, srun):
    cause = find_cause(attempt({}), None, srun)
    assert cause is None or not cause.is_outside


@pytest.mark.parametrize(("reason", "is_outside"), [(PEER, True), (NO_MEETING, True), (OWN, False)])
def test_a_node_that_does_not_respond_is_the_cause_unless_a_rank_had_an_error_of_its_own(attempt, reason, is_outside):
    cause = find_cause(attempt({0: reason}), None, SWAPPED, down=["h2"])
    assert (cause.is_outside, cause.nodes) == (is_outside, ("h2",) if is_outside else ())


@pytest.mark.parametrize("srun", [KILLED, SWAPPED], ids=["in order", "its sibling was heard first"])
def test_a_rank_that_was_killed_without_a_word_was_out_of_memory_it_seems(attempt, srun):
    cause = find_cause(attempt({0: PEER}), None, srun)
    assert cause.reason == SEEMS and cause.is_memory


@pytest.mark.parametrize(
    "evidence",
    [{"oom_kills": 1}, {"output": "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0."}],
    ids=["kernel", "slurmstepd"],
)
def test_it_was_out_of_memory_where_somebody_counted(attempt, evidence):
    assert find_cause(attempt({0: PEER}), None, KILLED, **evidence).reason == "out of memory on h2 (rank 1)"


def test_slurms_own_word_is_believed(attempt):
    assert find_cause(attempt({0: PEER, 2: NCCL}), None, OOM).reason == "out of memory on h3 (rank 1)"


def test_who_is_killed_in_the_end_was_not_out_of_memory(attempt):
    assert find_cause(attempt({0: "SIGTERM"}, "stopped"), None, KILLED_IN_THE_END) is None


def test_a_rank_that_was_killed_after_a_siblings_own_error_is_a_consequence(attempt):
    assert find_cause(attempt({0: OWN}), None, SWAPPED).reason == f"rank 0 on h1: {OWN}"


def test_without_a_queue_the_silent_rank_is_named(attempt):
    cause = find_cause(attempt({0: PEER}), 2)
    assert cause.reason.startswith("rank 1 ended without a word") and PEER in cause.reason and cause.is_memory


@pytest.mark.parametrize(
    ("reason", "is_memory"),
    [("MemoryError: ", True), ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False), (OWN, False)],
)
def test_only_a_lack_of_the_nodes_memory_is_mended_by_more_of_it(attempt, reason, is_memory):
    assert find_cause(attempt({0: reason}), 1).is_memory == is_memory


def test_the_kernels_count_is_that_of_the_whole_job(tmp_path):
    own = tmp_path / "cgroup"
    for elsewhere in ("", "9:memory:/slurm/job_12\n", "0::/user.slice\n"):
        own.write_text(elsewhere)
        assert oom_kills(tmp_path, own) == 0
    own.write_text("0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n")
    assert oom_kills(tmp_path, own) == 0
    job = tmp_path / "system.slice/slurmstepd.scope/job_12"
    job.mkdir(parents=True)
    (job / "memory.events").write_text("low 0\noom 2\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills(tmp_path, own) == 3


def test_only_the_ends_of_files_are_read_and_nothing_but_files(tmp_path):
    large, pipe, link = tmp_path / "large", tmp_path / "pipe", tmp_path / "link"
    with open(large, "wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    assert read_tails([pipe, link, tmp_path, tmp_path / "missing", large], 0.0).endswith("the end")
    assert len(read_tails([large], 0.0)) == TAIL_BYTES


def test_ranks_that_no_job_has_are_not_counted(tmp_path):
    srun = "srun: error: n1: tasks 0-99999999999,-7: Killed"
    assert find_cause(tmp_path, 4, srun) is not None
