"""Trains a tiny network many times over, interrupted in many ways, and prints what came out as JSON.

Every attempt is a process of its own, as in a job: a fork of this one, which has paid for the imports.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401  DeepSpeed imports it late, and torch.compile with it
import numpy as np
import torch
import torch._dynamo  # noqa: F401
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from hpcddm.config.site import Resources
from hpcddm.data import tar_writing
from hpcddm.data.batch import NoisyBatch, NoisyBatches
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.randomness import RandomDraws
from hpcddm.data.reader import TarReader
from hpcddm.data.record import Record
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.errors import UserError
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag, Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import UnitTraining
from hpcddm.runs.weights_files import power_average_name, weights_name
from hpcddm.training import loop
from hpcddm.training.engine import Engine
from hpcddm.training.meters import TrainingProgress
from hpcddm.training.power_ema import Profile, coefficients, exponent
from hpcddm.training.weights_writer import WeightsWriter
from tests.catalogs import catalog_of
from tests.orders import uniform

KEY = "train/expert-00"
STEPS, BATCH = 10, 8
AVERAGES = {"power_ema": [0.05, 0.1]}
REFUSED, KILLED = 4, -signal.SIGKILL


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 64))


def training(**changes: object) -> UnitTraining:
    values = {
        "images": STEPS * BATCH,
        "batch": BATCH,
        "learning_rate": 0.01,
        "log_every_images": 20,
        "precision": "fp32",
    }
    values |= {"weight_decay": 0.01, "ema_halflife_images": 40, "warmup_images": 16} | changes
    # In whole batches, as the file has them by their numbers.
    numbers = values.get("snapshots", [])
    own = [-(-number // BATCH) * BATCH for number in numbers]
    return UnitTraining(**values | {"snapshots": own, "snapshot_numbers": numbers})


def write_tar(folder: Path) -> TarReader:
    generator = np.random.default_rng(0)
    images = [Image.fromarray(generator.integers(0, 256, (8, 8)).astype(np.uint8)) for _ in range(30)]
    tar_writing.write_tar(
        folder / "x.tar", [Record(str(number), image, 0) for number, image in enumerate(images)], 8, 1
    )
    catalog = catalog_of(folder, [folder / "x.tar"])
    write_columns(folder / "clusters.h5", {"cluster": np.zeros(30, dtype=np.uint16)})
    return TarReader(catalog, Column("cluster", {folder / "clusters.h5": 30}))


def batches(reader: TarReader) -> NoisyBatches:
    order, draws = uniform(0, KEY, len(reader)), RandomDraws(0, KEY)

    def carried(rows: np.ndarray, dropped: torch.Tensor) -> torch.Tensor:
        return torch.where(dropped, 1, reader.labels(rows))

    return NoisyBatches(reader, order, draws, carried, lambda condition: condition, 0.1, (1, 8, 8))


class Runs:
    """Trainings of one network on one set of images, each in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.reader = root, write_tar(root)

    def unit(self, name: str, trajectory: str = "f", data_threads: int = 1, **resources: int) -> Unit:
        run, ranks = RunDir(self.root / name), Ranks(0, 0, 1, 1, "me")
        run.unit(KEY).mkdir(parents=True, exist_ok=True)
        attempt = open_attempt(run.logs(KEY), ranks)
        writer = HeartbeatWriter(attempt.folder, "me", attempt.number, "host")
        own = Resources(**({"sync_every_steps": 1} | resources))
        return Unit(
            KEY, run, ranks, attempt, writer, StopFlag(), {}, trajectory, resources=own, data_threads=data_threads
        )

    def train(
        self,
        unit: Unit,
        settings: UnitTraining,
        stop_after: int | None = None,
        start: Path | None = None,
        flops_per_image: int | None = None,
    ) -> str:
        """Train in a process of its own, told to stop during step `stop_after`; return how that ended."""
        return {0: "complete", 3: "stopped"}[self.end(unit, settings, stop_after, start, flops_per_image)]

    def end(self, unit: Unit, settings: UnitTraining, *arguments: object) -> int:
        """The same, and return the exit code."""
        child = os.fork()
        if child == 0:
            try:
                self._train(unit, settings, *arguments)
                os._exit(0)
            except Stopped:
                os._exit(3)
            except UserError as error:
                (unit.folder / "refusal").write_text(str(error))
                os._exit(REFUSED)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def refusal(self, unit: Unit, settings: UnitTraining) -> str:
        """Train and return the error."""
        assert self.end(unit, settings) == REFUSED
        return (unit.folder / "refusal").read_text()

    def _train(
        self,
        unit: Unit,
        settings: UnitTraining,
        stop_after: int | None = None,
        start: Path | None = None,
        flops_per_image: int | None = None,
    ) -> None:
        steps = 0

        def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
            nonlocal steps
            steps += 1
            if steps == stop_after:
                unit.stop.reason = "told to"
            dtype = next(model.parameters()).dtype
            return (model((batch.x0 + batch.noise).to(dtype)).float() - batch.noise.flatten(1)).square().mean(1)

        def begin(model: nn.Module) -> None:
            model.load_state_dict(load_file(start))

        task = loop.Task(
            0, build, loss, batches(self.reader), pixels_to_values, begin if start else None, flops_per_image
        )
        loop.train(task, settings, unit)

    def chain(self, name: str, stops: list[int], settings: UnitTraining, **resources: int) -> dict:
        """Train with these interruptions, one attempt after the other, to the end."""
        units = (self.unit(name, **resources) for _ in (*stops, None))
        ends = [self.train(unit, settings, stop) for unit, stop in zip(units, (*stops, None), strict=True)]
        assert ends == ["stopped"] * len(stops) + ["complete"]
        return self.result(name)

    def result(self, name: str) -> dict:
        folder = self.root / name / KEY
        return {
            "weights": hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest(),
            "curve": json.loads((folder / "curve.json").read_text()),
            "kept": {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in [*folder.glob("snapshots/*"), *folder.glob("weights-*")]
            },
            "states": sorted(path.name for path in (folder / "state").glob("images-*")),
        }


