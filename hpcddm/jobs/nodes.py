"""Nodes of a job's partition, as sinfo lists them, and the nodes that the job's next attempt excludes."""

import re
import subprocess
from dataclasses import dataclass

QUERY_SECONDS = 30
NODE = re.compile(r"NodeName=(?P<name>\S+) NodeState=(?P<state>\S+) NodeKind=(?P<kind>.*)")
"""Pattern of one node's fields, which the batch script reads from sinfo."""
USABLE = re.compile("(idle|mixed|allocated|completing|planned|reserved)[^*]*")
"""Pattern of the states of a node that accepts jobs; '*' marks a node that does not respond."""


@dataclass(frozen=True)
class Node:
    """One node of a partition; `kind` describes its features, GPUs, CPUs and memory."""

    name: str
    state: str
    kind: str

    @property
    def is_usable(self) -> bool:
        """True if Slurm starts jobs on the node."""
        return USABLE.fullmatch(self.state) is not None

    @property
    def is_down(self) -> bool:
        """True if the node does not respond."""
        return self.state.startswith("down") or "*" in self.state


def parse_nodes(text: str) -> list[Node]:
    """Parse the nodes of the job's partition from the text that the batch script passes."""
    return [Node(**match.groupdict()) for match in NODE.finditer(text)]


def hostnames(listed: str) -> list[str]:
    """Expand a Slurm list of nodes, such as 'h[1-2],h5'; empty for '' and '(null)'.

    Raises:
        OSError: If scontrol, which expands brackets, cannot be started.
        subprocess.SubprocessError: If scontrol fails or does not answer.
    """
    if "[" not in listed:
        return [name for name in listed.split(",") if name not in ("", "(null)")]
    command = ["scontrol", "show", "hostnames", listed]
    return subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True).stdout.split()


def nodes_to_exclude(excluded: list[str], faulty: list[str], nodes: list[Node], most: int, needed: int) -> list[str]:
    """Select the nodes that the next attempt excludes: the site's excluded nodes and the newest faulty nodes.

    A faulty node is excluded only if enough usable nodes of its kind remain for the job. For all but the newest faulty
    node, one more node must remain, because a node may die while the job waits.

    Args:
        excluded: Nodes that the job currently excludes.
        faulty: Faulty nodes, the newest last.
        nodes: Nodes of the job's partition.
        most: Maximum number of faulty nodes to exclude.
        needed: Number of nodes of the job.
    """
    chosen = [name for name in excluded if name not in faulty]
    kinds = {node.name: node.kind for node in nodes}
    for spare, name in enumerate(list(dict.fromkeys(reversed(faulty)))[:most]):
        left = [node for node in nodes if node.is_usable and node.name not in (*chosen, name)]
        if name in kinds and sum(node.kind == kinds[name] for node in left) >= needed + min(spare, 1):
            chosen.append(name)
    return chosen
