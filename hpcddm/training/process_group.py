"""The ranks of one unit meet: rank 0 takes a free port and tells it through the attempt's folder."""

import os
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from hpcddm.runtime.network import own_address
from hpcddm.runtime.unit import Unit

TIMEOUT = timedelta(minutes=10)


def join(unit: Unit) -> torch.device:
    """Create the process group of the unit's ranks and return this rank's device.

    A rank that is told to stop while it waits for the others ends here.
    """
    device = own_device(unit.ranks.local_rank)
    _choose_interface(unit)
    with unit.stop.cut_short(partial(unit.attempt.close, "stopped") if unit.ranks.rank == 0 else None):
        _meet(unit, "nccl" if device.type == "cuda" else "gloo")
    return device


def _meet(unit: Unit, backend: str) -> None:
    ranks = unit.ranks
    address, port = ("", 0) if ranks.rank == 0 else unit.attempt.meeting()
    if ranks.rank == 0:
        address = own_address(ranks.nodes, unit.network_interface)
    store = dist.TCPStore(
        address, port, ranks.world_size, is_master=ranks.rank == 0, timeout=TIMEOUT, wait_for_workers=False
    )
    if ranks.rank == 0:
        unit.attempt.announce_meeting(address, store.port)
        port = store.port
    # DeepSpeed reads these even where the group exists already, and looks for MPI when one is missing.
    os.environ |= {
        "RANK": str(ranks.rank),
        "LOCAL_RANK": str(ranks.local_rank),
        "WORLD_SIZE": str(ranks.world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=TIMEOUT)


def own_device(local_rank: int) -> torch.device:
    """The device of a rank, by its number on its node."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # A site may show every task all GPUs of the node, or only its own.
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def leave() -> None:
    """Wait for the other ranks and take the group down."""
    dist.barrier()
    dist.destroy_process_group()


def _choose_interface(unit: Unit) -> None:
    interface = "lo" if unit.ranks.nodes == 1 else unit.network_interface
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