def seeded(runs: Runs, settings: UnitTraining) -> dict:
    """Trainings that start from a file, which is removed while the second one is half done; one in bf16 stays there."""
    file = runs.root / "seed.safetensors"
    torch.manual_seed(7)
    save_file(build().state_dict(), file)
    whole, half = runs.unit("seeded"), runs.unit("seeded-stopped")
    assert runs.train(whole, settings, start=file) == "complete"
    assert runs.train(half, settings, 4, start=file) == "stopped"
    still = settings.model_copy(update={"precision": "bf16", "learning_rate": 1e-30})
    assert runs.train(runs.unit("seeded-still"), still, start=file) == "complete"
    expected, kept = load_file(file), load_file(runs.root / "seeded-still" / KEY / "weights.safetensors")
    as_it_was = all(torch.equal(kept[name], values) for name, values in expected.items())
    file.unlink()
    assert runs.train(runs.unit("seeded-stopped"), settings, start=file) == "complete"
    results = {"seeded": runs.result("seeded"), "seeded stopped": runs.result("seeded-stopped")}
    return results | {"seeded still": as_it_was}


def counted(runs: Runs, settings: UnitTraining) -> dict:
    """A training whose FLOPs are counted before, which draws random numbers, as the network is built for it."""
    unit = runs.unit("counted")
    assert runs.train(unit, settings, flops_per_image=int(build()[1].weight.numel())) == "complete"
    return runs.result("counted") | {"figures": heartbeat.read(unit.attempt.folder).figures}


