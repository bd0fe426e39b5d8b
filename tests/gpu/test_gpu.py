"""The choice of a device, NCCL and a short run of the whole pipeline, on real GPUs."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml

from hpcddm.jobs import devices
from hpcddm.jobs.job_environment import Ranks
from hpcddm.launch.checks.gpu_requests import all_resource_keys
from hpcddm.launch.local import machine_gpus
from hpcddm.pipeline.stage import GpuUse
from hpcddm.pipeline.unit_graph import usable_gpus
from tests.helpers import REPOSITORY
from tests.whole_runs import TINY, hpcddm

pytestmark = pytest.mark.gpu

JOIN = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from hpcddm.runs.run_dir import RunDir
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.training import process_group
run, rank, world = RunDir(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
ranks = Ranks(rank, rank, world, 1, "me")
unit = Unit("train/x", run, ranks, open_attempt(run.logs("train/x"), ranks), None, StopFlag(), {}, "f", gpus=world)
device = process_group.join(unit)
total = torch.full((1000,), float(rank + 1), device=device)
dist.all_reduce(total)
print(device, dist.get_backend(), total.sum().item(), flush=True)
process_group.leave()
"""


def test_the_launcher_counts_what_torch_counts(gpus):
    assert len(machine_gpus.visible_gpus()) == gpus


def test_every_rank_takes_its_own_gpu_and_it_has_a_name(gpus):
    names = set()
    for rank in range(gpus):
        unit = SimpleNamespace(key="train/x", ranks=Ranks(rank, rank, gpus, 1, "me"), gpus=gpus)
        device = devices.choose_device(unit)
        assert device == torch.device("cuda", rank) and torch.cuda.current_device() == rank
        assert torch.ones(2, device=device).sum().item() == 2
        assert devices.device_name(device) != "cpu"
        names.add(devices.device_uuid(device))
    assert len(names) == gpus and all(names)


def test_a_rank_whose_gpus_are_hidden_says_so(tmp_path):
    ((_, errors, code),) = join(tmp_path, 1, CUDA_VISIBLE_DEVICES="")
    assert code and "sees no GPU and needs 1 of the 1 that train/x" in errors, errors


def join(folder, world, **environment):
    """Let ranks join and sum; what each of them said, its errors, and its exit code."""
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    variables = os.environ | {"PYTHONPATH": path} | environment
    command = [sys.executable, "-c", JOIN, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": variables}
    processes = [subprocess.Popen([*command, str(rank), str(world)], **pipes) for rank in range(world)]
    return [(*process.communicate(timeout=300), process.returncode) for process in processes]


def test_nccl_sums_over_all_gpus(tmp_path, gpus):
    total = 1000.0 * gpus * (gpus + 1) / 2
    for rank, (said, errors, code) in enumerate(join(tmp_path, gpus)):
        assert code == 0, errors
        assert said.split() == [f"cuda:{rank}", "nccl", str(total)]


def test_two_ranks_are_not_put_on_one_gpu(tmp_path, gpus):
    for _, errors, code in join(tmp_path, gpus + 1):
        assert code and "have the same GPU" in errors, errors


def test_a_short_run_of_the_whole_pipeline_uses_a_gpu_in_every_stage_that_can(tmp_path):
    without = [place for place in all_resource_keys() if usable_gpus(place) is GpuUse.NONE] + ["encode"]
    stages = {stage: {"gpus_per_node": 0} for stage in without}
    site = {"name": "gpu", "scheduler": "local", "resources": {"gpus_per_node": 1}, "stages": stages}
    place, run = tmp_path / "gpu.yaml", tmp_path / "run"
    place.write_text(yaml.safe_dump(site))
    done = hpcddm("submit", "quickstart", "--site", place, "--run-dir", run, *TINY, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [path.read_text() for path in run.glob("logs/train/*/attempt-1/rank0.log")]
    assert len(logs) == 5 and all(", cuda:0\n" in text for text in logs), "four experts and the monolith"
    assert (run / "report/index.html").is_file()
