"""Steps of the engine beside those of a hand-written loop: differences of losses, weights and norms, as JSON.

Both train a network on the same batches. The loop keeps fp32 weights of its own, which start as the network has them
before it is rounded, adds the gradients of the parts of a batch in fp32 and knows nothing of ranks: each part is a
micro batch of some rank.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.config.training import Training
from hpcddm.jobs.devices import DTYPES
from hpcddm.models.base import Network as BlockNetwork
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.training import fp32_master_weights
from hpcddm.training.ema import update_weights
from hpcddm.training.engine import Engine
from tests.training.half import allow_fp16
from tests.training.scenarios import AVERAGES, build, join, on_ranks, training

STEPS, MANY_STEPS, BATCH = 6, 20, 16
CLIP = 0.05
"""Largest norm of a gradient where it is clipped; those of these gradients are larger."""
OVERFLOWING, PERIOD, WINDOW = 3, 5, 2
"""Step of fp16, in each so many, whose gradient is not finite, and steps after which the loss scale doubles."""


@dataclass(frozen=True)
class Case:
    """A way to share the same batches."""

    stage: int
    ranks: int = 1
    micro_batches: int = 1
    precision: str = "bf16"
    clip: float = 1e9
    network: str = "plain"
    """'sometimes': one layer is used in the last part of every second batch alone; 'stack': has blocks; 'uneven': no
    three ranks can share a parameter evenly, and one is not trained."""
    every: int = 0
    """Every so many-th block of a stack recomputes its activations."""
    optimizer: str = "adamw"
    steps: int = STEPS

    @property
    def name(self) -> str:
        ends = {" clipped": self.clip == CLIP, f" {self.network}": self.network != "plain"}
        ends |= {" recomputing": self.every, " sgd": self.optimizer == "sgd"}
        ends |= {f" {self.steps} steps": self.steps != STEPS}
        shared = f"stage {self.stage}, {self.ranks} x {self.micro_batches}, {self.precision}"
        return shared + "".join(end for end, holds in ends.items() if holds)


SHARED = ((1, 1), (1, 2), (2, 1), (2, 2))
CASES = [Case(1, *shared) for shared in SHARED]
CASES += [Case(1, *shared, clip=CLIP, optimizer="sgd") for shared in ((1, 2), (2, 2))]
CASES += [Case(stage, 2, 2, precision, steps=MANY_STEPS) for precision in ("bf16", "fp16") for stage in range(4)]
CASES += [Case(stage, 2, 2, "fp32", CLIP, steps=MANY_STEPS) for stage in range(4)] + [Case(0, 2, 2, "fp16", CLIP)]
CASES += [Case(0, 2, 2, precision, optimizer="sgd", steps=MANY_STEPS) for precision in ("bf16", "fp16")]
CASES += [Case(3, 4, 1, "fp32"), *(Case(0, precision=precision) for precision in DTYPES)]
CASES += [Case(stage, 1, 2, "fp32", network="sometimes") for stage in range(4)]
CASES += [Case(1, 1, 2, network="sometimes")]
STARTS = [Case(stage, 3, 1, precision, network="uneven") for precision in DTYPES for stage in range(4)]
IN_SHORT = ((0, 4, 1, 1, "sgd"), (1, 1, 4, 1, "sgd"), (2, 2, 1, 2, "adamw"), (3, 2, 2, 1, "sgd"))
"""Of the grid every stage, number of ranks and of parts, with blocks that recompute: its parts in this order."""
GRID = [
    (stage, ranks, parts, every, optimizer)
    for stage in range(4)
    for ranks in (1, 2, 4)
    for parts in (1, 2, 4)
    for every in (0, 1)
    for optimizer in ("adamw", "sgd")
]


def in_fp32(stage: int, ranks: int, parts: int, every: int, optimizer: str) -> Case:
    return Case(stage, ranks, parts, "fp32", network="stack", every=every, optimizer=optimizer)


class Sometimes(nn.Module):
    """The network of scenarios.py, and a layer that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = build(), nn.Linear(64, 64)

    def forward(self, part: torch.Tensor, uses_all: bool) -> torch.Tensor:
        drawn = self.always(part)
        return drawn + self.sometimes(part) if uses_all else drawn


