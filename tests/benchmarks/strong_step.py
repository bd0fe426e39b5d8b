"""A step of the strong block in the training loop beside a loop by hand: python -m tests.benchmarks.strong_step bf16

The network is the quickstart's DiT with SwiGLU, RMS norm and rotary positions, on random images of 28 x 28 in memory.
Both sides draw images, noise, times and dropped classes, clip, step AdamW and keep an average, on one thread of a CPU.
`--plain-block` takes the quickstart's block. A block of steps of one side follows one of the other; seconds are those
of the processor, which other jobs disturb least.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.data.batch import NoisyBatch, NoisyBatches
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.jobs.job_environment import Ranks
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs.unit_training import UnitTraining
from hpcddm.training import loop
from tests.benchmarks.tables import parser_of, print_header, print_row
from tests.diffusion.spaces.examples import network_data
from tests.models import examples
from tests.orders import uniform
from tests.sampling.mixtures import objective
from tests.training.scenarios import KEY, Trainings, resolved

BATCH, IMAGES, CLASSES, SIDE = 64, 4096, 10, 28
STRONG = {"mlp": "swiglu", "norm": "rms", "positions": "rotary"}
RATE, WARM_UP = 1e-3, 10


def network(options: dict[str, Any]) -> nn.Module:
    """The network of both sides."""
    own = examples.settings("dit", width=128, depth=4, heads=4, patch=4, condition="class", **options)
    torch.manual_seed(0)
    return examples.network(own, network_data(1, SIDE, CLASSES), 1).train()


def by_hand(options: dict[str, Any], precision: str, images: torch.Tensor, labels: torch.Tensor) -> Iterator[None]:
    """Make a step each time: fp32 weights with fused AdamW and their average, and a network of rounded weights."""
    model = network(options)
    weights = [one.detach().clone().requires_grad_() for one in model.parameters()]
    if precision == "bf16":
        model.to(torch.bfloat16)
    else:
        weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0, fused=True)
    average, own = [one.detach().clone() for one in weights], list(model.parameters())
    while True:
        rows = torch.randint(0, IMAGES, (BATCH,))
        x0 = images[rows].float().div(127.5).sub(1)
        noise, t = torch.randn_like(x0), torch.rand(BATCH)
        classes = torch.where(torch.rand(BATCH) < 0.1, CLASSES, labels[rows])
        prediction = model(torch.lerp(x0, noise, t[:, None, None, None]), t, classes)
        F.mse_loss(prediction.float(), noise - x0).backward()
        if precision == "bf16":
            for weight, rounded in zip(weights, own, strict=True):
                weight.grad, rounded.grad = rounded.grad.float(), None
        nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimizer.step()
        if precision == "bf16":
            torch._foreach_copy_([one.data for one in own], [one.data for one in weights])
        else:
            optimizer.zero_grad(set_to_none=True)
        torch._foreach_lerp_(average, [one.data for one in weights], 0.001)
        yield


class Turns(NoisyBatches):
    """Batches that let the other side make steps between blocks of steps of the loop, and time both."""

    other: Iterator[None]
    steps: int

    def read(self, sample_indices: range) -> NoisyBatch:
        step = sample_indices.start // BATCH - WARM_UP
        if step == 0:
            self.ours, self.hand, self.started = list[float](), list[float](), time.process_time()
        elif step > 0 and step % self.steps == 0:
            self.ours.append(time.process_time() - self.started)
            self.hand.append(self.block())
            self.started = time.process_time()
        elif step < 0:
            next(self.other)
        return super().read(sample_indices)

    def block(self) -> float:
        started = time.process_time()
        for _ in range(self.steps):
            next(self.other)
        return time.process_time() - started


def measure(folder: Path, options: dict[str, Any], precision: str, rounds: int, steps: int) -> Turns:
    """Train by the loop of hpcddm, which reads in its own thread, in turns with the loop by hand."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (IMAGES, SIDE, SIDE, 1), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, IMAGES)
    reader, flow = ArrayReader(images, labels, np.zeros(IMAGES, np.int64)), objective("flow_matching")

    def condition(rows: np.ndarray, dropped: torch.Tensor) -> torch.Tensor:
        return torch.where(dropped, CLASSES, reader.labels(rows))

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        t = flow.training_times(batch.time)
        prediction = model(flow.perturb(batch.x0, batch.noise, t), t, batch.condition)
        return flow.loss(prediction, batch.x0, batch.noise, t)

    inputs = reader, uniform(0, KEY, IMAGES), RandomDraws(0, KEY), condition, lambda stored: stored, 0.1
    turns = Turns(*inputs, (1, SIDE, SIDE))
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    turns.other, turns.steps = by_hand(options, precision, pixels, torch.from_numpy(labels)), steps
    seen = BATCH * (WARM_UP + rounds * steps + 1)
    numbers = {"batch": BATCH, "learning_rate": RATE, "log_every_images": 100 * BATCH, "ema_halflife_images": 6000}
    training = UnitTraining(images=seen, precision=precision, weight_decay=0.0, warmup_images=2000, **numbers)
    unit = Trainings(folder, 1).unit(f"{precision} {len(options)}", Ranks(0, 0, 1, 1, "me"), data_threads=0)
    task = loop.Task(partial(network, options), loss, turns, pixels_to_values)
    loop.train(task, resolved(training), unit)
    return turns


def main() -> None:
    """Print both sides, their least and their median."""
    parser = parser_of(__doc__)
    parser.add_argument("precision", choices=["bf16", "fp32"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10, help="steps of a side in a round")
    parser.add_argument("--plain-block", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    options = {} if given.plain_block else STRONG
    with tempfile.TemporaryDirectory() as folder:
        turns = measure(Path(folder), options, given.precision, given.rounds, given.steps)
    sides = [[1000 * seconds / given.steps for seconds in side] for side in (turns.hand, turns.ours)]
    ratios = [f"{of(sides[1]) / of(sides[0]):.3f}" for of in (min, statistics.median)]
    print_header("precision", "by hand, ms: least (median)", "here, ms", "ratio of the least", "of the medians")
    print_row(given.precision, *(f"{min(side):.2f} ({statistics.median(side):.2f})" for side in sides), *ratios)


if __name__ == "__main__":
    main()
