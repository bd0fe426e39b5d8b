"""Kills a process in every phase of its saves, as kill -9 does, and looks for the newest whole state each time.

`python -m tests.training.killed FOLDER 100` prints, as JSON, after which of its calls to the file system a save ended
and what was found.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from hpcddm.config.site import Resources
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.runs.run_dir import RunDir
from hpcddm.training import state_slices
from hpcddm.training.checkpoints import Checkpoints
from hpcddm.training.engine import HostCopy
from hpcddm.training.state_slices import Slice

CALLS = "open os.mkdir os.rename os.remove os.rmdir os.listdir os.scandir os.chmod shutil.rmtree".split()
"""Audited calls by which a save is seen to go on."""
LENGTH = 5000


def checkpoints(folder: Path) -> Checkpoints:
    """The states of a unit of one rank, in a process of its own."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    ranks = Ranks(0, 0, 1, 1, "slurm-x-0123456789ab-7_0.0")
    attempt = open_attempt(folder / "logs", ranks)
    place = {"run": RunDir(folder), "key": "train/expert-00", "state": folder / "state"}
    unit = SimpleNamespace(
        **place, trajectory="f", ranks=ranks, attempt=attempt, resources=Resources(), seal=lambda: None
    )
    return Checkpoints(unit, 10**9)


class Weights:
    """Stands for an engine whose weights say at which images they were saved."""

    def __init__(self) -> None:
        self.images = 0

    def host_copy(self) -> HostCopy:
        return HostCopy({"master": [torch.full((LENGTH,), float(self.images))]}, [1.0], [Slice(0, 0, "w", 0, LENGTH)])


def save_until_killed(folder: Path, first: int, after: int, told: int) -> None:
    """Say what the newest state is, save at `first` and `first` + 1 images, and end after so many calls of the second.

    A save that is confirmed is said, too; of the state that is found, if its bytes are those of its images.
    """
    states, weights, left = checkpoints(folder), Weights(), None

    def count(event: str, _: object) -> None:
        nonlocal left
        if left is not None and event in CALLS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    files, state = states.agree_on_newest() or ([], {"images": 0})
    values = torch.zeros(LENGTH)
    with state_slices.StateFiles(files) as stored:
        if files:
            stored.fill("master", Slice(0, 0, "w", 0, LENGTH), values)
    os.write(told, f"{state['images']} {(values == state['images']).all()}\n".encode())
    sys.addaudithook(count)
    for images in (first, first + 1):
        weights.images = images
        left = after if images > first else None
        states.save(weights, images, {})
        states.wait()
        left = None
        os.write(told, f"{images}\n".encode())


def in_child(work: Callable[[int], None]) -> tuple[int, list[str]]:
    """Run in a fork, and return how it ended and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read().split("\n")[:-1]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def main(folder: Path, saves: int) -> list[dict]:
    """Kill after 0, 1, 2 ... calls, and begin again when a save has come to its end; the next process looks."""
    found, after = [], 0
    for number in range(saves + 1):
        first = 10 * (number + 1)
        code, (newest, *said) = in_child(
            lambda told, first=first, after=after: save_until_killed(folder, first, after, told)
        )
        if found:
            images, is_whole = newest.split()
            found[-1] |= {"found": int(images), "whole": is_whole}
        found.append({"after": after, "code": code, "confirmed": int(said[-1]) if said else None})
        after = 0 if code == 0 else after + 1
        # Each child opens an attempt; only the newest may publish.
        shutil.rmtree(folder / "logs")
    return found[:-1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("RESULT " + json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