class Block(nn.Module):
    """A residual block with a parameter of its own, beside those of its layers, as adaLN-single has them."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.table = nn.Linear(64, 96), nn.Linear(96, 64), nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table * self.out(nn.functional.silu(self.into(x)))


class Stack(BlockNetwork):
    """Some blocks, and a layer."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Uneven(nn.Module):
    """Two layers, and a factor between them that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, 5), nn.Linear(5, 64)
        self.factor = nn.Parameter(torch.rand(5), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.factor * self.into(x))


NETWORKS = {"plain": build, "sometimes": Sometimes, "stack": Stack, "uneven": Uneven}


def network(case: Case, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return NETWORKS[case.network]()


def images(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(step))


def mean_loss(model: nn.Module, case: Case, step: int, number: int, part: torch.Tensor) -> torch.Tensor:
    """Loss of a part of a batch, by its number within the batch."""
    rounded, last = part.to(DTYPES[case.precision]), case.ranks * case.micro_batches - 1
    drawn = model(rounded, step % 2 == 0 and number == last) if case.network == "sometimes" else model(rounded)
    loss = (drawn.float() - part).square().mean()
    return loss * 1e30 if case.precision == "fp16" and (step % PERIOD, number) == (OVERFLOWING, last) else loss


@dataclass
class Course:
    """What a training came to: weights by name, and losses, gradient norms and loss scales of its steps."""

    weights: dict[str, torch.Tensor]
    losses: list[float]
    norms: list[float | None]
    scales: list[float]


def optimizer_of(case: Case, groups: list[dict], settings: Training) -> torch.optim.Optimizer:
    if case.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=0.9)
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True)


def by_hand(case: Case, settings: Training) -> Course:
    """Train with as many lines as it takes."""
    model, parts = network(case).to(DTYPES[case.precision]), case.ranks * case.micro_batches
    weights = {name: parameter.detach().float().clone() for name, parameter in network(case).named_parameters()}
    decays = {True: settings.weight_decay, False: 0.0}
    groups = [
        {"params": [weight for weight in weights.values() if (weight.ndim > 1) == is_matrix], "weight_decay": decay}
        for is_matrix, decay in decays.items()
    ]
    course, optimizer = Course(weights, [], [], []), optimizer_of(case, groups, settings)
    scale, since = 2.0**16 if case.precision == "fp16" else 1.0, 0
    for step in range(case.steps):
        for weight in weights.values():
            weight.grad = torch.zeros_like(weight)
        course.losses.append(0.0)
        for number, part in enumerate(images(step).chunk(parts)):
            loss = mean_loss(model, case, step, number, part) / parts
            course.losses[-1] += float(loss)
            (loss * scale).backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    weights[name].grad += parameter.grad.float() / scale
                    parameter.grad = None
        norm = float(nn.utils.clip_grad_norm_(weights.values(), settings.gradient_clip))
        course.norms.append(norm if math.isfinite(norm) else None)
        if math.isfinite(norm):
            warmed_up = min(1, BATCH * (step + 1) / settings.warmup_images)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * warmed_up
            optimizer.step()
            since += 1
        if case.precision == "fp16":
            # DeepSpeed counts from the second step, after an overflow as at the beginning.
            doubles = since > 1 and (since - 1) % WINDOW == 0
            scale, since = (scale * (2 if doubles else 1), since) if math.isfinite(norm) else (scale / 2, 0)
            course.scales.append(scale)
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
    return course


def engine_of(root: Path, case: Case, rank: int, settings: Training) -> Engine:
    """Join the other ranks with an engine of a network that has weights of its own, of which rank 0's count."""
    place, device, model = join(root / "store", rank, case.ranks), torch.device("cpu"), network(case, rank)
    prepare_blocks(model, case.every, Compilation())
    shared = case.stage, case.micro_batches, lambda groups, own: optimizer_of(case, groups, own)
    return Engine(model, settings, place, device, *shared)


