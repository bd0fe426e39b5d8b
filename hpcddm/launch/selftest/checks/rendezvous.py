"""Ranks and rendezvous: SLURM_* gives every task its rank, and all of them reach rank 0 over the site's network.

Its step on the nodes is that of `storage`, which needs the ranks together.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads, nfs_reads
from hpcddm.jobs.job_environment import Ranks, current_ranks, node_address, node_name
from hpcddm.launch.selftest.check_results import CheckResult, fail, ok
from hpcddm.launch.selftest.evidence import Evidence, TrialJob

RENDEZVOUS_SECONDS = 30
CONNECTING_SECONDS = 10


class RankConnections:
    """Connections of all ranks of a job, through rank 0."""

    def __init__(self, ranks: Ranks, connections: list[socket.socket]) -> None:
        self.ranks = ranks
        self._files = [connection.makefile("rw") for connection in connections]

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in the order of the ranks; a rank waits until all have called."""
        if self.ranks.rank > 0:
            self._send(self._files[0], value)
            return json.loads(self._files[0].readline())
        values = [value, *(json.loads(file.readline()) for file in self._files)]
        for file in self._files:
            self._send(file, values)
        return values

    def _send(self, file: Any, value: Any) -> None:
        file.write(json.dumps(value) + "\n")
        file.flush()


@contextmanager
def connect_ranks(folder: Path, spec: dict[str, Any]) -> Iterator[RankConnections]:
    """Meet the other ranks inside the job; a rank that cannot records the error and ends the job."""
    started = time.time()
    ranks = current_ranks()
    try:
        connections = (_receive if ranks.rank == 0 else _connect)(folder, ranks, spec["network_interface"])
    except (UserError, OSError) as error:
        atomic.write_json(folder / f"meet.{ranks.rank}.error.json", {"message": str(error)}, durable=False)
        raise SystemExit(str(error)) from None
    circle = RankConnections(ranks, connections)
    me = {"rank": ranks.rank, "world": ranks.world_size, "node": node_name(), "seconds": time.time() - started}
    met = circle.all_gather(me)
    if ranks.rank == 0:
        atomic.write_json(folder / "meet.json", met, durable=False)
    yield circle


def _receive(folder: Path, ranks: Ranks, interface: str | None) -> list[socket.socket]:
    deadline = time.time() + RENDEZVOUS_SECONDS
    address = node_address(ranks.nodes, interface)
    with closing(socket.create_server((address, 0), backlog=ranks.world_size)) as server:
        place = {"address": address, "port": server.getsockname()[1]}
        atomic.write_json(folder / "rendezvous.json", place, durable=False)
        connections: dict[int, socket.socket] = {}
        while len(connections) < ranks.world_size - 1:
            server.settimeout(max(0.1, deadline - time.time()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                text = f"{len(connections) + 1} of {ranks.world_size} ranks met at {address} in {RENDEZVOUS_SECONDS} s"
                raise UserError(text) from None
            connection.settimeout(RENDEZVOUS_SECONDS * 4)
            # Exactly this line: a file object would read ahead and lose what it read.
            connections[int(connection.recv(16))] = connection
    return [connections[rank] for rank in sorted(connections)]


def _connect(folder: Path, ranks: Ranks, interface: str | None) -> list[socket.socket]:
    deadline = time.time() + RENDEZVOUS_SECONDS
    while (place := nfs_reads.read_json(folder / "rendezvous.json")) is None:
        if time.time() > deadline:
            raise UserError(f"{node_name()} did not see rank 0's rendezvous.json in {RENDEZVOUS_SECONDS} s")
        time.sleep(0.05)
    address = (place["address"], place["port"])
    try:
        connection = socket.create_connection(address, timeout=CONNECTING_SECONDS)
    except OSError as error:
        text = f"rank {ranks.rank} on {node_name()} cannot reach rank 0 at {address[0]}: {error.strerror or error}"
        raise UserError(text) from None
    connection.settimeout(RENDEZVOUS_SECONDS * 4)
    connection.sendall(f"{ranks.rank:16d}".encode())
    return [connection]


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that the site's number of ranks has met, on its number of nodes."""
    resources = evidence.resources
    start = evidence.last(TrialJob.NODES)
    errors = sorted(start.folder.glob("meet.*.error.json")) if start else []
    if errors:
        message = (checked_reads.read_json(errors[0]) or {}).get("message", errors[0].name)
        return fail(None, message, "set network_interface to the one on which the nodes see each other")
    met = start.json("meet") if start else None
    if met is None:
        return evidence.missing_result(TrialJob.NODES, 0, "meet")
    nodes = sorted({rank_record["node"] for rank_record in met})
    finding = f"{len(met)} rank{'s' * (len(met) > 1)} on {', '.join(nodes)}"
    numbers = [(rank_record["rank"], rank_record["world"]) for rank_record in met]
    if numbers != [(rank, resources.ranks) for rank in range(resources.ranks)] or len(nodes) != resources.nodes:
        expected = f"; the site asks for {resources.ranks} on {resources.nodes} nodes"
        return fail(None, finding + expected, "look at nodes and ranks_per_node, and at extra_sbatch")
    seconds = max(rank_record["seconds"] for rank_record in met)
    if len(met) == 1:
        return ok(seconds, f"{finding}: the site asks for one, so no network was tried")
    place = evidence.site.network_interface or "the host name's address"
    return ok(seconds, f"{finding} met over {place if resources.nodes > 1 else 'loopback'}")