def snapshots(runs: Runs) -> dict:
    """Trainings that keep snapshots: killed around them, given one more on the way, and one that is too late."""
    settings = training(**AVERAGES, snapshots=[20, 40, 80])
    found = {"whole": runs.chain("kept", [], settings), "stopped": runs.chain("kept-stopped", [1, 2, 2, 3], settings)}
    for when in ("before", "after"):
        unit = runs.unit(f"kept-killed-{when}")
        with killed(when):
            assert runs.end(unit, training(**AVERAGES, snapshots=[20, 40, 80], checkpoint_minutes=1e-9)) == KILLED
        unit = runs.unit(f"kept-killed-{when}")
        assert runs.train(unit, settings) == "complete"
        found[f"killed {when}"] = runs.result(f"kept-killed-{when}")
    assert runs.train(runs.unit("kept-later"), training(**AVERAGES, snapshots=[20]), 4) == "stopped"
    assert runs.train(runs.unit("kept-later"), settings) == "complete"
    found["later"] = runs.result("kept-later")
    assert runs.train(runs.unit("kept-longer"), training(**AVERAGES, images=40)) == "complete"
    assert runs.train(runs.unit("kept-longer"), training(**AVERAGES, snapshots=[40, 80])) == "complete"
    found["longer"] = runs.result("kept-longer")
    unit = runs.unit("kept-late")
    assert runs.train(unit, training(**AVERAGES), 4) == "stopped"
    found["too late"] = runs.refusal(runs.unit("kept-late"), settings)
    assert runs.train(runs.unit("kept-torn"), settings, 4) == "stopped"
    (runs.unit("kept-torn").folder / "snapshots/images-000000000020.safetensors").write_bytes(b"")
    found["torn"] = runs.refusal(runs.unit("kept-torn"), settings)
    return found


@contextmanager
def killed(when: str) -> Iterator[None]:
    """Have trainings die without a word around their second snapshot."""
    take = WeightsWriter.write_snapshots

    def dying(self: WeightsWriter, engine: Engine, progress: TrainingProgress) -> None:
        if progress.images == 40 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        take(self, engine, progress)
        if progress.images == 40:
            os.kill(os.getpid(), signal.SIGKILL)

    WeightsWriter.write_snapshots = dying
    try:
        yield
    finally:
        WeightsWriter.write_snapshots = take


def powers(runs: Runs) -> list[dict]:
    """How far averages that are made afterwards are from those that were kept beside the training, in L2 norms."""
    images, numbers = 400 * BATCH, [number * 40 * BATCH for number in range(1, 11)]
    runs.chain("powers", [], training(images=images, power_ema=[0.05, 0.075, 0.1, 0.15], snapshots=numbers))
    folder = runs.root / "powers" / KEY

    def load(number: int, sigma_rel: float) -> torch.Tensor:
        tensors = load_file(folder / weights_name(number, power_average_name(sigma_rel)))
        return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])

    kept = {(number, sigma_rel): load(number, sigma_rel) for number in numbers for sigma_rel in (0.05, 0.1)}
    found = []
    for end in numbers[1::2]:
        points = [point for point in kept if point[0] <= end]
        between = (kept[end, 0.05] - kept[end, 0.1]).norm()
        for sigma_rel in (0.075, 0.15):
            profiles = [Profile(exponent(own), number) for number, own in points]
            factors = coefficients(profiles, Profile(exponent(sigma_rel), end))
            made = sum(factor * kept[point] for factor, point in zip(factors, points, strict=True))
            direct = load(end, sigma_rel)
            apart, size = (made - direct).norm(), direct.norm()
            figures = {"of the weights": (apart / size).item(), "of the two's distance": (apart / between).item()}
            found.append({"images": end, "sigma_rel": sigma_rel} | figures)
    return found