def by_engine(root: Path, case: Case, settings: Training) -> Course:
    """Train by the engine."""

    def work(rank: int) -> None:
        engine, course = engine_of(root, case, rank, settings), Course({}, [], [], [])
        for step in range(case.steps):
            course.losses.append(0.0)
            for own, part in enumerate(images(step).chunk(case.ranks)[rank].chunk(case.micro_batches)):
                loss = mean_loss(engine.model, case, step, case.micro_batches * rank + own, part)
                course.losses[-1] += float(loss) / case.micro_batches / case.ranks
                engine.backward(loss)
            made = engine.step(BATCH * (step + 1))
            course.norms.append(engine.gradient_norm())
            assert made == (course.norms[-1] is not None)
            if case.precision == "fp16":
                course.scales.append(engine.scaler_state()["cur_scale"])
        course.weights |= engine.gather_weights(fp32_master_weights.master_weights(engine.model))
        torch.save(vars(course), root / f"{rank}.pt")
        dist.barrier()

    root.mkdir()
    assert on_ranks(case.ranks, work) == [0] * case.ranks, case
    everyone = [Course(**torch.load(root / f"{rank}.pt")) for rank in range(case.ranks)]
    assert all((own.norms, own.scales) == (everyone[0].norms, everyone[0].scales) for own in everyone)
    # A loss is shared by the ranks as its images are.
    everyone[0].losses = [sum(losses) for losses in zip(*(own.losses for own in everyone), strict=True)]
    return everyone[0]


def compared(case: Case, root: Path) -> dict:
    """Differences: largest of a weight, relative L2 of a tensor, each with the tensor; norms and losses."""
    changes = {"precision": case.precision, "gradient_clip": case.clip, "betas": (0.8, 0.95), "eps": 1e-6}
    settings = training(batch=BATCH, images=case.steps * BATCH, warmup_images=2 * BATCH, **changes)
    expected, trained = by_hand(case, settings), by_engine(root / case.name, case, settings)
    assert trained.weights.keys() == expected.weights.keys()
    apart = {name: trained.weights[name] - value.detach() for name, value in expected.weights.items()}
    relative = {name: float(values.norm() / expected.weights[name].norm()) for name, values in apart.items()}
    largest = {name: float(values.abs().max()) for name, values in apart.items()}
    assert [norm is None for norm in trained.norms] == [norm is None for norm in expected.norms]
    norms = [(own, other) for own, other in zip(trained.norms, expected.norms, strict=True) if other is not None]
    losses = zip(trained.losses, expected.losses, strict=True)
    return {
        "weights": max(largest.values()),
        "worst": max(largest, key=lambda name: largest[name]),
        "relative": max(relative.values()),
        "worst relative": max(relative, key=lambda name: relative[name]),
        "norms": max(abs(own - other) / other for own, other in norms),
        "losses": max(abs(own - other) / max(1, abs(other)) for own, other in losses),
        "scales": [trained.scales, expected.scales],
    }


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(values, other[name]) for name, values in one.items())


def start(case: Case, root: Path) -> dict[str, bool]:
    """Tell if fp32 weights and averages start as rank 0's to the bit, and if all ranks compute with those, rounded."""
    settings = training(precision=case.precision, batch=case.ranks, **AVERAGES)
    dtype, initial = DTYPES[case.precision], network(case).state_dict()

    def work(rank: int) -> None:
        engine, ones = engine_of(root, case, rank, settings), torch.ones(1, 64, dtype=dtype)
        weights = engine.gather_weights(fp32_master_weights.master_weights(engine.model))
        gathered = {"weights": weights | {"factor": initial["factor"]}}
        gathered |= {name: engine.averaged_weights(name) for name in update_weights(settings)}
        found = {name: equal(tensors, initial) for name, tensors in gathered.items()}
        found["network"] = torch.equal(engine.model(ones), network(case).to(dtype)(ones))
        (root / f"{rank}.json").write_text(json.dumps(found))
        dist.barrier()

    root.mkdir()
    assert on_ranks(case.ranks, work) == [0] * case.ranks, case
    first, *others = (json.loads((root / f"{rank}.json").read_text()) for rank in range(case.ranks))
    return first | {"others": all(each["network"] for each in others)}


def main(root: Path, which: str) -> dict[str, dict]:
    allow_fp16(WINDOW)
    cases = [in_fp32(*parts) for parts in GRID] if which == "grid" else CASES + [in_fp32(*parts) for parts in IN_SHORT]
    found = {case.name: compared(case, root) for case in dict.fromkeys(cases)}
    return found | ({} if which == "grid" else {case.name: start(case, root / case.name) for case in STARTS})


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]), sys.argv[2])), flush=True)
