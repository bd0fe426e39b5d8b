"""Two ranks on two nodes save a training state several times; prints what every state on the server holds, as JSON.

`python -m tests.late_names.saving SERVER NODE_A NODE_B fresh|reused IMAGES...`: under fresh names, as always, or under
one that is used again and again, as states were staged once.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from hpcddm.config.site import Resources
from hpcddm.files import checked_reads
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.runs.run_dir import RunDir
from hpcddm.training.checkpoints import Checkpoints

OWNER = "slurm-x-0123456789ab-7_0.0"


class Shards:
    """Stands for an engine of two ranks and what it copies to the host: each file says its step."""

    def __init__(self) -> None:
        self.images = 0

    def host_copy(self) -> "Shards":
        return self

    def write(self, folder: Path) -> list[Path]:
        files = [folder / f"{kind}-rank{dist.get_rank()}" for kind in ("master", "ema")]
        for file in files:
            save_file({"step": torch.tensor(self.images)}, file)
        return files


def train(rank: int, node: Path, store: Path, steps: list[int]) -> None:
    """One rank: save after each of these numbers of images."""
    dist.init_process_group("gloo", store=dist.FileStore(str(store), 2), rank=rank, world_size=2)
    ranks = Ranks(rank, 0, 2, 2, OWNER)
    attempt = open_attempt(node / "logs", ranks)
    run = {"run": RunDir(node), "key": "train/x", "state": node / "state", "trajectory": "f"}
    unit = SimpleNamespace(**run, ranks=ranks, attempt=attempt, resources=Resources(), seal=lambda: None)
    checkpoints, shards = {"fresh": Checkpoints, "reused": Reusing}[sys.argv[4]](unit, 10**9), Shards()
    for images in steps:
        shards.images = images
        checkpoints.save(shards, images, {})
        checkpoints.wait()
    chosen = checkpoints.agree_on_newest()
    if rank == 0:
        (node / "chosen").write_text(chosen[0][0].path.parent.name if chosen else "none")
    dist.barrier()


def fork(rank: int, node: Path, store: Path, steps: list[int]) -> int:
    """Start a rank that shares the imports of this process."""
    if child := os.fork():
        return child
    try:
        train(rank, node, store, steps)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def content(state: Path) -> dict[str, str]:
    """Which step every file of a state was written at."""
    files = [file for file in state.rglob("*") if file.is_file() and file.name != "state.json"]
    return {str(file.relative_to(state)): str(load_file(file)["step"].item()) for file in sorted(files)}


class Reusing(Checkpoints):
    """Stages all states of an attempt under one name."""

    def _new_folder(self, images: int) -> Path:
        staged = self._folder / f".staged-{self._attempt.number}"
        if dist.get_rank() == 0:
            self._clear_staged()
            staged.mkdir(parents=True)
        dist.barrier()
        return staged


def main(server: Path, nodes: list[Path], steps: list[int]) -> None:
    """Save on two nodes and print what came of it."""
    children = [fork(rank, node, server.parent / "store", steps) for rank, node in enumerate(nodes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    states = {state.name: content(state) for state in sorted((server / "state").glob("images-*"))}
    read = {state: checked_reads.read_json(server / "state" / state / "state.json")["files"] for state in states}
    listed = {state: sorted(file["name"] for file in files) for state, files in read.items()}
    chosen = (server / "chosen").read_text() if (server / "chosen").exists() else None
    print("RESULT " + json.dumps({"codes": codes, "states": states, "listed": listed, "newest": chosen}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(sys.argv[2]), Path(sys.argv[3])], [int(images) for images in sys.argv[5:]])
