"""Steps of the engine beside those of a hand-written loop: largest differences of weights and norms, as JSON.

Both train the network of scenarios.py in bf16 on the same batches. The loop keeps fp32 weights of its own, adds the
gradients of the parts of a batch in fp32 and knows nothing of ranks: each part is a micro batch of some rank.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.runtime.environment import Ranks
from hpcddm.training import masters
from hpcddm.training.engine import Engine
from hpcddm.training.settings import Training
from tests.training.pair import on_ranks
from tests.training.scenarios import BATCH, build, training

STEPS = 6
CLIP = 0.05
"""Largest norm of a gradient where it is clipped; those of these gradients are larger."""


@dataclass(frozen=True)
class Case:
    """A way to share the same batches."""

    stage: int
    ranks: int = 1
    micro_batches: int = 1
    precision: str = "bf16"
    clip: float = 1e9
    sometimes: bool = False
    """True for a network of which one layer is used in the last part of every second batch alone."""

    @property
    def name(self) -> str:
        ends = (" clipped" if self.clip == CLIP else "") + (" sometimes" if self.sometimes else "")
        return f"stage {self.stage}, {self.ranks} x {self.micro_batches}, {self.precision}{ends}"


SHARED = ((1, 1), (1, 2), (2, 1), (2, 2))
CASES = [Case(1, *shared, clip=clip) for shared in SHARED for clip in (1e9, CLIP)]
CASES += [Case(stage, 2, 2, precision) for precision in ("fp32", "bf16") for stage in range(4)]
CASES += [Case(stage, 2, 2, "fp32", CLIP) for stage in range(4)]
CASES += [Case(3, 4, 1, "fp32"), Case(0, precision="fp32"), Case(0)]
CASES += [Case(stage, 1, 2, "fp32", sometimes=True) for stage in range(4)] + [Case(1, 1, 2, sometimes=True)]


class Network(nn.Module):
    """The network of scenarios.py, and a layer that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = build(), nn.Linear(64, 64)

    def forward(self, part: torch.Tensor, uses_all: bool) -> torch.Tensor:
        drawn = self.always(part)
        return drawn + self.sometimes(part) if uses_all else drawn


def network(case: Case) -> nn.Module:
    torch.manual_seed(0)
    return Network() if case.sometimes else build()


def images(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(step))


def mean_loss(model: nn.Module, part: torch.Tensor, case: Case, uses_all: bool) -> torch.Tensor:
    rounded = part.to(torch.bfloat16 if case.precision == "bf16" else torch.float32)
    return ((model(rounded, uses_all) if case.sometimes else model(rounded)).float() - part).square().mean()


def uses_all(step: int, number: int, parts: int) -> bool:
    return step % 2 == 0 and number == parts - 1


def by_hand(case: Case, settings: Training) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Train with as many lines as it takes; return the fp32 weights by name, and the gradient's norm in each step."""
    model, parts = network(case), case.ranks * case.micro_batches
    model.to(torch.bfloat16 if case.precision == "bf16" else torch.float32)
    weights = {name: parameter.detach().float().clone() for name, parameter in model.named_parameters()}
    decays = {True: settings.weight_decay, False: 0.0}
    groups = [
        {"params": [weight for weight in weights.values() if (weight.ndim > 1) == is_matrix], "weight_decay": decay}
        for is_matrix, decay in decays.items()
    ]
    optimizer, norms = torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True), []
    for step in range(STEPS):
        for weight in weights.values():
            weight.grad = torch.zeros_like(weight)
        for number, part in enumerate(images(step).chunk(parts)):
            (mean_loss(model, part, case, uses_all(step, number, parts)) / parts).backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    weights[name].grad += parameter.grad.float()
                    parameter.grad = None
        norms.append(float(nn.utils.clip_grad_norm_(weights.values(), settings.gradient_clip)))
        warmed_up = min(1, BATCH * (step + 1) / settings.warmup_images)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * warmed_up
        optimizer.step()
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
    return weights, norms


def by_engine(root: Path, case: Case, settings: Training) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Train by the engine; return the same."""

    def work(rank: int) -> None:
        store = dist.FileStore(str(root / "store"), case.ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=case.ranks)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case.ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        place, device = Ranks(rank, rank, case.ranks, 1, "me"), torch.device("cpu")
        engine, norms = Engine(network(case), settings, place, device, case.stage, case.micro_batches), []
        for step in range(STEPS):
            parts = images(step).chunk(case.ranks)[rank].chunk(case.micro_batches)
            for number, part in enumerate(parts):
                engine.backward(mean_loss(engine.model, part, case, uses_all(step, number, len(parts))))
            assert engine.step(BATCH * (step + 1))
            norms.append(engine.gradient_norm())
        weights = engine.gathered(masters.master_weights(engine.model))
        torch.save((weights, norms), root / f"{rank}.pt")
        dist.barrier()

    root.mkdir()
    assert on_ranks(case.ranks, work) == [0] * case.ranks, case
    everyone = [torch.load(root / f"{rank}.pt") for rank in range(case.ranks)]
    assert len({tuple(norms) for _, norms in everyone}) == 1
    return everyone[0]


def main(root: Path) -> dict[str, tuple[float, str, float]]:
    """Return the largest difference of a weight, the weight's name, and the largest one of a norm, by case."""
    found = {}
    for case in dict.fromkeys(CASES):
        settings = training(precision=case.precision, gradient_clip=case.clip, betas=(0.8, 0.95), eps=1e-6)
        (expected, norms), (trained, engine_norms) = (
            by_hand(case, settings),
            by_engine(root / case.name, case, settings),
        )
        assert trained.keys() == expected.keys()
        worst, name = max((float((trained[name] - value).abs().max()), name) for name, value in expected.items())
        pairs = zip(engine_norms, norms, strict=True)
        found[case.name] = worst, name, max(abs(own - other) / other for own, other in pairs)
    return found


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]))), flush=True)
