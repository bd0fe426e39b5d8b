"""Trainings by two and four ranks: interrupted, with a batch that is not finite, and the host memory of their end.

Prints what came out as JSON. Every rank is a fork of this process, which has paid for the imports.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpcddm.config.site import Resources
from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import UnitTraining
from hpcddm.training import deepspeed_patches, loop, step_results
from hpcddm.training.engine import Engine
from hpcddm.training.meters import peak_memory_gib
from hpcddm.training.training_probe import Probe, ProbeResult
from tests.training.half import allow_fp16
from tests.training.scenarios import BATCH, KEY, STEPS, batches, build, training, write_tar

BAD_STEP = 3
LONG, STOPS = 30, [1, 2, 2, 2, 2, 2, 2, 2, 2]
"""Steps of a training that is interrupted between two points of its curve again and again."""
STAGES = [(0, "fp32"), (0, "bf16"), (1, "bf16"), (2, "bf16"), (3, "fp32"), (3, "bf16")]
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


def on_ranks(world_size: int, work: Callable[[int], None]) -> list[int]:
    """Run a function in forks, one for each rank, and return how they ended: 0, 3 for a stop, 1."""
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            try:
                work(rank)
                os._exit(0)
            except Stopped:
                os._exit(3)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


class Pairs:
    """Trainings of the network of scenarios.py by several ranks, each in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.reader = root, write_tar(root)

    def train(
        self,
        name: str,
        settings: UnitTraining,
        stop_after: int | None,
        bad_steps: Collection[int],
        world_size: int,
        looks: bool = False,
        **resources: int,
    ) -> list[int]:
        """One attempt: a stop is requested of the last rank during a step, and its loss of some is not finite."""
        run = RunDir(self.root / name)
        owner = f"slurm-x-0123456789ab-7_0.{len(list_attempts(run.logs(KEY)))}"

        def work(rank: int) -> None:
            unit, is_last = self._unit(name, rank, owner, world_size, **resources), rank == world_size - 1
            loss = self._loss(unit, stop_after if is_last else None, bad_steps if is_last else ())
            seen = Probe(3 * BATCH, lambda model, device: self._look(run, rank, model)) if looks else None
            task = loop.Task(0, build, loss, batches(self.reader), pixels_to_values, flops_per_image=10**6, probe=seen)
            trained = loop.train(task, settings, unit)
            if rank == 0:
                (run.root / "facts.json").write_text(json.dumps(trained.results))

        return on_ranks(world_size, work)

    def _look(self, run: RunDir, rank: int, model: nn.Module) -> ProbeResult:
        """Note what the network makes of ones, and draw numbers that the training must not miss."""
        torch.rand(3)
        seen = model(torch.ones(1, 64).to(next(model.parameters()).dtype)).float().flatten().tolist()
        if rank == 0:
            (run.root / "seen.json").write_text(json.dumps([seen, model.module.training]))
        return ProbeResult({"mean": sum(seen) / len(seen)}, None)

    def _unit(
        self, name: str, rank: int, owner: str, world_size: int = 2, data_threads: int = 1, **resources: int
    ) -> Unit:
        run, ranks = RunDir(self.root / name), Ranks(rank, rank, world_size, 1, owner)
        run.unit(KEY).mkdir(parents=True, exist_ok=True)
        attempt = open_attempt(run.logs(KEY), ranks)
        writer = HeartbeatWriter(attempt.folder, owner, attempt.number, "host", interval=0)
        own = Resources(**({"sync_every_steps": 1} | resources))
        return Unit(KEY, run, ranks, attempt, writer, StopFlag(), {}, "f", resources=own, data_threads=data_threads)

    def _loss(self, unit: Unit, stop_after: int | None, bad_steps: Collection[int]) -> Callable:
        steps = 0

        def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
            nonlocal steps
            steps += 1
            if steps == stop_after:
                unit.stop.reason = "told to"
            dtype = next(model.parameters()).dtype
            losses = (model((batch.x0 + batch.noise).to(dtype)).float() - batch.noise.flatten(1)).square().mean(1)
            return losses * float("nan") if batch.sample_indices.start // BATCH in bad_steps else losses

        return loss

    def collectives(self) -> list[list[str]]:
        """The collectives of each step on rank 0 but DeepSpeed's; every second step is logged."""
        settings = training(images=6 * BATCH, log_every_images=2 * BATCH)

        def work(rank: int) -> None:
            unit = self._unit("collectives", rank, "me")
            counts: list[int] = []
            with Collectives() as called:
                loss = self._loss(unit, None, range(0))

                def noting(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
                    counts.append(len(called.names))
                    return loss(model, batch)

                loop.train(loop.Task(0, build, noting, batches(self.reader), pixels_to_values), settings, unit)
            steps = [called.names[start:end] for start, end in zip(counts, counts[1:], strict=False)]
            (self.root / f"collectives-{rank}").write_text(json.dumps(steps))

        assert on_ranks(2, work) == [0, 0]
        return json.loads((self.root / "collectives-0").read_text())

    def chain(
        self,
        name: str,
        stops: list[int],
        bad_steps: Collection[int] = (),
        resources: dict | list[dict] | None = None,
        looks: bool = False,
        **changes: object,
    ) -> dict:
        """Train with these interruptions, one attempt after the other, to the end.

        resources: world size and fields of `Resources`, those of each attempt where it is a list.
        """
        settings, ends = training(**changes), (*stops, None)
        each = resources if isinstance(resources, list) else [resources or {}] * len(ends)
        shapes = [{"world_size": 2} | own for own in each]
        codes = [
            self.train(name, settings, end, bad_steps, looks=looks, **own)
            for end, own in zip(ends, shapes, strict=True)
        ]
        folder, (_, last) = self.root / name / KEY, list_attempts(RunDir(self.root / name).logs(KEY))[-1]
        found = {"codes": codes, "figures": heartbeat.read(last).figures}
        if not any(codes[-1]):
            weights = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
            found |= {"weights": weights, "curve": (folder / "curve.json").read_text()}
            files = sorted(folder.glob("snapshots/*"))
            found |= {"snapshots": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]}
            if looks:
                network, seen_file = build(), self.root / name / "seen.json"
                seen, found["in training"] = json.loads(seen_file.read_text())
                network.load_state_dict(load_file(folder / "snapshots/images-000000000072.safetensors"))
                expected = network(torch.ones(1, 64)).flatten()
                found["seen apart"] = ((torch.tensor(seen) - expected).norm() / expected.norm()).item()
            found |= {"facts": json.loads((self.root / name / "facts.json").read_text())}
        return found

    def farthest(self, name: str, other: str) -> float:
        """Return the relative L2 distance of the weights of two trainings, that of the tensor where it is largest."""
        first, second = (load_file(self.root / each / KEY / "weights.safetensors") for each in (name, other))
        return max(((first[key] - second[key]).norm() / second[key].norm()).item() for key in second)

    def reads(self) -> int:
        """How often the host reads a value of a tensor, or waits for the device, while rank 0 makes three steps."""

        def work(rank: int) -> None:
            store = dist.FileStore(str(self.root / "reads-store"), 2)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
            engine = Engine(build(), training(precision="bf16"), Ranks(rank, rank, 2, 1, "me"), torch.device("cpu"))
            waits: list[tuple] = []
            get_accelerator().synchronize = lambda *arguments: waits.append(arguments)
            with Reads() as reads:
                for step in range(3):
                    engine.backward(engine.model(torch.ones(4, 1, 8, 8, dtype=torch.bfloat16)).float().square().mean())
                    made = engine.step(BATCH * (step + 1))
            (self.root / f"reads-{rank}").write_text(str(reads.count + len(waits) if bool(made) else -1))
            dist.barrier()

        assert on_ranks(2, work) == [0, 0]
        return int((self.root / "reads-0").read_text())

    def gather(self) -> list[dict]:
        """By how many times the weights' size the host memory of each rank grows while they are gathered."""

        def work(rank: int) -> None:
            store = dist.FileStore(str(self.root / "store"), 2)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
            model = nn.Linear(WIDE, WIDE, bias=False)
            engine = Engine(model, training(), Ranks(rank, rank, 2, 1, "me"), torch.device("cpu"))
            before = _start_peak()
            weights = engine.averaged_weights()
            grown = (peak_memory_gib(torch.device("cpu")) - before) * 2**30 / (4 * WIDE * WIDE)
            right = rank == 1 or torch.equal(weights["weight"], model.weight.float())
            (self.root / f"gather-{rank}").write_text(json.dumps({"grown": grown, "names": [*weights], "right": right}))
            dist.barrier()

        assert on_ranks(2, work) == [0, 0]
        return [json.loads((self.root / f"gather-{rank}").read_text()) for rank in range(2)]


