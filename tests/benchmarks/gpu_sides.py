"""What `tests.benchmarks.gpu_table` measures, each in its own process: trainings, states, placements of experts."""

import copy
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from hpcddm.commands.planning import memory
from hpcddm.config import variants
from hpcddm.config.sampling import PlacementSettings
from hpcddm.config.site import Resources
from hpcddm.config.training import Training
from hpcddm.jobs.devices import DTYPES, device_name
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.models.flops import training_flops, unallocated
from hpcddm.runs.run_dir import RunDir
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.placements.base import Placement
from hpcddm.sampling.placements.lru import GIB
from hpcddm.sampling.sampler import sample
from hpcddm.training.checkpoints import Checkpoints, PublishedState
from hpcddm.training.engine import Engine
from tests.diffusion.spaces.examples import network_data, pixels
from tests.models import examples
from tests.sampling.fields import conversion, evaluation
from tests.sampling.mixtures import objective
from tests.training.half import allow_fp16

CLASSES, CHANNELS, LARGEST_BATCH = 1000, 4, 256
ROOM = 0.75
"""Share of a GPU's memory that the predicted peak of a training may take."""
UNCOUNTED, FEWEST = 3, 3
"""Steps before those that are timed, and the fewest of those."""
EXPERTS = 4
RANKS = Ranks(0, 0, 1, 1, "slurm-x-0123456789ab-7_0.0")


