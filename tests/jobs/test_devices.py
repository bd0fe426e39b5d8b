"""The choice of a rank's device.

There is no GPU here: `torch.cuda` is a fake that shows as many GPUs as a test says. What needs a real one is in
tests/gpu, for `make gpu-check`.
"""

import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hpcddm.config.site import Site
from hpcddm.files import checked_reads
from hpcddm.jobs import devices, entry
from hpcddm.jobs.devices import MissingGpu
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import StopFlag
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.training import process_group
from tests.helpers import REPOSITORY, tiny


@pytest.fixture
def show(monkeypatch):
    """Make torch see some GPUs, by the numbers that tell them apart."""

    def shown(*uuids: str) -> None:
        fakes = {"is_available": lambda: bool(uuids), "device_count": lambda: len(uuids)}
        fakes |= {"set_device": lambda device: None, "get_device_name": lambda device: f"GPU {uuids[device.index]}"}
        fakes |= {"get_device_properties": lambda device: SimpleNamespace(uuid=uuids[device.index])}
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    return shown


def unit(rank=0, local_rank=0, world_size=1, nodes=1, gpus=0):
    return SimpleNamespace(key="train/expert-00", ranks=Ranks(rank, local_rank, world_size, nodes, "me"), gpus=gpus)


def test_a_rank_that_was_given_a_gpu_and_sees_none_fails_with_rank_node_and_advice(monkeypatch):
    """No fake here: this torch sees no GPU."""
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingGpu, match="^rank 5 on n7 sees no GPU and needs 1 of the 4 that train/expert-00 was"):
        devices.choose_device(unit(rank=5, local_rank=1, world_size=8, nodes=2, gpus=4))


def test_what_was_given_no_gpu_takes_what_there_is(show):
    for shown, device, name in (((), torch.device("cpu"), "cpu"), ("a", torch.device("cuda", 0), "GPU a")):
        show(*shown)
        assert (devices.choose_device(unit()), devices.device_name(device)) == (device, name)


@pytest.mark.parametrize(("visible", "local_rank", "index"), [("abcd", 3, 3), ("d", 3, 0), ("cd", 3, 1)])
def test_a_site_shows_a_task_all_gpus_or_only_its_own(show, visible, local_rank, index):
    show(*visible)
    own = unit(rank=7, local_rank=local_rank, world_size=8, nodes=2, gpus=4)
    device = devices.choose_device(own)
    assert device == torch.device("cuda", index)
    assert devices.local_rank_of(device, own.ranks) == index, "DeepSpeed calls set_device(LOCAL_RANK)"
    assert devices.local_rank_of(torch.device("cpu"), own.ranks) == local_rank


def test_what_uses_all_gpus_of_its_node_fails_when_one_is_missing(show):
    show("a", "b", "c")
    assert devices.choose_device(unit(gpus=4)) == torch.device("cuda", 0)
    with pytest.raises(MissingGpu, match="sees 3 GPUs and needs 4 of the 4"):
        devices.choose_device(unit(gpus=4), uses_all=True)


ADVICE = [
    (None, [], "built for CPUs only: install the build for your GPUs"),
    ("13.0", [], "container lack apptainer's --nv"),
    ("13.0", ["nvidia0"], "needs a driver for CUDA 13.0, the driver here is: NVRM 470.57 .*too old.*off the bus"),
]


@pytest.mark.parametrize(("cuda", "files", "words"), ADVICE)
def test_the_advice_follows_what_the_node_shows(tmp_path, monkeypatch, cuda, files, words):
    """The folder of devices and the driver's file are fakes, too."""

    def fail():
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "init", fail)
    monkeypatch.setattr(devices, "DEVICE_FILES", tmp_path)
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "version")
    (tmp_path / "version").write_text("NVRM 470.57\nGCC 11\n")
    for name in files:
        (tmp_path / name).touch()
    assert re.search(words, devices.missing_gpu_advice()), devices.missing_gpu_advice()


def agree_together(devices_of_ranks):
    """What every rank gets from `agree_on_backend` over a real store: a backend, or an error."""
    store, count = dist.HashStore(), len(devices_of_ranks)

    def one(rank, device):
        try:
            return devices.agree_on_backend(store, Ranks(rank, rank, count, 1, "me"), device)
        except MissingGpu as error:
            return str(error)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count), devices_of_ranks, timeout=30))


CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


def test_all_ranks_choose_one_backend(show):
    show("a", "b")
    assert (agree_together([CPU, CPU]), agree_together([FIRST, SECOND])) == (["gloo"] * 2, ["nccl"] * 2)


def test_half_the_ranks_on_gpus_or_two_on_one_end_all_of_them_at_once(show):
    show("a")
    first, second = agree_together([FIRST, CPU])
    assert first.startswith("rank 1 on ") and "no GPU, while 1 other ranks have one" in first
    assert second.startswith(first) and len(second) > len(first), "the rank without a GPU knows why"
    found = agree_together([FIRST, FIRST])
    assert all("ranks 0 and 1 on" in one and "ranks_per_node must not be more" in one for one in found)


def test_nobody_else_chooses_a_device():
    choice = re.compile(r"cuda\.(is_available|device_count|set_device|current_device|get_device)|device\(.cuda. if")
    files = (REPOSITORY / "hpcddm").rglob("*.py")
    assert [path.name for path in files if choice.search(path.read_text())] == ["devices.py"]