def _start_peak() -> float:
    """Forget the highest memory so far and return what is taken now, in GiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory_gib(torch.device("cpu"))


def main(root: Path) -> dict:
    pairs, bad = Pairs(root), range(BAD_STEP, BAD_STEP + 1)
    found = {
        "reference": pairs.chain("reference", [], images=LONG * BATCH, log_every_images=2 * BATCH),
        "stopped": pairs.chain("stopped", STOPS, images=LONG * BATCH, log_every_images=2 * BATCH),
        "short": pairs.chain("short", []),
        "bad": pairs.chain("bad", [], bad),
        "bad saved": pairs.chain("bad-saved", [BAD_STEP + 1, 2], bad),
        "bad bf16": pairs.chain("bad-bf16", [], bad, precision="bf16"),
    }
    for world_size in (2, 4):
        for threads in (0, 1, 4):
            name, stops = f"{world_size} ranks, {threads} threads", [] if threads == 1 else [3, 2, 1]
            found[name] = pairs.chain(name, stops, resources={"world_size": world_size, "data_threads": threads})
    allow_fp16(window=2, allowed=False)
    found["fp16 refused"] = pairs.train("refused", training(precision="fp16"), None, range(0), 2)
    allow_fp16(window=2)
    for stage, precision in STAGES:
        for stops in ([], [3, 2]):
            name = f"stage {stage}, {precision}, {len(stops)} stops"
            changes = {"precision": precision, "snapshots": SNAPSHOTS}
            found[name] = pairs.chain(name, stops, bad, {"zero_stage": stage}, looks=bool(stops), **changes)
    watched, deepspeed_patches.DEVICES_WITHOUT_SYNC = deepspeed_patches.DEVICES_WITHOUT_SYNC, ("cpu",)
    found["unwatched"] = pairs.chain("unwatched", [3, 2], bad, precision="bf16", snapshots=SNAPSHOTS)
    found["read in steps"] = pairs.reads()
    deepspeed_patches.DEVICES_WITHOUT_SYNC = watched
    names = ("world_size", "zero_stage", "micro_batch")
    shapes = [dict(zip(names, shape, strict=True)) for shape in ELASTIC]
    found["elastic"] = pairs.chain("elastic", [3, 5, 2], bad, shapes, log_every_images=3 * BATCH)
    found["undisturbed"] = pairs.chain("undisturbed", [], bad, log_every_images=3 * BATCH)
    found["elastic"]["farthest"] = pairs.farthest("elastic", "undisturbed")
    found["seldom agreed"] = pairs.chain("seldom", [3], resources={"sync_every_steps": 4}, log_every_images=2 * BATCH)
    ends = {"last one skipped": [STEPS - 1], "last two skipped": [STEPS - 2, STEPS - 1], "most skipped": range(1, 8)}
    for name, skipped in ends.items():
        found[name] = pairs.chain(name, [STEPS - 1], skipped)
    found["grown"] = pairs.chain("grown", [], learning_rate=10)
    step_results.MAX_SKIPPED = 4
    found["diverged"] = pairs.chain("diverged", [], range(BAD_STEP, STEPS))
    return found | {"gather": pairs.gather(), "collectives": pairs.collectives()}


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]))), flush=True)
