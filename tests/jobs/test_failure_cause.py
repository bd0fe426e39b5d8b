"""The cause of a failure is told from what follows from it."""

import os

import pytest

from hpcddm.jobs import failure_cause
from hpcddm.jobs.failure_cause import TAIL_BYTES, find_cause, oom_kills, read_tails, write_rank_end
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.persistent_errors import write_error

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
def cause(tmp_path, monkeypatch):
    """Let ranks, in this order, say how they ended, rank -> its reason, and find the cause; rank k is on h(k+1)."""

    def cause(reasons, ranks=None, srun="", outcome="failed", **evidence):
        for rank, reason in reasons.items():
            monkeypatch.setattr(failure_cause.socket, "gethostname", lambda rank=rank: f"h{rank + 1}")
            write_rank_end(tmp_path, Ranks(rank, 0, 2, 2, "me"), outcome, reason, 1)
        return find_cause(tmp_path, ranks, srun, **evidence)

    return cause


COUNTED = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0."
NOBODY = "srun could not start the ranks on h2: Communication connection failure"
CAUSES = {
    "a sibling lost its peer": ({0: PEER, 1: OWN}, 2, "", {}, f"rank 1 on h2: {OWN}", False),
    "a sibling lost NCCL": ({0: NCCL, 1: OWN}, 2, "", {}, f"rank 1 on h2: {OWN}", False),
    "a sibling lost the store": ({0: STORE, 1: OWN}, 2, "", {}, f"rank 1 on h2: {OWN}", False),
    "all lost a peer, the first word counts": ({1: PEER, 0: STORE}, 2, "", {}, f"rank 1 on h2: {PEER}", None),
    "srun could start nothing on a node": ({}, None, NOT_STARTED, {}, NOBODY, False),
    "killed without a word": ({0: PEER}, None, KILLED, {}, SEEMS, True),
    "killed, and its sibling was heard first": ({0: PEER}, None, SWAPPED, {}, SEEMS, True),
    "the kernel counted": ({0: PEER}, None, KILLED, {"oom_kills": 1}, "out of memory on h2 (rank 1)", True),
    "slurmstepd counted": ({0: PEER}, None, KILLED, {"output": COUNTED}, "out of memory on h2 (rank 1)", True),
    "Slurm says so": ({0: PEER, 2: NCCL}, None, OOM, {}, "out of memory on h3 (rank 1)", True),
    "killed after a sibling's own error": ({0: OWN}, None, SWAPPED, {}, f"rank 0 on h1: {OWN}", False),
}


@pytest.mark.parametrize("reasons, ranks, srun, evidence, reason, is_memory", CAUSES.values(), ids=CAUSES)
def test_the_cause_of_a_failure_is_found(cause, reasons, ranks, srun, evidence, reason, is_memory):
    found = cause(reasons, ranks, srun, **evidence)
    assert found.reason == reason and is_memory in (None, found.is_memory)


def test_who_is_killed_in_the_end_was_not_out_of_memory_and_without_a_queue_the_silent_rank_is_named(cause):
    assert cause({0: "SIGTERM"}, None, KILLED_IN_THE_END, "stopped") is None
    found = cause({0: PEER}, 2)
    assert found.reason.startswith("rank 1 ended without a word") and PEER in found.reason and found.is_memory


LAUNCH = "srun: error: Task launch for StepId=7.0 failed on node h2: "
CREATE = "srun: error: Unable to create step for job 7: "
CANCELLED = "STEP 7.0 ON h1 CANCELLED AT 2026-11-25T19:03:53"
FROM_OUTSIDE = {
    f"{LAUNCH}Job credential expired": ["h2"],
    f"{LAUNCH}Invalid job credential": ["h2"],
    "srun: error: Task launch for 7.0 failed on node h2: Communication connection failure": ["h2"],
    f"{LAUNCH}Socket timed out on send/recv operation": ["h2"],
    f"{LAUNCH}Job prolog failed": ["h2"],
    "srun: error: Node failure on h2": ["h2"],
    "srun: error: Node failure on h[2-3],h7": ["h[2-3],h7"],
    "srun: error: Step StepId=7.0 missing from node(s) h2": ["h2"],
    f"slurmstepd-h1: error: *** {CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD": [],
    f"{CREATE}Job/step already completing or completed": [],
    f"{CREATE}Unable to contact slurm controller (connect failure)": [],
    f"{CREATE}Required node not available (down, drained or reserved)": [],
    "srun: error: Unable to confirm allocation for job 7: Socket timed out on send/recv operation": [],
    "srun: error: Application launch failed: Zero Bytes were transmitted or received": [],
    "srun: error: timeout waiting for task launch, started 0 of 2 tasks": [],
    "srun: error: Aborting, io error and missing step on node 1": [],
    "srun: error: Cannot communicate with node 1.  Aborting job.": [],
    "srun: Force Terminated StepId=7.0": [],
    "srun: Force Terminated job 7": [],
    f"slurmstepd: error: *** {CANCELLED} ***": [],
}
OWN_FAULT = [
    "srun: error: h1: task 0: Exited with exit code 2\nsrun: Force Terminated StepId=7.0",
    f"{KILLED}slurmstepd: error: *** {CANCELLED} ***",
    f"{CREATE}More processors requested than permitted",
    f"{CREATE}Invalid generic resource (gres) specification",
    f"{LAUNCH}Slurmd could not execve job",
    f"slurmstepd: error: *** {CANCELLED} DUE TO TIME LIMIT ***",
    "slurmstepd: error: execve(): python: No such file or directory\nsrun: error: h1: task 0: Exited with exit code 2",
]


@pytest.mark.parametrize("srun", [*FROM_OUTSIDE, *OWN_FAULT])
def test_an_end_that_no_rank_caused_is_from_outside_and_names_the_node_where_srun_does(cause, srun):
    if srun in OWN_FAULT:
        found = cause({}, None, srun)
        assert found is None or not found.is_outside
        return
    found = cause({}, None, f"srun: cluster configuration lacks support for cpu binding\n{srun}\n")
    assert found.is_outside and list(found.nodes) == FROM_OUTSIDE[srun] and not found.is_memory


@pytest.mark.parametrize(("reason", "is_outside"), [(PEER, True), (NO_MEETING, True), (OWN, False)])
def test_a_node_that_does_not_respond_is_the_cause_unless_a_rank_had_an_error_of_its_own(cause, reason, is_outside):
    found = cause({0: reason}, None, SWAPPED, down=["h2"])
    assert (found.is_outside, found.nodes) == (is_outside, ("h2",) if is_outside else ())


def test_only_a_lack_of_the_nodes_memory_is_mended_by_more_of_it(cause):
    on_gpu = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert [cause({0: reason}, 1).is_memory for reason in (on_gpu, OWN, "MemoryError: ")] == [False, False, True]


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


def test_a_folder_that_takes_no_file_says_why(tmp_path):
    assert write_error(tmp_path) is None and list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "file" in str(write_error(tmp_path / "file")) and [path.name for path in tmp_path.iterdir()] == ["file"]