DISAGREE = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
from hpcddm.jobs import devices
from hpcddm.jobs.job_environment import Ranks
rank = int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 2, rank == 0, timedelta(seconds=60), wait_for_workers=False)
devices.device_uuid = lambda device: ["a", "cpu"][rank]
class Slow:
    set = lambda self, *pair: store.set(*pair)
    get = lambda self, key: (time.sleep(1), store.get(key))[1]
try:
    devices.agree_on_backend(Slow() if rank else store, Ranks(rank, rank, 2, 1, "me"), torch.device("cpu"))
except devices.MissingGpu as error:
    print(error, flush=True)
os._exit(0)
"""


def test_rank_0_does_not_leave_before_the_others_know():
    """With processes of their own: the store lives in rank 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", DISAGREE, str(server.getsockname()[1])]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ranks = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True, env=environment) for n in (0, 1)]
    assert all("rank 1 on" in rank.communicate(timeout=120)[0] for rank in ranks)


@pytest.mark.parametrize(("given", "allocated"), [(2, ""), (0, "2")])
def test_a_unit_whose_gpus_are_not_there_fails_and_is_tried_again(tmp_path, monkeypatch, given, allocated):
    """The site's word counts, and so does Slurm's: `extra_sbatch` and whole nodes give GPUs, too."""
    run, (unit, *_) = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path))
    site = Site(name="here", scheduler="local", resources={"gpus_per_node": given})
    write_specs(make_items([unit], tiny(tmp_path), run), site)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", allocated)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(entry, "_prepare_environment", lambda spec: None)
    monkeypatch.setattr("hpcddm.jobs.attempt.Attempt.redirect_output", lambda attempt, rank: None)
    monkeypatch.setattr(entry, "_call_stage", lambda spec, unit: devices.choose_device(unit))
    assert entry._run(run.spec(unit.key), StopFlag()) == 1
    ended = checked_reads.read_json(run.logs(unit.key) / "attempt-1" / "ended.json")
    assert re.search(f"rank 0 on .*needs 1 of the 2 that {unit.key} was given", ended["reason"])
    assert not ended.get("final"), "another node may do"


@pytest.mark.parametrize(
    ("nodes", "own", "kept"),
    [(2, {}, "ib0 ib0"), (1, {}, "lo lo"), (2, {"NCCL": "hsn"}, "hsn ib0"), (1, {"NCCL": "a", "GLOO": "b"}, "a b")],
)
def test_the_users_choice_of_networks_stands(monkeypatch, nodes, own, kept):
    """As `setup: ["export NCCL_SOCKET_IFNAME=hsn"]` makes it."""
    for name in ("NCCL", "GLOO"):
        # What a test sets is removed behind it.
        monkeypatch.setenv(f"{name}_SOCKET_IFNAME", own.get(name, ""))
        if name not in own:
            monkeypatch.delenv(f"{name}_SOCKET_IFNAME")
    me = SimpleNamespace(ranks=Ranks(0, 0, 2, nodes, "me"), network_interface="ib0")
    process_group._choose_interface(me)
    assert f"{os.environ['NCCL_SOCKET_IFNAME']} {os.environ['GLOO_SOCKET_IFNAME']}" == kept


IN_A_JOB = """
import os, sys
from types import SimpleNamespace
import torch, torch.distributed as dist
from hpcddm.jobs import devices
from hpcddm.jobs.job_environment import current_ranks, gpus_on_node
if sys.argv[1] == "fake":
    shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: len(shown)
    torch.cuda.set_device = lambda device: None
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=shown[device.index])
me = current_ranks()
unit = SimpleNamespace(key="train/expert-00", ranks=me, gpus=gpus_on_node())
try:
    device = devices.choose_device(unit)
    store = dist.FileStore(sys.argv[2], me.world_size)
    backend = devices.agree_on_backend(store, me, device)
    print(me.rank, "takes", device.index, "of", os.environ["CUDA_VISIBLE_DEVICES"], backend, flush=True)
except devices.MissingGpu as error:
    print(error, flush=True)
"""


@pytest.mark.slurm
def test_ranks_take_the_gpus_that_slurm_gives_them(home, tmp_path):
    """The testbed's nodes have four GPUs on paper: Slurm hands them out for real, and only torch's sight is a fake."""
    environment = os.environ | {"SLURM_CONF": home, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}

    def said(*command):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
        return sorted(done.stdout.splitlines())

    def srun(how, name, *flags):
        script = [sys.executable, "-c", IN_A_JOB, how, str(tmp_path / name)]
        return said("srun", "--job-name=gpus", "--time=5", "-N1", *flags, *script)

    two_ranks = "--ntasks-per-node=2"
    assert srun("fake", "all", two_ranks, "--gpus-per-node=2") == [f"{n} takes {n} of 0,1 nccl" for n in range(2)]
    own = srun("fake", "own", two_ranks, "--gpus-per-task=1")
    assert [line.split()[2] for line in own] == ["0", "0"] and all(line.endswith(" nccl") for line in own)
    (line,) = srun("real", "none", "--ntasks-per-node=1", "--gpus-per-node=3")
    node = re.match(r"rank 0 on (\S+) sees no GPU and needs 1 of the 3", line)[1]
    assert node in said("sinfo", "-hN", "-o", "%N") and devices.missing_gpu_advice() in line