@dataclass(frozen=True)
class Setup:
    """Device and network of all sides; `seconds` is how long each is timed."""

    device: str
    tiny: bool
    seconds: float
    batch: int = 0
    """Images of a step, or drawn at once; 0 before it is chosen."""

    @property
    def target(self) -> torch.device:
        return torch.device(self.device)

    @property
    def side(self) -> int:
        return 4 if self.tiny else 32

    def network(self) -> nn.Module:
        """DiT-XL/2 of classes for latents of 32 x 32 x 4, or a tiny one."""
        width, depth, heads = (32, 1, 2) if self.tiny else (1152, 28, 16)
        sizes = {"width": width, "depth": depth, "heads": heads, "patch": 2, "condition": "class"}
        own = examples.settings("dit", **sizes)
        torch.manual_seed(0)
        return examples.network(own, network_data(CHANNELS, self.side, CLASSES), 1).train()

    def placed(self) -> nn.Module:
        """Return the network on the device, where it is also initialised."""
        with self.target:
            return self.network().to(self.target)

    def inputs(self, images: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(images, CHANNELS, self.side, self.side, generator=generator)
        time_ = torch.rand(images, generator=generator)
        return x, time_, torch.randint(0, CLASSES, (images,), generator=generator)

    def predicted(self, precision: str, every: int, images: int) -> int:
        """Bytes that `hpcddm plan` expects at the peak of a step."""
        on_gpu = self.target.type == "cuda"
        passed = memory.peak_of_pass(self.network, self.inputs(images), precision, every, keeps=True, on_gpu=on_gpu)
        return memory.predict_memory(unallocated(self.network), passed, precision, memory.RankDivision(1, 1, 1)).peak


def about(setup: Setup) -> dict[str, Any]:
    """Name of the device, FLOPs of a training image, and the largest batch, a power of two, that ought to fit."""
    flops = training_flops(unallocated(setup.network), *setup.inputs(1))
    batch = 4
    if setup.target.type == "cuda":
        room, batch = ROOM * torch.cuda.get_device_properties(setup.target).total_memory, LARGEST_BATCH
        while batch > 1 and setup.predicted("bf16", 0, batch) > room:
            batch //= 2
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    return {"name": device_name(setup.target), "versions": versions, "flops": flops, "batch": batch}


def wait(device: torch.device) -> None:
    """Wait until the device has done everything that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(step: Callable[[], object], setup: Setup) -> dict[str, float]:
    """Time steps of a batch: images/s, seconds of the first step, GB of tensors at the peak."""
    firsts = []
    for _ in range(UNCOUNTED):
        started = time.perf_counter()
        step()
        wait(setup.target)
        firsts.append(time.perf_counter() - started)
    if setup.target.type == "cuda":
        torch.cuda.reset_peak_memory_stats(setup.target)
    steps = max(FEWEST, int(setup.seconds / firsts[-1]))
    started = time.perf_counter()
    for _ in range(steps):
        step()
    wait(setup.target)
    found = {"rate": steps * setup.batch / (time.perf_counter() - started), "first": firsts[0]}
    if setup.target.type == "cuda":
        found["gb"] = torch.cuda.max_memory_allocated(setup.target) / 1e9
    return found


def plain(setup: Setup, precision: str) -> dict[str, float]:
    """Train by hand: rounded weights, fp32 ones with fused AdamW and an EMA, and torch's own loss scale in fp16."""
    model = setup.placed()
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    model.to(DTYPES[precision])
    rounded = [parameter.data for parameter in model.parameters()]
    average, optimizer = [w.detach().clone() for w in weights], torch.optim.AdamW(weights, lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(setup.device, enabled=precision == "fp16")
    inputs = [one.to(setup.target) for one in setup.inputs(setup.batch)]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)

    def step() -> None:
        scaler.scale(F.mse_loss(model(*inputs).float(), inputs[0])).backward()
        torch._foreach_copy_([weight.grad for weight in weights], [own.grad for own in model.parameters()])
        for parameter in model.parameters():
            parameter.grad = None
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            torch._foreach_copy_(rounded, weights)
            torch._foreach_lerp_(average, weights, 0.001)

    return timed(step, setup)


def states_in(folder: Path, ranks: Ranks) -> Checkpoints:
    """States of a training without end, in a folder."""
    attempt = open_attempt(folder / "logs", ranks)
    place = {"run": RunDir(folder), "key": "train/expert-00", "state": folder / "state", "trajectory": "f"}
    unit = SimpleNamespace(**place, ranks=ranks, attempt=attempt, resources=Resources(), seal=lambda: None)
    return Checkpoints(unit, 10**9)


def join_alone(backend: str) -> None:
    """Make a process group of this process alone, and say so to DeepSpeed."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    os.environ |= dict(zip(names, ("0", "0", "1", "127.0.0.1", "1"), strict=True))
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group(backend, store=store, rank=0, world_size=1)


class Trainer:
    """Our engine on one rank, in ZeRO-1."""

    def __init__(self, setup: Setup, precision: str, every: int = 0, compiled: bool = False) -> None:
        self.setup, self.images = setup, 0
        if setup.target.type == "cpu":
            # DeepSpeed refuses fp16 on most CPUs.
            allow_fp16(1000)
        join_alone("nccl" if setup.target.type == "cuda" else "gloo")
        model = setup.placed()
        prepare_blocks(model, every, Compilation(compiled))
        settings = {"images": 10**9, "batch": setup.batch, "learning_rate": 1e-4, "ema_halflife_images": 10_000}
        self.engine = Engine(model, Training(**settings, precision=precision), RANKS, setup.target)
        self.inputs = [one.to(setup.target) for one in setup.inputs(setup.batch)]

    def step(self) -> None:
        loss = F.mse_loss(self.engine.model(*self.inputs).float(), self.inputs[0])
        self.engine.backward(loss)
        self.images += self.setup.batch
        self.engine.step(self.images)


def ours(setup: Setup, precision: str, every: int = 0, compiled: bool = False) -> dict[str, float]:
    """Train by our engine, beside the memory that a plan would name."""
    predicted = setup.predicted(precision, every, setup.batch) / 1e9
    return timed(Trainer(setup, precision, every, compiled).step, setup) | {"predicted": predicted}


def states(setup: Setup, folder: Path) -> list[dict[str, float]]:
    """Train without saves, and while a state is saved; the first of two saves makes the memory for the copy."""
    trainer, saves = Trainer(setup, "bf16"), []
    without = timed(trainer.step, setup)
    checkpoints = states_in(folder, RANKS)
    for _ in range(2):
        started, steps, saved = time.perf_counter(), 0, None
        checkpoints.save(trainer.engine, trainer.images, {})
        while saved is None:
            trainer.step()
            wait(setup.target)
            steps, saved = steps + 1, checkpoints.take_published()
        seconds = time.perf_counter() - started
        saves.append(without | _cost(saved, steps, seconds, without["rate"], setup))
    return saves


def _cost(saved: PublishedState, steps: int, seconds: float, rate: float, setup: Setup) -> dict[str, float]:
    """Images/s beside a save, after the copy, and the seconds by which the save has made the training longer."""
    beside = steps * setup.batch / (seconds - saved.copy_seconds)
    lost = seconds - steps * setup.batch / rate
    return {"copy": saved.copy_seconds, "whole": saved.seconds, "beside": beside, "lost": lost}


def placements(setup: Setup) -> dict[str, dict[str, Any]]:
    """Draw images by four experts, of which every one is needed in every step, placed in turn as settings can say."""
    model = setup.network().to(torch.bfloat16).eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    own, found, expected = sum(one.nbytes for one in model.state_dict().values()) / GIB, {}, None
    chosen: dict[str, dict[str, Any]] = {"resident": {"name": "resident"}, "spread": {"name": "spread"}}
    chosen |= {f"lru, {room} of {EXPERTS}": {"name": "lru", "max_gib": own * (room + 0.5)} for room in (EXPERTS, 2)}
    for name, settings in chosen.items():
        placement = variants.create(Placement, PlacementSettings.model_validate(settings))
        experts = {f"train/expert-{number:02d}": copy.deepcopy(model) for number in range(EXPERTS)}
        placed = placement.place(experts, setup.target)
        _draw(placed, setup, 1)
        started = time.perf_counter()
        images = _draw(placed, setup, 2 if setup.tiny else 10)
        seconds = time.perf_counter() - started
        expected = images if expected is None else expected
        found[name] = {"rate": setup.batch / seconds, "equal": torch.equal(images, expected)}
    return found


def _draw(placed: dict[str, Callable[..., torch.Tensor]], setup: Setup, steps: int) -> torch.Tensor:
    """Draw a batch in so many Euler steps without guidance; the router knows a sample's expert by its class."""

    def router(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return 30 * F.one_hot(condition % EXPERTS, EXPERTS).float()

    experts = [
        DenoiserVelocity(one, objective("flow_matching"), conversion(precision="bf16")) for one in placed.values()
    ]
    sampler = evaluation(steps=steps)
    field = Ensemble(list(experts), router, None, None, CLASSES).field("top-1", sampler)
    condition = torch.arange(setup.batch, device=setup.target)
    return sample(field, 0, range(setup.batch), condition, pixels(CHANNELS, setup.side, setup.side), sampler).cpu()


def unwatched_steps(setup: Setup) -> str:
    """Make steps of ZeRO-1 in bf16 in which waiting for the GPU is an error; say that they were made."""
    trainer = Trainer(setup, "bf16")
    for _ in range(UNCOUNTED):
        trainer.step()
    wait(setup.target)
    synchronize = torch.cuda.synchronize
    # Torch's mode sees reads, and no wait for the whole device.
    torch.cuda.synchronize = _refuse_to_wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            trainer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize = synchronize
    return f"a gradient of norm {trainer.engine.gradient_norm()}"


def _refuse_to_wait(*_: object) -> None:
    raise RuntimeError("a step waits for the whole device")
