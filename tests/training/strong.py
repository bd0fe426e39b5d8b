"""Trainings of a DiT of the strong block by two ranks: in all stages of ZeRO, and with blocks that are compiled.

Prints what came out as JSON. `on_gpu` makes a CPU one of the devices on which blocks are compiled by default.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from functorch.compile import nop
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from hpcddm.models.base import Network
from hpcddm.runs import training_states
from hpcddm.training import compile_choice
from tests.diffusion.spaces.examples import network_data
from tests.models import examples
from tests.training.scenarios import Trainings, training

BLOCK = {"mlp": "swiglu", "norm": "rms", "positions": "rotary"}
LONG, SHORT = 1e3, 1e9
"""Speeds of a GPU at which these trainings are long enough to be compiled, or are not."""


class Strong(Network):
    """A DiT of images of 8 x 8, of a fixed time and of classes by place."""

    def __init__(self, **options: Any) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(1)
        settings = examples.settings("dit", condition="class", **BLOCK, **options)
        self.dit = examples.network(settings, network_data(1, 8, 3), 1)

    def stacked_blocks(self) -> Any:
        return self.dit.stacked_blocks()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dit(x, torch.full((len(x),), 0.3), torch.arange(len(x)) % 3).flatten(1)


def cases() -> Iterator[dict[str, Any]]:
    """Stages of ZeRO, precisions, recomputation, micro batches and QK norms: every two values of two of them."""
    for a, b, c in itertools.product((0, 1), repeat=3):
        resources = {"zero_stage": 2 * a + b, "checkpoint_blocks": a ^ c, "micro_batch": (None, 2)[b ^ c]}
        yield resources | {"precision": ("fp32", "bf16")[c], "qk_norm": bool(a ^ b ^ c)}


def in_stages(root: Path) -> list[dict[str, Any]]:
    """Trainings of all `cases`, undisturbed and stopped once."""
    runs, found = Trainings(root, 2), []
    for number, case in enumerate(cases()):
        own, modulation = dict(case), ("zero", "single")[number % 3 % 2]
        runs.build = partial(Strong, qk_norm=own.pop("qk_norm"), modulation=modulation)
        changes = {"precision": own.pop("precision"), "images": 32}
        chains = [runs.chain(f"{number} {stops}", stops, (), own, **changes) for stops in ([], [2])]
        found.append({"case": case, "chains": chains})
    return found


def no_backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable:
    """Fail to compile."""
    raise ValueError("no such\ninstruction")


def no_backend_on_rank_1(graph: torch.fx.GraphModule, inputs: Any) -> Callable:
    """Fail to compile on one of the ranks."""
    return no_backend(graph, inputs) if dist.get_rank() == 1 else graph.forward


@contextmanager
def on_gpu(backend: Any = "aot_eager", speed: float = LONG, compiler: bool = True) -> Iterator[None]:
    """Take a CPU for a GPU of some speed, with one of torch's compilers, and with one of C++ or without."""
    changes = {"DEVICES": ("cpu",), "GPU_FLOPS_PER_SECOND": speed, "has_cpp_compiler": lambda: compiler}
    with patch.multiple(compile_choice, **changes), patch("torch.compile", partial(torch.compile, backend=backend)):
        yield


class Compiled(Trainings):
    """Trainings by two ranks, and if the blocks of their last states were compiled."""

    build = Strong

    def one(self, name: str, resources: dict[str, Any] | None = None, stop: int | None = None, **gpu: Any) -> dict:
        """Train to the end, or until a stop, on a GPU as `on_gpu` takes it."""
        print(f"== {name}", flush=True)
        with on_gpu(**gpu):
            own, images = resources or {}, {"images": 40}
            if stop:
                found: dict[str, Any] = {"codes": self.train(name, training(**images), stop, **own)}
            else:
                found = self.chain(name, resources=own, **images)
        states = training_states.list_states(self.folder(name) / "state", "f")
        return found | {"compiled": states[-1][1]["compiled"] if states else None}


def compiled(root: Path) -> dict[str, Any]:
    """Trainings that compile, that would and cannot, and that go on where the other choice would be made."""
    runs, backward = Compiled(root, 2), aot_autograd(fw_compiler=nop, bw_compiler=no_backend)
    backends = {"forward": no_backend, "backward": backward, "on one rank": no_backend_on_rank_1}
    found = {name: runs.one(name, backend=backend) for name, backend in backends.items()}
    recomputing = {"checkpoint_blocks": 1}
    found["never"] = runs.one("never", {"compile_blocks": False})
    found["recomputing"] = runs.one("recomputing", recomputing, backend=backward)
    found["required"] = runs.one("required", {"compile_blocks": True}, backend=no_backend)
    found["no compiler"] = runs.one("no compiler", compiler=False)
    found["required, no compiler"] = runs.one("required, no compiler", {"compile_blocks": True}, compiler=False)
    found["short"] = runs.one("short", speed=SHORT)
    found["stage 3"] = runs.one("stage 3", {"zero_stage": 3})
    found["stage 3, never"] = runs.one("stage 3, never", {"zero_stage": 3, "compile_blocks": False})
    for name, speeds in {"compiled first": (LONG, SHORT), "compiled never": (SHORT, LONG)}.items():
        for stop, speed in zip((3, None), speeds, strict=True):
            found[f"{name}, {'until' if stop else 'after'} a stop"] = runs.one(name, stop=stop, speed=speed)
    found["whole"] = runs.one("whole", recomputing)
    return found


if __name__ == "__main__":
    run = {"stages": in_stages, "compiled": compiled}[sys.argv[2]]
    print("\nRESULT " + json.dumps(run(Path(sys.argv[1]))), flush=True)
