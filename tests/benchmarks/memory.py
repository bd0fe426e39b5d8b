"""Memory of real training steps beside what `hpcddm plan` predicts: live tensors, and the process above an idle one.

Each configuration has at least 100 million parameters and trains in processes of its own, of one thread each.
`python -m tests.benchmarks.memory [NAME ...]`
"""

import gc
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.commands.planning import memory
from hpcddm.commands.planning.live_memory import LiveBytes
from hpcddm.jobs.devices import DTYPES
from hpcddm.jobs.job_environment import Ranks
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.training import engine as engines
from hpcddm.training.engine import BUCKET, Engine
from hpcddm.training.meters import peak_memory_gib
from tests.benchmarks.tables import parser_of, print_header, print_row
from tests.diffusion.spaces.examples import network_data
from tests.models import examples
from tests.training.pair import on_ranks
from tests.training.scenarios import training

SIDE = 16
"""Side of the latents: 64 tokens of 2 x 2."""
STEPS = 2
DIT = {"name": "dit", "width": 768, "depth": 12, "heads": 12, "patch": 2}
MMDIT = {"name": "mmdit", "width": 640, "depth": 16, "heads": 10, "patch": 2}
THREE_B = {"name": "mmdit", "width": 2560, "depth": 4, "heads": 20, "patch": 2}
"""Hidden width 2560 and an eighth of depth 30, as "3B" is described in arXiv 2501.05450, sec. 4."""


@dataclass(frozen=True)
class Configuration:
    """One training."""

    name: str
    model: dict[str, Any]
    stage: int
    ranks: int = 1
    micro_batch: int = 8
    parts: int = 1
    every: int = 0
    precision: str = "fp32"
    bucket: int = BUCKET
    """Largest number of values of a gradient that are reduced at once."""

    def build(self) -> nn.Module:
        own = examples.settings(**self.model, condition="class")
        torch.manual_seed(0)
        return examples.network(own, network_data(4, SIDE, 1000), 1)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(self.micro_batch, 4, SIDE, SIDE, generator=generator)
        times = torch.rand(self.micro_batch, generator=generator)
        return images, times, torch.zeros(self.micro_batch, dtype=torch.long)

    def predicted(self) -> memory.TensorMemory:
        sharing = memory.RankDivision(self.ranks, self.stage, self.parts)
        how = self.precision, self.every, sharing.keeps_gradients
        passed = memory.peak_of_pass(self.build, self.inputs(), *how, on_gpu=False)
        return memory.predict_memory(memory.unallocated(self.build), passed, self.precision, sharing)


CONFIGURATIONS = [
    Configuration("dit-0", DIT, 0, precision="bf16", micro_batch=16),
    Configuration("dit-1", DIT, 1, ranks=2, precision="bf16", micro_batch=32),
    Configuration("dit-1-recomputing", DIT, 1, precision="bf16", micro_batch=64, every=1),
    Configuration("dit-2", DIT, 2, ranks=2, parts=2, micro_batch=16),
    Configuration("mmdit-3", MMDIT, 3, ranks=2, precision="bf16", micro_batch=16, every=2),
    Configuration("mmdit-1", MMDIT, 1, parts=2, micro_batch=8),
]
TINY = {"name": "dit", "width": 256, "depth": 4, "heads": 4, "patch": 2}
SMALL = [
    Configuration("small-0", TINY, 0, precision="bf16", every=2),
    Configuration("small-1", TINY, 1, ranks=2, precision="bf16", micro_batch=16),
    Configuration("small-2", TINY, 2, ranks=2, parts=2, bucket=1_500_000),
    Configuration("small-3", TINY, 3, ranks=2, precision="bf16", every=1, bucket=1_500_000),
]
"""What a test measures in seconds; buckets as much smaller as the network is."""
LARGE = Configuration("mmdit-3b-eighth", THREE_B, 3, ranks=2, precision="bf16", micro_batch=2, every=1)


def measure(own: Configuration, root: Path) -> dict[str, Any]:
    """Train some steps and return the largest figures of a rank."""

    def work(rank: int) -> None:
        store = dist.FileStore(str(root / "store"), own.ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=own.ranks)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(own.ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        # An idle process has its libraries in memory.
        small = nn.Linear(64, 64).to(DTYPES[own.precision])
        small(torch.ones(64, 64, dtype=DTYPES[own.precision])).sum().backward()
        gc.collect()
        idle, losses, started = _resident(), [], 0.0
        with LiveBytes() as live:
            model = own.build()
            prepare_blocks(model, own.every, Compilation())
            settings = training(precision=own.precision, batch=own.micro_batch * own.parts * own.ranks)
            place = Ranks(rank, rank, own.ranks, 1, "me")
            engine = Engine(model, settings, place, torch.device("cpu"), own.stage, own.parts)
            del model
            inputs = own.inputs()
            for step in range(STEPS):
                # Of the first step some buffers are young; it is the last one that counts.
                live.restart()
                Path("/proc/self/clear_refs").write_text("5")
                started = time.perf_counter()
                for _ in range(own.parts):
                    loss = (engine.model(*inputs).float() - inputs[0]).square().mean()
                    losses.append(float(loss.detach()))
                    engine.backward(loss)
                    del loss
                engine.step(settings.batch * (step + 1))
        seconds = time.perf_counter() - started
        peak = peak_memory_gib(torch.device("cpu")) * 2**30 - idle
        figures = {"live": live.peak, "resident": peak, "losses": losses, "seconds": seconds}
        (root / f"{rank}.json").write_text(json.dumps(figures))
        dist.barrier()

    assert on_ranks(own.ranks, work) == [0] * own.ranks, own
    ranks = [json.loads((root / f"{rank}.json").read_text()) for rank in range(own.ranks)]
    return ranks[0] | {key: max(rank[key] for rank in ranks) for key in ("live", "resident", "seconds")}


def _resident() -> float:
    """Bytes of this process now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory_gib(torch.device("cpu")) * 2**30


def compared(own: Configuration) -> dict[str, Any]:
    """Measure a configuration and predict it."""
    engines.BUCKET = memory.BUCKET = own.bucket
    with tempfile.TemporaryDirectory() as folder:
        found = measure(own, Path(folder))
    predicted = own.predicted()
    parameters = sum(one.numel() for one in memory.unallocated(own.build).parameters())
    off = {"live": predicted.peak / found["live"] - 1, "resident": predicted.resident / found["resident"] - 1}
    return found | {"parameters": parameters, "predicted": predicted.peak, "parts": vars(predicted), "off": off}


def main() -> None:
    """Print a line for each configuration, and all figures as JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    chosen = [own for own in [*CONFIGURATIONS, LARGE, *SMALL] if own.name in names] if names else CONFIGURATIONS
    print_header("training", "parameters", "predicted GB", "live", "resident")
    for own in chosen:
        found = compared(own)
        live, resident, predicted = (found[key] / 1e9 for key in ("live", "resident", "predicted"))
        off, resident_off = (f"{100 * found['off'][key]:+.1f} %" for key in ("live", "resident"))
        sizes = f"{predicted:.2f}", f"{live:.2f} ({off})", f"{resident:.2f} ({resident_off})"
        print_row(own.name, f"{found['parameters'] / 1e6:.0f} M", *sizes)
        print("RESULT " + json.dumps({"name": own.name} | found), flush=True)


if __name__ == "__main__":
    main()
