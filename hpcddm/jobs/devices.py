"""Devices of a unit's ranks: the choice between GPU and CPU, and the reasons for a missing GPU."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from hpcddm.jobs.job_environment import Ranks, node_name
from hpcddm.jobs.unit import Unit

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Types of a network's weights, by the `precision` of its settings."""
STORE_KEY = "hpcddm/device"
"""Prefix of the store's keys for the device of every rank, and for rank 0's error message."""
READING = timedelta(seconds=10)
DEVICE_FILES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/version")


class MissingGpu(Exception):
    """Error for an allocated GPU that is unusable; another node may work, so the job tries again."""


@dataclass(frozen=True)
class Device:
    """Device of one rank, as shared with the other ranks; `name` identifies a GPU on its node, or is 'cpu'."""

    rank: int
    host: str
    name: str


def choose_device(unit: Unit, uses_all: bool = False) -> torch.device:
    """Choose the device of this rank and make it torch's current device.

    Args:
        unit: The unit; without allocated GPUs it uses the GPUs that torch sees, if any.
        uses_all: True if this rank needs all GPUs that the unit has on this node; otherwise one suffices.

    Raises:
        MissingGpu: If the unit has GPUs and this rank does not see enough of them.
    """
    ranks, visible = unit.ranks, visible_gpus()
    share = unit.gpus if uses_all else min(unit.gpus, 1)
    if visible < share:
        raise MissingGpu(
            f"rank {ranks.rank} on {node_name()} sees {visible or 'no'} GPU{'s' * (visible > 1)} and needs {share} of"
            f" the {unit.gpus} that {unit.key} was given there; {missing_gpu_advice()}"
        )
    if not visible:
        return torch.device("cpu")
    # Depending on the site, a task sees all GPUs of the node, those near its cores, or only its own; `agree_on_backend`
    # checks that no two ranks chose the same GPU.
    device = torch.device("cuda", ranks.local_rank % visible)
    torch.cuda.set_device(device)
    return device


def current_device() -> torch.device:
    """Return the device of this process: the result of `choose_device`, or before it the first GPU or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if visible_gpus() else torch.device("cpu")


def visible_gpus() -> int:
    """Count the GPUs that torch can use in this process."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def local_rank_of(device: torch.device, ranks: Ranks) -> int:
    """Return the value for LOCAL_RANK, which DeepSpeed uses as the number of the GPU."""
    return ranks.local_rank if device.type == "cpu" else device.index


def agree_on_backend(store: dist.Store, ranks: Ranks, device: torch.device) -> str:
    """Return the backend for the devices of all ranks; every rank must call this function.

    Args:
        store: Store that all ranks share.
        ranks: Rank of this process.
        device: Device of this rank.

    Returns:
        `nccl` for GPUs, `gloo` for CPUs.

    Raises:
        MissingGpu: On all ranks, if only some ranks have a GPU, or if two ranks on a node have the same GPU.
    """
    store.set(f"{STORE_KEY}/{ranks.rank}", json.dumps(asdict(Device(ranks.rank, node_name(), device_uuid(device)))))
    if ranks.rank == 0:
        devices = [Device(**json.loads(store.get(f"{STORE_KEY}/{rank}"))) for rank in range(ranks.world_size)]
        store.set(f"{STORE_KEY}/complaint", refusal_reason(devices))
    if text := store.get(f"{STORE_KEY}/complaint").decode():
        _await_readers(store, ranks)
        raise MissingGpu(f"{text}; {missing_gpu_advice()}" if device.type == "cpu" else text)
    return "gloo" if device.type == "cpu" else "nccl"


def _await_readers(store: dist.Store, ranks: Ranks) -> None:
    """Keep rank 0, whose process holds the store, until the other ranks have read the error message."""
    if ranks.rank > 0:
        store.set(f"{STORE_KEY}/read/{ranks.rank}", "")
        return
    with suppress(dist.DistStoreError):
        store.wait([f"{STORE_KEY}/read/{rank}" for rank in range(1, ranks.world_size)], READING)


def refusal_reason(devices: Sequence[Device]) -> str:
    """Return the reason why the ranks cannot use these devices together; '' if they can."""
    without = [device for device in devices if device.name == "cpu"]
    if len(without) == len(devices):
        return ""
    if without:
        where = ", ".join(f"rank {device.rank} on {device.host}" for device in without)
        return f"{where}: no GPU, while {len(devices) - len(without)} other ranks have one"
    owners: dict[tuple[str, str], Device] = {}
    for device in devices:
        if (other := owners.setdefault((device.host, device.name), device)) is not device:
            reason = f"ranks {other.rank} and {device.rank} on {device.host} have the same GPU, {device.name}"
            return f"{reason}: ranks_per_node must not be more than the GPUs that the node shows"
    return ""


def device_name(device: torch.device) -> str:
    """Return the product name of a GPU; 'cpu' for the CPU."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def missing_gpu_advice() -> str:
    """Explain, from torch, driver and device files, why torch does not find a GPU on this node."""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} of these jobs is built for CPUs only: install the build for your GPUs"
    if not any(DEVICE_FILES.glob("nvidia[0-9]*")) and not (DEVICE_FILES / "kfd").exists():
        return (
            "the node shows no GPU device: in a container, does the site key container lack apptainer's --nv?"
            " else a GPU has fallen off the bus: exclude the node and tell its administrators"
        )
    failure = ""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        failure = f" ({error})".replace("\n", " ")
    driver = DRIVER.read_text().splitlines()[0] if DRIVER.exists() else "unknown"
    platform = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    reason = f"torch {torch.__version__} needs a driver for {platform}, the driver here is: {driver}{failure}"
    return f"{reason}; or a GPU has fallen off the bus: exclude the node and tell its administrators"


def device_uuid(device: torch.device) -> str:
    """Return the UUID of a GPU; 'cpu' for the CPU."""
    return "cpu" if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)
