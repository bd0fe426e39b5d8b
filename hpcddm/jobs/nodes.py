"""Nodes of a job's partition, as sinfo lists them, and those that its next attempt avoids."""

import re
import subprocess
from dataclasses import dataclass

QUERY_SECONDS = 30
NODE = re.compile(r"NodeName=(?P<name>\S+) NodeState=(?P<state>\S+) NodeKind=(?P<kind>.*)")
"""Pattern of the words of one node, which the batch script takes from sinfo."""
USABLE = re.compile("(idle|mixed|allocated|completing|planned|reserved)[^*]*")
"""Pattern of the states of a node that gets jobs; '*' is the sign of one that does not respond."""


@dataclass(frozen=True)
class Node:
    """One node of a partition; `kind` holds its features, GPUs, processors and memory."""

    name: str
    state: str
    kind: str

    @property
    def is_usable(self) -> bool:
        """True where it gets jobs."""
        return USABLE.fullmatch(self.state) is not None

    @property
    def is_down(self) -> bool:
        """True where it does not respond."""
        return self.state.startswith("down") or "*" in self.state


def read_nodes(text: str) -> list[Node]:
    """Read the nodes of the job's partition from the words that the batch script passes."""
    return [Node(**match.groupdict()) for match in NODE.finditer(text)]


def hostnames(listed: str) -> list[str]:
    """Return the single nodes of one of Slurm's lists, such as 'h[1-2],h5'; none for '' and '(null)'.

    Raises `OSError` or `subprocess.SubprocessError` when scontrol, which expands brackets, gives no answer.
    """
    if "[" not in listed:
        return [name for name in listed.split(",") if name not in ("", "(null)")]
    command = ["scontrol", "show", "hostnames", listed]
    return subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True).stdout.split()


def avoided(excluded: list[str], faulty: list[str], nodes: list[Node], most: int, needed: int) -> list[str]:
    """Return the nodes that the next attempt excludes: those of the site, and the newest faulty ones.

    A faulty node is excluded only where as many usable nodes of its kind are left as the job needs, so that it starts
    whatever else it requests. For all but the newest one more must be left: a node may die while the job waits, when
    nobody shortens its list.

    excluded: nodes that the job excludes now; faulty: nodes at fault, the newest last; nodes: those of its partition;
    most: largest number of faulty nodes that are excluded; needed: number of nodes of the job.
    """
    chosen = [name for name in excluded if name not in faulty]
    kinds = {node.name: node.kind for node in nodes}
    for spare, name in enumerate(list(dict.fromkeys(reversed(faulty)))[:most]):
        left = [node for node in nodes if node.is_usable and node.name not in (*chosen, name)]
        if name in kinds and sum(node.kind == kinds[name] for node in left) >= needed + min(spare, 1):
            chosen.append(name)
    return chosen
