"""Trains a tiny network many times over, interrupted in many ways, and prints what came out as JSON."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from hpcddm.runs.weights_files import power_average_name, weights_name
from hpcddm.training import loop
from hpcddm.training.ema import Profile, coefficients, exponent
from hpcddm.training.engine import Engine
from hpcddm.training.meters import TrainingProgress
from hpcddm.training.weights_writer import WeightsWriter
from tests.training.scenarios import AVERAGES, BATCH, STEPS, Trainings, build, training

STOPS = {"stop-often": [1, 1, 4, 2], "stop-last": [STEPS], "stop-before-last": [9]}


def seeded(runs: Trainings) -> dict:
    """Trainings that start from a file, which is removed while the second one is half done; one in bf16 stays there."""
    file = runs.root / "seed.safetensors"
    torch.manual_seed(7)
    save_file(build().state_dict(), file)
    found = {"seeded": runs.chain("seeded", start=file)}
    assert runs.train("seeded-stopped", training(), 4, start=file) == [3]
    runs.chain("seeded-still", start=file, precision="bf16", learning_rate=1e-30)
    expected, kept = load_file(file), load_file(runs.folder("seeded-still") / "weights.safetensors")
    found["seeded still"] = all(torch.equal(kept[name], values) for name, values in expected.items())
    file.unlink()
    return found | {"seeded stopped": runs.chain("seeded-stopped", start=file)}


def snapshots(runs: Trainings) -> dict:
    """Trainings that keep snapshots: killed around them, given one more on the way, and one that is too late."""
    changes = AVERAGES | {"snapshots": [20, 40, 80]}
    found = {"whole": runs.chain("kept", **changes), "stopped": runs.chain("kept-stopped", [1, 2, 2, 3], **changes)}
    for when in ("before", "after"):
        with killed(when):
            assert runs.train(f"killed-{when}", training(**changes, checkpoint_minutes=1e-9)) == [-signal.SIGKILL]
        found[f"killed {when}"] = runs.chain(f"killed-{when}", **changes)
    assert runs.train("later", training(**AVERAGES, snapshots=[20]), 4) == [3]
    found["later"] = runs.chain("later", **changes)
    runs.chain("longer", **AVERAGES, images=40)
    found["longer"] = runs.chain("longer", **AVERAGES, snapshots=[40, 80])
    assert runs.train("late", training(**AVERAGES), 4) == runs.train("torn", training(**changes), 4) == [3]
    (runs.folder("torn") / "snapshots/images-000000000020.safetensors").write_bytes(b"")
    return found | {name: runs.train(name, training(**changes)) for name in ("late", "torn")}


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


def powers(runs: Trainings) -> list[dict]:
    """How far averages that are made afterwards are from those that were kept beside the training, in L2 norms."""
    images, numbers = 400 * BATCH, [number * 40 * BATCH for number in range(1, 11)]
    runs.chain("powers", images=images, power_ema=[0.05, 0.075, 0.1, 0.15], snapshots=numbers)

    def load(number: int, sigma_rel: float) -> torch.Tensor:
        tensors = load_file(runs.folder("powers") / weights_name(number, power_average_name(sigma_rel)))
        return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])

    kept = {(number, sigma_rel): load(number, sigma_rel) for number in numbers for sigma_rel in (0.05, 0.1)}
    found = []
    for end in (numbers[1], numbers[-1]):
        points = [point for point in kept if point[0] <= end]
        between = (kept[end, 0.05] - kept[end, 0.1]).norm()
        for sigma_rel in (0.075, 0.15):
            profiles = [Profile(exponent(own), number) for number, own in points]
            factors = coefficients(profiles, Profile(exponent(sigma_rel), end))
            made = sum(factor * kept[point] for factor, point in zip(factors, points, strict=True))
            direct = load(end, sigma_rel)
            apart, size = (made - direct).norm(), direct.norm()
            found.append({"of the weights": (apart / size).item(), "of the two's distance": (apart / between).item()})
    return found


def torn(runs: Trainings) -> dict:
    """The newest state is torn in one of its files: the one before it must serve."""
    found = {}
    assert [runs.train("whole", training(), 3) for _ in range(2)] == [[3]] * 2
    states = runs.folder("whole") / "state"
    newest = max(states.glob("images-*"))
    files = json.loads((newest / "state.json").read_text())["files"]
    for number, name in enumerate(["state.json", *(file["name"] for file in files)]):
        torn = shutil.copytree(states, runs.folder(f"torn-{number}") / "state") / newest.name / name
        torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
        found[name] = runs.chain(f"torn-{number}")
        begun = json.loads((runs.attempts(f"torn-{number}")[-1] / "first_step.json").read_text())
        found[name]["resumed at"] = begun["images"]
    return found


def ema(runs: Trainings) -> dict:
    """What the average is of."""
    torch.manual_seed(0)
    initial = build().state_dict()
    runs.chain("bf16", precision="bf16")
    runs.chain("immediate", ema_halflife_images=1)
    runs.chain("first", ema_halflife_images=1, images=BATCH, weight_decay=0.0)
    files = (runs.folder(name) / "weights.safetensors" for name in ("bf16", "immediate", "first"))
    averaged, immediate, first = map(load_file, files)
    loaded = loop.load_weights(build(), runs.folder("immediate"))
    return {
        "names": sorted(averaged) == sorted(initial),
        "fp32": {value.dtype for value in averaged.values()} == {torch.float32},
        "below_bf16": any((value != value.bfloat16().float()).any().item() for value in averaged.values()),
        "moved": all((averaged[name] != initial[name]).any().item() for name in initial),
        "lags": all((averaged[name] != immediate[name]).any().item() for name in initial),
        # AdamW's first step is as long as the learning rate, which the warm-up has brought to one half.
        "warms_up": abs(max((first[name] - initial[name]).abs().max().item() for name in initial) - 0.005) < 1e-5,
        "in micro batches to rounding": 0 < runs.farthest("reference", "micro batches") < 1e-4,
        "frozen": not any(parameter.requires_grad for parameter in loaded.parameters()) and not loaded.training,
    }


def main(root: Path) -> dict:
    runs, in_parts = Trainings(root, 1), {"micro_batch": 3}
    found = {"reference": runs.chain("reference")} | {name: runs.chain(name, stops) for name, stops in STOPS.items()}
    found["saved at every step"] = runs.chain("every", checkpoint_minutes=1e-9)
    found["micro batches"] = runs.chain("micro batches", resources=in_parts)
    found["micro batches, stopped"] = runs.chain("micro-stopped", [1, 4], resources=in_parts)
    kept = {"snapshots": snapshots(runs), "powers": powers(runs)}
    return {"chains": found | seeded(runs), "torn": torn(runs), "ema": ema(runs)} | kept


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(Path(sys.argv[1]))), flush=True)
