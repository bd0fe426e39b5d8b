"""Trainings by two and four ranks: interrupted, with a batch that is not finite, and the host memory of their end.

Prints what came out as JSON.
"""

import json
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.jobs.devices import DTYPES
from hpcddm.jobs.job_environment import Ranks
from hpcddm.training import deepspeed_patches, loop, step_results
from hpcddm.training.engine import Engine
from hpcddm.training.meters import peak_memory_gib
from tests.training.half import allow_fp16
from tests.training.scenarios import BATCH, STEPS, Trainings, batches, build, join, on_ranks, resolved, training

BAD_STEP = 3
LONG, STOPS = 14, [1, 2, 2, 2, 2]
"""Steps of a training that is interrupted between two points of its curve again and again."""
STAGES = [(0, "fp32"), (0, "bf16"), (1, "fp32"), (1, "bf16"), (2, "bf16"), (3, "fp32"), (3, "bf16")]
STAGES += [(0, "fp16"), (3, "fp16")]
"""Stages of ZeRO that are interrupted, with a batch that is not finite; the others are trained in stage 1 and fp32."""
SNAPSHOTS = [2 * BATCH, 9 * BATCH, STEPS * BATCH]
"""Images at which the trainings in those stages keep their weights."""
ELASTIC = [(2, 1, None), (1, 0, 4), (4, 3, None), (2, 2, 1)]
"""Ranks, stage of ZeRO and micro batch of the attempts of a training that goes on with others each time."""
WIDE = 4096
"""One layer of so many values squared, 64 MB: what is gathered shall stand out of what a process takes anyway."""


class Collectives(TorchDispatchMode):
    """Names of the collectives that were called, without those inside of DeepSpeed's backward and step."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self._inside = 0
        for name in ("backward", "step"):
            self._pass_over(name)

    def _pass_over(self, name: str) -> None:
        method = getattr(deepspeed.DeepSpeedEngine, name)

        def passed_over(*args: object, **kwargs: object) -> object:
            self._inside += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._inside -= 1

        setattr(deepspeed.DeepSpeedEngine, name, passed_over)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d" and not self._inside:
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Reads(TorchDispatchMode):
    """Number of values that the host read of tensors, for each of which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ == "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


