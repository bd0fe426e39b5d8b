"""States written beside a training: python -m tests.benchmarks.states FOLDER [--rounds 5] [--steps 60]

A DiT of about 100 million parameters trains in bf16 on one thread. Each round is `steps` steps without a save, and as
many with one save begun after the first of them and published before the last ends. Printed are seconds of both sums,
of the copies to the host, for which the training stands still, and what the saves cost beyond them.
"""

import argparse
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from hpcddm.config.site import Resources
from hpcddm.config.training import Training
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.launch.load_experiment import load_experiment
from hpcddm.models import build_denoiser
from hpcddm.runs.run_dir import RunDir
from hpcddm.training.checkpoints import Checkpoints, PublishedState
from hpcddm.training.engine import Engine

BATCH, UNCOUNTED = 8, 5
OVERRIDES = ("data.image_size=28", "experts.model.width=768", "experts.model.depth=10", "experts.model.heads=12")
OVERRIDES += ("experts.model.patch=7",)


def states_in(folder: Path, ranks: Ranks) -> Checkpoints:
    """States of a training without end, in a folder."""
    attempt = open_attempt(folder / "logs", ranks)
    place = {"run": RunDir(folder), "key": "train/expert-00", "state": folder / "state"}
    unit = SimpleNamespace(**place, trajectory="f", ranks=ranks, attempt=attempt, resources=Resources())
    return Checkpoints(unit, 10**9)


def join_alone(backend: str) -> None:
    """Make a process group of this process alone, and say so to DeepSpeed."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    os.environ |= dict(zip(names, ("0", "0", "1", "127.0.0.1", "1"), strict=True))
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group(backend, store=store, rank=0, world_size=1)


class Trainer:
    """One engine and its states."""

    def __init__(self, folder: Path) -> None:
        experiment = load_experiment("quickstart", OVERRIDES)
        torch.manual_seed(0)
        model = build_denoiser.build(experiment, experiment.expert_config(None)).train()
        self.parameters = sum(weight.numel() for weight in model.parameters())
        ranks = Ranks(0, 0, 1, 1, "slurm-x-0123456789ab-7_0.0")
        training = Training(images=10**9, batch=BATCH, learning_rate=1e-4, ema_halflife_images=1000)
        self.engine = Engine(model, training, ranks, torch.device("cpu"))
        self.checkpoints, self.images = states_in(folder, ranks), 0
        self.batch = torch.randn(BATCH, 1, 28, 28), torch.rand(BATCH), torch.zeros(BATCH, dtype=torch.long)

    def steps(self, count: int, save: bool) -> tuple[float, PublishedState | None]:
        """Make so many steps, with a save after the first; return the seconds and the state."""
        started, saved = time.perf_counter(), None
        for step in range(count):
            self.engine.backward(self.engine.model(*self.batch).float().square().mean())
            self.images += BATCH
            self.engine.step(self.images)
            if save and step == 0:
                self.checkpoints.save(self.engine, self.images, {})
            saved = self.checkpoints.take_published() or saved
        saved = self.checkpoints.wait() or saved
        return time.perf_counter() - started, saved


def main() -> None:
    """Train with and without saves in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    join_alone("gloo")
    trainer = Trainer(arguments.folder)
    trainer.steps(UNCOUNTED, save=True)
    without, beside, copies, wholes = 0.0, 0.0, 0.0, 0.0
    for _ in range(arguments.rounds):
        without += trainer.steps(arguments.steps, save=False)[0]
        seconds, saved = trainer.steps(arguments.steps, save=True)
        assert saved is not None
        beside, copies, wholes = beside + seconds, copies + saved.copy_seconds, wholes + saved.seconds
    figures = {
        "million parameters": round(trainer.parameters / 1e6, 1),
        "steps": arguments.rounds * arguments.steps,
        "saves": arguments.rounds,
        "seconds without": round(without, 2),
        "seconds with": round(beside, 2),
        "of them copies": round(copies, 2),
        "whole saves": round(wholes, 2),
        "beyond the copies": f"{(beside - copies) / without - 1:.1%}",
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