def torn(runs: Runs, reference: UnitTraining) -> dict:
    """The newest state is torn in one of its files: the one before it must serve."""
    found = {}
    unit = runs.unit("torn-all")
    assert [runs.train(unit, reference, 3) for _ in range(2)] == ["stopped"] * 2
    newest = sorted((unit.folder / "state").glob("images-*"))[-1]
    # DeepSpeed leaves a script beside them that nothing reads.
    names = ["state.json", *(file["name"] for file in json.loads((newest / "state.json").read_text())["files"])]
    for number, name in enumerate(names):
        again = runs.unit(f"torn-{number}")
        target = again.folder / "state"
        for state in sorted((unit.folder / "state").glob("images-*")):
            for file in state.rglob("*"):
                if file.is_file():
                    copy = target / state.name / file.relative_to(state)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(file.read_bytes())
        path = target / newest.name / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        runs.train(again, reference)
        begun = json.loads((again.attempt.folder / "first_step.json").read_text())
        found[str(name)] = {"resumed_at": begun["images"], **runs.result(f"torn-{number}")}
    return found


def ema(runs: Runs) -> dict:
    """What the average is of."""
    torch.manual_seed(0)
    initial = {name: value.detach() for name, value in build().state_dict().items()}
    averaged = load_file(runs.root / "bf16" / KEY / "weights.safetensors")
    runs.chain("immediate", [], training(ema_halflife_images=1))
    runs.chain("first", [], training(ema_halflife_images=1, images=BATCH, weight_decay=0.0))
    immediate = load_file(runs.root / "immediate" / KEY / "weights.safetensors")
    first = load_file(runs.root / "first" / KEY / "weights.safetensors")
    loaded = loop.load_weights(build(), runs.root / "immediate" / KEY)
    return {
        "names": sorted(averaged) == sorted(initial),
        "dtypes": sorted({str(value.dtype) for value in averaged.values()}),
        "below_bf16": any((value != value.bfloat16().float()).any().item() for value in averaged.values()),
        "moved": all((averaged[name] != initial[name]).any().item() for name in initial),
        "lags": all((averaged[name] != immediate[name]).any().item() for name in initial),
        # AdamW's first step is as long as the learning rate, which the warm-up has brought to one half.
        "warms_up": abs(max((first[name] - initial[name]).abs().max().item() for name in initial) - 0.005) < 1e-5,
        "in micro batches to rounding": 0 < farthest(runs, "reference", "micro") < 1e-4,
        "frozen": not any(parameter.requires_grad for parameter in loaded.parameters()) and not loaded.training,
    }


def farthest(runs: Runs, one: str, other: str) -> float:
    """Return the largest difference between the weights of two trainings."""
    first, second = (load_file(runs.root / name / KEY / "weights.safetensors") for name in (one, other))
    return max((first[name] - second[name]).abs().max().item() for name in first)


def main(root: Path) -> dict:
    runs, plain = Runs(root), training()
    found = {"reference": runs.chain("reference", [], plain)}
    chains = {"stop-1": [1], "stop-5": [5], "stop-often": [1, 1, 4, 2], "stop-last": [STEPS], "stop-before-last": [9]}
    for name, stops in chains.items():
        found[name] = runs.chain(name, stops, plain)
    found["no threads"] = runs.chain("threads-0", [], plain, data_threads=0)
    found["no threads, stopped"] = runs.chain("threads-0-stopped", [1, 4], plain, data_threads=0)
    found["4 threads"] = runs.chain("threads-4", [], plain, data_threads=4)
    found["4 threads, stopped"] = runs.chain("threads-4-stopped", [3, 2], plain, data_threads=4)
    found["micro batches"] = runs.chain("micro", [], plain, micro_batch=3)
    found["micro batches, stopped"] = runs.chain("micro-stopped", [1, 4], plain, micro_batch=3)
    found["saved at every step"] = runs.chain("every", [], training(checkpoint_minutes=1e-9))
    found["bf16"] = runs.chain("bf16", [], training(precision="bf16"))
    found["bf16 stopped"] = runs.chain("bf16-stopped", [3, 4], training(precision="bf16"))
    found |= seeded(runs, plain) | {"counted": counted(runs, plain)}
    kept = {"snapshots": snapshots(runs), "powers": powers(runs)}
    return {"chains": found, "torn": torn(runs, plain), "ema": ema(runs)} | kept


if __name__ == "__main__":
    result = main(Path(sys.argv[1]))
    print("\nRESULT " + json.dumps(result), flush=True)