class Pairs(Trainings):
    """Trainings by two ranks, and what their steps and their end take."""

    def in_stage(self, stage: int, precision: str, stops: list[int]) -> dict:
        """A training in a stage of ZeRO with a batch that is not finite; where it is stopped it is looked at, too."""
        name, changes = (
            f"stage {stage}, {precision}, {len(stops)} stops",
            {"precision": precision, "snapshots": SNAPSHOTS},
        )
        found = self.chain(name, stops, [BAD_STEP], {"zero_stage": stage}, bool(stops), **changes)
        if stops and "kept" in found:
            network = build()
            seen, found["in training"] = json.loads((self.root / name / "seen.json").read_text())
            network.load_state_dict(load_file(self.folder(name) / "snapshots/images-000000000072.safetensors"))
            expected = network(torch.ones(1, 64)).flatten()
            found["seen apart"] = ((torch.tensor(seen) - expected).norm() / expected.norm()).item()
        return {name: found}

    def collectives(self) -> list[list[str]]:
        """The collectives of each step on rank 0 but DeepSpeed's; every second step is logged."""
        settings = training(images=6 * BATCH, log_every_images=2 * BATCH)

        def work(rank: int) -> None:
            unit, counts = self.unit("collectives", Ranks(rank, rank, 2, 1, "me")), []
            with Collectives() as called:
                loss = self.loss(unit)

                def noting(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
                    counts.append(len(called.names))
                    return loss(model, batch)

                loop.train(
                    loop.Task(build, noting, batches(self.reader), pixels_to_values), resolved(settings, 0), unit
                )
            steps = [called.names[start:end] for start, end in zip(counts, counts[1:], strict=False)]
            (self.root / f"collectives-{rank}").write_text(json.dumps(steps))

        assert on_ranks(2, work) == [0, 0]
        return json.loads((self.root / "collectives-0").read_text())

    def reads(self, precision: str) -> int:
        """How often the host reads a value of a tensor, or waits for the device, while rank 0 makes three steps."""

        def work(rank: int) -> None:
            ranks = join(self.root / f"reads-{precision}", rank, 2)
            engine = Engine(build(), training(precision=precision), ranks, torch.device("cpu"))
            waits: list[tuple] = []
            get_accelerator().synchronize = lambda *arguments: waits.append(arguments)
            with Reads() as reads:
                for step in range(3):
                    engine.backward(
                        engine.model(torch.ones(4, 1, 8, 8, dtype=DTYPES[precision])).float().square().mean()
                    )
                    made = engine.step(BATCH * (step + 1))
            (self.root / f"reads-{rank}").write_text(str(reads.count + len(waits) if bool(made) else -1))
            dist.barrier()

        assert on_ranks(2, work) == [0, 0]
        return int((self.root / "reads-0").read_text())

    def gather(self) -> list[dict]:
        """By how many times the weights' size the host memory of each rank grows while they are gathered."""

        def work(rank: int) -> None:
            ranks, model = join(self.root / "gather-store", rank, 2), nn.Linear(WIDE, WIDE, bias=False)
            engine = Engine(model, training(), ranks, torch.device("cpu"))
            # The highest memory so far does not count.
            Path("/proc/self/clear_refs").write_text("5")
            before = peak_memory_gib(torch.device("cpu"))
            weights = engine.averaged_weights()
            grown = (peak_memory_gib(torch.device("cpu")) - before) * 2**30 / (4 * WIDE * WIDE)
            right = rank == 1 or torch.equal(weights["weight"], model.weight.float())
            (self.root / f"gather-{rank}").write_text(json.dumps({"grown": grown, "names": [*weights], "right": right}))
            dist.barrier()

        assert on_ranks(2, work) == [0, 0]
        return [json.loads((self.root / f"gather-{rank}").read_text()) for rank in range(2)]


def main(root: Path) -> dict:
    pairs, often = Pairs(root, 2), {"log_every_images": 2 * BATCH}
    found = {
        "reference": pairs.chain("reference", images=LONG * BATCH, **often),
        "stopped": pairs.chain("stopped", STOPS, images=LONG * BATCH, **often),
        "short": pairs.chain("short"),
        "no threads": pairs.chain("no threads", [3, 2, 1], resources={"data_threads": 0}),
        "4 ranks": pairs.chain("4 ranks", resources={"world_size": 4}),
        "4 ranks, 4 threads": pairs.chain("4 threads", [3, 2, 1], resources={"world_size": 4, "data_threads": 4}),
    }
    allow_fp16(window=2, allowed=False)
    found["fp16 refused"] = pairs.train("refused", training(precision="fp16"))
    allow_fp16(window=2)
    for stage, precision in STAGES:
        for stops in ([], [BAD_STEP + 1, 2]):
            found |= pairs.in_stage(stage, precision, stops)
    watched, deepspeed_patches.DEVICES_WITHOUT_SYNC = deepspeed_patches.DEVICES_WITHOUT_SYNC, ("cpu",)
    found["unwatched"] = pairs.chain("unwatched", [3, 2], [BAD_STEP], precision="bf16", snapshots=SNAPSHOTS)
    found["read in steps"] = {precision: pairs.reads(precision) for precision in ("bf16", "fp16")}
    deepspeed_patches.DEVICES_WITHOUT_SYNC = watched
    names = ("world_size", "zero_stage", "micro_batch")
    shapes = [dict(zip(names, shape, strict=True)) for shape in ELASTIC]
    found["elastic"] = pairs.chain("elastic", [3, 5, 2], [BAD_STEP], shapes, log_every_images=3 * BATCH)
    found["undisturbed"] = pairs.chain("undisturbed", [], [BAD_STEP], log_every_images=3 * BATCH)
    found["elastic"]["farthest"] = pairs.farthest("elastic", "undisturbed")
    found["seldom agreed"] = pairs.chain("seldom", [3], resources={"sync_every_steps": 4}, **often)
    ends = {"last one skipped": [STEPS - 1], "last two skipped": [STEPS - 2, STEPS - 1], "most skipped": range(1, 8)}
    for name, skipped in ends.items():
        found[name] = pairs.chain(name, [STEPS - 1], skipped)
    found["grown"] = pairs.chain("grown", learning_rate=10)
    step_results.MAX_SKIPPED = 4
    found["diverged"] = pairs.chain("diverged", [], range(BAD_STEP, STEPS))
    return found | {"gather": pairs.gather(), "collectives": pairs.collectives()}


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]))), flush=True)
