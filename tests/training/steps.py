"""Steps of the engine beside those of a hand-written loop: largest differences of weights and norms, as JSON.

Both train the network of scenarios.py in bf16 on the same batches. The loop keeps fp32 weights of its own, adds the
gradients of the parts of a batch in fp32 and knows nothing of ranks: each part is a micro batch of some rank.
"""

import json
import os
import sys
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
PARTS = {"one rank": (1, 1), "two micro batches": (1, 2), "two ranks": (2, 1), "two ranks, two micro batches": (2, 2)}
"""Ranks and micro batches of each."""
CLIPS = {"": 1e9, ", clipped": 0.05}
"""Ends of the names, and the largest norm of a gradient; those of these gradients are larger than the second one."""


def network() -> nn.Module:
    torch.manual_seed(0)
    return build()


def images(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(step))


def mean_loss(model: nn.Module, part: torch.Tensor) -> torch.Tensor:
    return (model(part.bfloat16()).float() - part).square().mean()


def by_hand(settings: Training, parts: int) -> tuple[torch.Tensor, list[float]]:
    """Train with as many lines as it takes; return the flat fp32 weights, and the gradient's norm in each step."""
    model = network().bfloat16()
    weights = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    optimizer, norms = torch.optim.AdamW(weights, weight_decay=settings.weight_decay, fused=True), []
    for step in range(STEPS):
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        for part in images(step).chunk(parts):
            (mean_loss(model, part) / parts).backward()
            for weight, parameter in zip(weights, model.parameters(), strict=True):
                weight.grad += parameter.grad.float()
                parameter.grad = None
        norms.append(float(nn.utils.clip_grad_norm_(weights, settings.gradient_clip)))
        warmed_up = min(1, BATCH * (step + 1) / settings.warmup_images)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * warmed_up
        optimizer.step()
        for weight, parameter in zip(weights, model.parameters(), strict=True):
            parameter.data.copy_(weight.detach())
    return torch.cat([weight.detach().flatten() for weight in weights]), norms


def by_engine(root: Path, settings: Training, ranks: int, micro_batches: int) -> tuple[torch.Tensor, list[float]]:
    """Train by the engine; return the same, the weights of all ranks one behind the other."""

    def work(rank: int) -> None:
        dist.init_process_group("gloo", store=dist.FileStore(str(root / "store"), ranks), rank=rank, world_size=ranks)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        place, device = Ranks(rank, rank, ranks, 1, "me"), torch.device("cpu")
        engine, norms = Engine(network(), settings, place, device, micro_batches=micro_batches), []
        for step in range(STEPS):
            for part in images(step).chunk(ranks)[rank].chunk(micro_batches):
                engine.backward(mean_loss(engine.model, part))
            assert engine.step(BATCH * (step + 1))
            norms.append(engine.gradient_norm())
        (shard,) = masters.master_weights(engine.model)
        torch.save((shard, norms), root / f"{rank}.pt")
        dist.barrier()

    root.mkdir()
    assert on_ranks(ranks, work) == [0] * ranks
    shards, norms = zip(*(torch.load(root / f"{rank}.pt") for rank in range(ranks)), strict=True)
    assert len({tuple(own) for own in norms}) == 1
    return torch.cat(shards), norms[0]


def main(root: Path) -> dict[str, tuple[float, float]]:
    found = {}
    for name, (ranks, micro_batches) in PARTS.items():
        for end, clip in CLIPS.items():
            settings = training(precision="bf16", gradient_clip=clip)
            expected, norms = by_hand(settings, ranks * micro_batches)
            trained, engine_norms = by_engine(root / f"{name}{end}", settings, ranks, micro_batches)
            pairs = zip(engine_norms, norms, strict=True)
            found[name + end] = (
                float((trained[: len(expected)] - expected).abs().max()),
                max(abs(own - other) / other for own, other in pairs),
            )
    return found


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]))), flush=True)
