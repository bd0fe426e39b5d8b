"""Trainings of a tiny network by any number of ranks, which may be interrupted.

Every rank of every attempt is a process of its own, as in a job: a fork of this one, which has paid for the imports.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401  DeepSpeed imports it late, and torch.compile with it
import numpy as np
import torch
import torch._dynamo  # noqa: F401
import torch.distributed as dist
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from hpcddm.config.site import Resources
from hpcddm.data.batch import NoisyBatch, NoisyBatches
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.reader import CatalogReader
from hpcddm.data.tars import tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import ResolvedTraining, UnitTraining
from hpcddm.training import loop
from hpcddm.training.log import Observation, Observer
from tests.catalogs import CENTRE_CROP, catalog_of
from tests.orders import uniform

KEY = "train/expert-00"
STEPS, BATCH = 10, 8
AVERAGES = {"power_ema": [0.05, 0.1]}


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 64))


def training(**changes: object) -> UnitTraining:
    values = {"images": STEPS * BATCH, "batch": BATCH, "learning_rate": 0.01, "log_every_images": 20}
    values |= {"precision": "fp32", "weight_decay": 0.01, "ema_halflife_images": 40, "warmup_images": 16} | changes
    # In whole batches, as the file has them by their numbers.
    numbers = values.get("snapshots", [])
    own = [-(-number // BATCH) * BATCH for number in numbers]
    return UnitTraining(**values | {"snapshots": own, "snapshot_numbers": numbers})


def resolved(settings: UnitTraining, flops_per_image: int = 10**6) -> ResolvedTraining:
    """A training of the network of this file, which no experiment names."""
    return ResolvedTraining(KEY, settings, 0, None, None, flops_per_image=flops_per_image)


def write_tar(folder: Path) -> CatalogReader:
    generator = np.random.default_rng(0)
    images = [Image.fromarray(generator.integers(0, 256, (8, 8)).astype(np.uint8)) for _ in range(30)]
    records = [Record(str(number), image, 0) for number, image in enumerate(images)]
    tar_writing.write_tar(folder / "x.tar", records, 8, 1, CENTRE_CROP)
    catalog = catalog_of(folder, [folder / "x.tar"])
    write_columns(folder / "clusters.h5", {"cluster": np.zeros(30, dtype=np.uint16)})
    return CatalogReader(catalog, Column("cluster", {folder / "clusters.h5": 30}))


def batches(reader: CatalogReader) -> NoisyBatches:
    order, draws = uniform(0, KEY, len(reader)), RandomDraws(0, KEY)

    def carried(rows: np.ndarray, dropped: torch.Tensor) -> torch.Tensor:
        return torch.where(dropped, 1, reader.labels(rows))

    return NoisyBatches(reader, order, draws, carried, lambda condition: condition, 0.1, (1, 8, 8))


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


def join(store: Path, rank: int, world_size: int) -> Ranks:
    """Join the other ranks, which share a file, for an engine without a loop."""
    dist.init_process_group("gloo", store=dist.FileStore(str(store), world_size), rank=rank, world_size=world_size)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    return Ranks(rank, rank, world_size, 1, "me")


class Trainings:
    """Trainings of one network on one set of images by so many ranks, each in a folder of its own."""

    build: Callable[[], nn.Module] = staticmethod(build)

    def __init__(self, root: Path, world_size: int) -> None:
        self.root, self.reader, self.world_size = root, write_tar(root), world_size

    def folder(self, name: str) -> Path:
        """The folder of a training's unit."""
        return RunDir(self.root / name).unit(KEY)

    def attempts(self, name: str) -> list[Path]:
        """The folders of a training's attempts, the newest last."""
        return [folder for _, folder in list_attempts(RunDir(self.root / name).logs(KEY))]

    def train(
        self,
        name: str,
        settings: UnitTraining,
        stop_after: int | None = None,
        bad_steps: Collection[int] = (),
        looks: bool = False,
        start: Path | None = None,
        **resources: int,
    ) -> list[int]:
        """One attempt and how its ranks end: a stop is requested of the last during a step, whose loss of some is NaN.

        resources: world size, number of threads that read ahead, and fields of `Resources`.
        """
        world_size = resources.pop("world_size", self.world_size)
        owner = f"slurm-x-0123456789ab-7_0.{len(self.attempts(name))}"
        # Random numbers that a process draws before, as where FLOPs are counted, shall change no bit.
        torch.rand(1)

        def begin(model: nn.Module) -> None:
            model.load_state_dict(load_file(start))

        def work(rank: int) -> None:
            unit, is_last = (
                self.unit(name, Ranks(rank, rank, world_size, 1, owner), **resources),
                rank == world_size - 1,
            )
            loss = self.loss(unit, stop_after if is_last else None, bad_steps if is_last else ())
            seen = Observer(3 * BATCH, lambda model, device: self._look(unit, model)) if looks else None
            sources = self.build, loss, batches(self.reader), pixels_to_values, begin if start else None
            trained = loop.train(loop.Task(*sources, observer=seen), resolved(settings), unit)
            if rank == 0:
                (unit.run.root / "facts.json").write_text(json.dumps(trained.results))

        return on_ranks(world_size, work)

    def _look(self, unit: Unit, model: nn.Module) -> Observation:
        """Note what the network makes of ones, and draw numbers that the training must not miss."""
        torch.rand(3)
        seen = model(torch.ones(1, 64).to(next(model.parameters()).dtype)).float().flatten().tolist()
        if unit.ranks.rank == 0:
            (unit.run.root / "seen.json").write_text(json.dumps([seen, model.module.training]))
        return Observation({"mean": sum(seen) / len(seen)}, None)

    def unit(self, name: str, ranks: Ranks, data_threads: int = 1, **resources: int) -> Unit:
        """The unit of a training for one rank of a new attempt."""
        self.folder(name).mkdir(parents=True, exist_ok=True)
        run = RunDir(self.root / name)
        attempt = open_attempt(run.logs(KEY), ranks)
        writer = HeartbeatWriter(attempt.folder, ranks.owner, attempt.number, "host", interval=0)
        own = Resources(**({"sync_every_steps": 1} | resources))
        return Unit(KEY, run, ranks, attempt, writer, StopFlag(), {}, "f", resources=own, data_threads=data_threads)

    def loss(self, unit: Unit, stop_after: int | None = None, bad_steps: Collection[int] = ()) -> Callable:
        """The loss of a training on one rank, which requests the stop."""
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

    def chain(
        self,
        name: str,
        stops: Collection[int] = (),
        bad_steps: Collection[int] = (),
        resources: dict | list[dict] | None = None,
        looks: bool = False,
        start: Path | None = None,
        **changes: object,
    ) -> dict:
        """Train with these interruptions, one attempt after the other, to the end, and return what it came to.

        resources: those of `train`, of each attempt where it is a list.
        """
        settings, ends = training(**changes), (*stops, None)
        each = resources if isinstance(resources, list) else [resources or {}] * len(ends)
        codes = [
            self.train(name, settings, end, bad_steps, looks, start, **own) for end, own in zip(ends, each, strict=True)
        ]
        folder, beat = self.folder(name), heartbeat.read(self.attempts(name)[-1])
        found = {"codes": codes, "figures": beat.figures if beat else {}}
        found["states"] = sorted(path.name for path in (folder / "state").glob("images-*"))
        if not any(codes[-1]):
            files = sorted([*folder.glob("*.safetensors"), *folder.glob("snapshots/*")])
            found["kept"] = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
            found |= {"weights": found["kept"]["weights.safetensors"], "curve": (folder / "curve.json").read_text()}
            found["facts"] = json.loads((self.root / name / "facts.json").read_text())
        return found

    def farthest(self, name: str, other: str) -> float:
        """Return the relative L2 distance of the weights of two trainings, that of the tensor where it is largest."""
        first, second = (load_file(self.folder(each) / "weights.safetensors") for each in (name, other))
        return max(((first[key] - second[key]).norm() / second[key].norm()).item() for key in second)
