"""Messages of srun and slurmstepd about failures that no rank caused, with their locations in Slurm's source code."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class SrunMessage:
    """Pattern of one message, and the reason for the user."""

    pattern: str
    """Pattern, optionally with the groups `nodes` and `how`."""
    reason: str
    """Reason for the user, with placeholders for the groups."""
    is_weak: bool = False
    """True if srun also prints the message after a rank has failed."""


MESSAGES = (
    # src/api/step_launch.c, _launch_tasks
    SrunMessage(
        r"error: Task launch for .+ failed on node (?P<nodes>\S+): (?P<how>.+)",
        "srun could not start the ranks on {nodes}: {how}",
    ),
    # src/api/step_launch.c and src/srun/libsrun/allocate.c, _node_fail_handler
    SrunMessage(r"error: Node failure on (?P<nodes>[^\s,]+(?:,[^\s,]+)*)", "Slurm lost {nodes}"),
    # src/api/step_launch.c, _step_missing_handler
    SrunMessage(r"error: Step \S+ missing from node\(s\) (?P<nodes>\S+)", "Slurm lost the ranks on {nodes}"),
    # src/slurmd/slurmstepd/req.c, _handle_signal_container
    SrunMessage(r"CANCELLED AT \S+ DUE TO NODE FAILURE", "Slurm lost a node of the job"),
    # src/srun/libsrun/launch.c, create_job_step
    SrunMessage(r"error: Unable to create (?:job )?step(?: for job \d+)?: (?P<how>.+)", "srun could not begin: {how}"),
    SrunMessage(r"Cancelled pending (?:job )?step", "srun could not begin: its step was cancelled"),
    # src/srun/libsrun/allocate.c, existing_allocation
    SrunMessage(r"error: Unable to confirm allocation for job \d+: (?P<how>.+)", "srun could not begin: {how}"),
    # src/api/step_launch.c, slurm_step_launch_wait_start
    SrunMessage(r"error: timeout waiting for task launch", "srun could not start all ranks in time"),
    # src/srun/libsrun/launch.c, launch_g_step_launch
    SrunMessage(r"error: Application launch failed: (?P<how>.+)", "srun could not start the ranks: {how}"),
    # src/api/step_launch.c, _check_io_timeout and _step_missing_handler; src/api/step_io.c
    SrunMessage(
        r"error: (?:\S+: )?(?P<how>[Aa]borting, (?:io error|step missing|can not test connection).+"
        r"|Cannot communicate with node \d+)",
        "srun lost its ranks: {how}",
    ),
    # src/srun/libsrun/allocate.c, _job_complete_handler
    SrunMessage(r"(?i:force[ -]terminated)", "Slurm ended the step from outside", is_weak=True),
    # src/slurmd/slurmstepd/req.c, _handle_signal_container, for a signal of scancel or of the controller
    SrunMessage(r"\*\*\* \S+ .*CANCELLED AT \S+ \*\*\*", "the step was cancelled from outside", is_weak=True),
)
"""Messages by priority: the first one that matches is the reason."""

WRONG_REQUEST = re.compile(
    r"could not execve|MPI plugin|processors requested|node configuration is not|Memory required|generic resource|TRES"
    r"|specification invalid|Pathname|Incompatible versions"
)
"""Pattern of the errors that a unit's request causes on every node: src/common/slurm_errno.c."""


def find_external_end(srun: str, is_first: bool) -> tuple[str, list[str]] | None:
    """Find a failure in srun's messages that no rank caused.

    Args:
        srun: Messages of srun and slurmstepd.
        is_first: True if no rank failed before.

    Returns:
        The reason for the user and Slurm's lists of the faulty nodes; None without such a failure.
    """
    for message in MESSAGES:
        matches = [match for match in re.finditer(message.pattern, srun) if not WRONG_REQUEST.search(match[0])]
        if matches and (is_first or not message.is_weak):
            groups = [match.groupdict() for match in matches]
            nodes = list(dict.fromkeys(group["nodes"] for group in groups if "nodes" in group))
            how = groups[0].get("how", "").strip()
            return message.reason.format(nodes=", ".join(nodes), how=how), nodes
    return None
