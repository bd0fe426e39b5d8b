"""A training's step beside a hand-written one: python -m tests.benchmarks.training_step [--batch 8 32] [--stage 1]

Both train the quickstart's DiT in bf16 with fp32 weights and EMA on the same 4,096 random images: ours by the whole
loop with heartbeat and log, the other one by thirty lines of torch (with several ranks by its DDP). Each rank is a fork
on a core of its own. Rounds alternate; a figure is images/s of all ranks, over the steps after the tenth.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from hpcddm.config.site import Resources
from hpcddm.data.batch import NoisyBatch, NoisyBatches
from hpcddm.data.randomness import RandomDraws
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.launch.load_experiment import load_experiment
from hpcddm.models import build_denoiser
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import UnitTraining
from hpcddm.training import loop
from tests.benchmarks.tables import parser_of, print_header, print_row
from tests.orders import uniform
from tests.training.pair import on_ranks

IMAGES, SIDE, CLASSES, UNCOUNTED = 4096, 28, 10, 10
KEY = "train/monolith"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (IMAGES, SIDE, SIDE, 1), np.uint8), draw.integers(0, CLASSES, IMAGES)


def network() -> nn.Module:
    torch.manual_seed(0)
    experiment = load_experiment("quickstart")
    return build_denoiser.build(experiment, experiment.expert_config(None)).train()


def plain(share: int, steps: int, ranks: int) -> float:
    """Train by hand on one rank; return its images/s."""
    images, labels = (torch.from_numpy(values) for values in arrays())
    images, model = images.permute(0, 3, 1, 2).contiguous(), network()
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    model.to(torch.bfloat16)
    rounded = [parameter.data for parameter in model.parameters()]
    average, optimizer = [w.detach().clone() for w in weights], torch.optim.AdamW(weights, weight_decay=0.0, fused=True)
    trained: nn.Module = model if ranks == 1 else nn.parallel.DistributedDataParallel(model)

    def batch() -> tuple[torch.Tensor, ...]:
        rows = torch.randint(0, IMAGES, (share,))
        x0, noise, t = images[rows].float().div(127.5).sub(1), torch.randn(share, 1, SIDE, SIDE), torch.rand(share)
        condition = torch.where(torch.rand(share) < 0.1, CLASSES, labels[rows])
        return torch.lerp(x0, noise, t.view(-1, 1, 1, 1)), t, condition, noise - x0

    started = 0.0
    for step in range(steps + UNCOUNTED):
        if step == UNCOUNTED:
            started = time.perf_counter()
        x, t, condition, velocity = batch()
        F.mse_loss(trained(x, t, condition).float(), velocity).backward()
        for weight, parameter in zip(weights, model.parameters(), strict=True):
            weight.grad, parameter.grad = parameter.grad.float(), None
        nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(rounded, weights)
            torch._foreach_lerp_(average, weights, 0.001)
    return steps * share / (time.perf_counter() - started)


def ours(share: int, steps: int, rank: int, ranks: int, root: Path, stage: int) -> float:
    """Train by the loop; return the images/s of one rank, from the first line of its loss function to the next."""
    reader = ArrayReader(*arrays(), np.zeros(IMAGES, np.int64))
    batch, images = share * ranks, (steps + UNCOUNTED + 1) * share * ranks
    settings = UnitTraining(images=images, batch=batch, learning_rate=1e-3, ema_halflife_images=6000)

    def carried(rows: np.ndarray, dropped: torch.Tensor) -> torch.Tensor:
        return torch.where(dropped, CLASSES, reader.labels(rows))

    batches = NoisyBatches(
        reader, uniform(0, KEY, IMAGES), RandomDraws(0, KEY), carried, lambda condition: condition, 0.1, (1, SIDE, SIDE)
    )
    stamps: list[float] = []

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        stamps.append(time.perf_counter())
        x = torch.lerp(batch.x0, batch.noise, batch.time.view(-1, 1, 1, 1))
        drawn = model(x, batch.time, batch.condition)
        return (drawn.float() - (batch.noise - batch.x0)).square().flatten(1).mean(1)

    run, place = RunDir(root), Ranks(rank, rank, ranks, 1, "slurm-x-0123456789ab-7_0.0")
    run.unit(KEY).mkdir(parents=True, exist_ok=True)
    attempt = open_attempt(run.logs(KEY), place)
    writer = HeartbeatWriter(attempt.folder, place.owner, attempt.number, "host")
    own = Resources(zero_stage=stage)
    unit = Unit(KEY, run, place, attempt, writer, StopFlag(), {}, "f", resources=own, data_threads=0)
    loop.train(loop.Task(0, network, loss, batches, pixels_to_values), settings, unit)
    return steps * share / (stamps[-1] - stamps[UNCOUNTED])


def measure(side: str, batch: int, steps: int, ranks: int, stage: int) -> float:
    """Return the images/s of all ranks of one side."""
    cores, share = sorted(os.sched_getaffinity(0)), batch // ranks
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)

        def work(rank: int) -> None:
            os.sched_setaffinity(0, {cores[rank]})
            if side == "plain" and ranks > 1:
                store = dist.FileStore(str(root / "store"), ranks)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
            own = share, steps
            rate = plain(*own, ranks) if side == "plain" else ours(*own, rank, ranks, root / "run", stage)
            (root / str(rank)).write_text(str(rate))

        if any(on_ranks(ranks, work)):
            raise SystemExit("a rank failed")
        return sum(float((root / str(rank)).read_text()) for rank in range(ranks))


def main() -> None:
    """Print a row for each batch."""
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--stage", type=int, default=1, help="of ZeRO, for ours")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1600, help="images per figure")
    given = parser.parse_args()
    # Forks do not have the threads of a pool that has begun.
    torch.set_num_threads(1)
    print_header("ranks", "batch", "plain, images/s: best, median", "ours", "plain / ours: best, median")
    for batch in given.batch:
        rounds = [
            [measure(side, batch, given.images // batch, given.ranks, given.stage) for side in ("plain", "ours")]
            for _ in range(given.rounds)
        ]
        best, middle = ([of(rates) for rates in zip(*rounds, strict=True)] for of in (max, statistics.median))
        rates = [f"{high:.0f}, {usual:.0f}" for high, usual in zip(best, middle, strict=True)]
        print_row(given.ranks, batch, *rates, f"{best[0] / best[1]:.3f}, {middle[0] / middle[1]:.3f}")


if __name__ == "__main__":
    main()
