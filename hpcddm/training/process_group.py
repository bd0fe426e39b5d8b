"""Process group of a unit's ranks: rank 0 takes a free port and announces it in the attempt's folder."""

import os
import re
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from hpcddm.jobs import devices
from hpcddm.jobs.job_environment import node_address
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.unit import Unit

TIMEOUT = timedelta(minutes=10)


def join(unit: Unit) -> torch.device:
    """Create the process group of the unit's ranks and return this rank's device.

    A rank ends here when a stop is requested while it waits for the others. Raises `MissingGpu` where not every
    rank has the GPU that it needs.
    """
    device = devices.choose_device(unit)
    _choose_interface(unit)
    with unit.stop.exit_on_stop(partial(unit.attempt.close, Outcome.STOPPED) if unit.ranks.rank == 0 else None):
        _rendezvous(unit, device)
    return device


def _rendezvous(unit: Unit, device: torch.device) -> None:
    ranks = unit.ranks
    address, port = ("", 0) if ranks.rank == 0 else unit.attempt.wait_for_address()
    if ranks.rank == 0:
        address = node_address(ranks.nodes, unit.network_interface)
    store = dist.TCPStore(
        address, port, ranks.world_size, is_master=ranks.rank == 0, timeout=TIMEOUT, wait_for_workers=False
    )
    if ranks.rank == 0:
        unit.attempt.publish_address(address, store.port)
        port = store.port
    backend = devices.agree_on_backend(store, ranks, device)
    # DeepSpeed reads these even where the group exists already, and looks for MPI when one is missing.
    os.environ |= {
        "RANK": str(ranks.rank),
        "LOCAL_RANK": str(devices.local_rank_of(device, ranks)),
        "WORLD_SIZE": str(ranks.world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=TIMEOUT)


def leave() -> None:
    """Wait for the other ranks and destroy the process group."""
    dist.barrier()
    dist.destroy_process_group()


def _choose_interface(unit: Unit) -> None:
    interface = "lo" if unit.ranks.nodes == 1 else unit.network_interface
    named = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if not interface and re.fullmatch(r"\w+", named):
        # Trainings on GPUs use both backends: their hosts agree over gloo.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", named)
    if interface:
        # A choice in the site's setup lines takes precedence: NCCL may use several networks at once.
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)
