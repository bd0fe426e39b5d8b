"""Two ranks on two nodes that see each other's names late save after every step and are killed at random moments.

`python -m tests.late_names.enduring --folder FOLDER --saves 200 --kills 20` compares every file of every state with the
same file of a training that nobody disturbed, and the weights with its weights.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from hpcddm.config.site import Resources
from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir
from hpcddm.training import loop
from slurm.testbed import late_names
from tests.late_names.mounts import LATE, two_nodes
from tests.training.scenarios import BATCH, KEY, batches, build, training, write_tar

PATIENCE_SECONDS = 60
"""A rank whose peer was killed has to notice within so long."""


class Witness(HeartbeatWriter):
    """Writes down what lies on the server after every save: the digest of every file of the newest state."""

    def __init__(self, *identity: object, server: Path, log: Path) -> None:
        super().__init__(*identity)
        self._states, self._log = server / KEY / "state", log

    def saved(self, images: int) -> None:
        super().saved(images)
        state = self._states / f"images-{images:012d}"
        files = [file["name"] for file in checked_reads.read_json(state / "state.json")["files"]]
        digests = {name: atomic.sha256(state / name) for name in files}
        atomic.append_line(self._log, json.dumps({"images": images, "files": digests}))


@dataclass
class Endurance:
    """One training below `server`, seen by its ranks at `nodes`; every attempt begins by a fork of this process."""

    server: Path
    nodes: list[Path]
    saves: int
    reader: object
    kills: int = 0
    attempts: int = 0
    children: list[int] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """One line for each save, outside what the nodes see."""
        return self.server.parent / f"{self.server.name}.saves"

    def witnessed(self) -> list[dict]:
        """The lines of the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line] if self.log.exists() else []

    def start(self) -> None:
        """Begin the next attempt, on the same nodes in turned order."""
        nodes = self.nodes[:: -1 if self.attempts % 2 else 1]
        owner = f"slurm-x-0123456789ab-7_0.{self.attempts}"
        self.attempts += 1
        self.children = [self._fork(Ranks(rank, 0, 2, 2, owner), node) for rank, node in enumerate(nodes)]

    def end(self) -> list[int]:
        """Wait for both ranks and return how they ended; one that does not notice its peer's death is a failure."""
        codes, deadline = {}, time.time() + PATIENCE_SECONDS
        while len(codes) < len(self.children):
            for child in self.children:
                if child not in codes and (found := os.waitpid(child, os.WNOHANG))[0]:
                    codes[child] = os.waitstatus_to_exitcode(found[1])
            if codes and any(codes.values()) and time.time() > deadline:
                for child in set(self.children) - codes.keys():
                    os.kill(child, signal.SIGKILL)
                raise AssertionError(f"a rank did not notice in {PATIENCE_SECONDS} s that its peer was gone")
            time.sleep(0.02)
        return [codes[child] for child in self.children]

    def strike(self, dice: random.Random) -> None:
        """Kill one rank, some saves and a moment after the attempt has begun."""
        aim = len(self.witnessed()) + dice.randint(1, max(2, self.saves // (2 * self.kills)))
        while len(self.witnessed()) < aim and all(map(_runs, self.children)):
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.2))
        with suppress(ProcessLookupError):
            os.kill(dice.choice(self.children), signal.SIGKILL)

    def endure(self, seed: int) -> None:
        """Train to the end over all kills."""
        dice = random.Random(seed)
        for _ in range(self.kills):
            self.start()
            self.strike(dice)
            assert 0 not in self.end(), "the training was over before it was killed; give it more saves"
        self.start()
        assert self.end() == [0, 0]

    def _fork(self, ranks: Ranks, node: Path) -> int:
        if child := os.fork():
            return child
        try:
            with open(self.server.parent / f"{self.server.name}.out", "a") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            self._train(ranks, RunDir(node))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _train(self, ranks: Ranks, run: RunDir) -> None:
        def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
            return (model(batch.x0 + batch.noise) - batch.noise.flatten(1)).square().mean(1)

        run.unit(KEY).mkdir(parents=True, exist_ok=True)
        attempt = open_attempt(run.logs(KEY), ranks)
        identity = (attempt.folder, ranks.owner, attempt.number, run.root.name)
        heartbeat = (
            Witness(*identity, server=self.server, log=self.log) if ranks.rank == 0 else HeartbeatWriter(*identity)
        )
        often = Resources(sync_every_steps=1)
        unit = Unit(KEY, run, ranks, attempt, heartbeat, StopFlag(), {}, "f", network_interface="lo", resources=often)
        settings = training(images=self.saves * BATCH, checkpoint_minutes=1e-9)
        loop.train(loop.Task(0, build, loss, batches(self.reader), pixels_to_values), settings, unit)


def _runs(child: int) -> bool:
    """Whether a child has not ended; it is left for `end` to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def compare(calm: Endurance, storm: Endurance) -> dict[str, int | bool]:
    """How many states were saved, how many of them held a file of another step, and whether the weights agree."""
    expected = {line["images"]: line["files"] for line in calm.witnessed()}
    saved = storm.witnessed()
    mixed = [line["images"] for line in saved if line["files"] != expected[line["images"]]]
    weights = [(one.server / KEY / "weights.safetensors").read_bytes() for one in (calm, storm)]
    return {
        "saves": len(saved),
        "files of a state": len(expected[BATCH]),
        "kills": storm.kills,
        "mixed states": len(mixed),
        "weights bit-identical": weights[0] == weights[1],
    }


def endure(folder: Path, saves: int, kills: int, seconds: float, seed: int) -> dict[str, int | bool]:
    """Train twice, undisturbed on a plain folder and killed on the late-names file system."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = write_tar(folder)
    calm = Endurance(folder / "calm", [folder / "calm"] * 2, saves, reader)
    calm.server.mkdir()
    calm.endure(seed)
    with two_nodes(late_names.build(folder), folder, seconds) as nodes:
        storm = Endurance(nodes.server, [nodes.a, nodes.b], saves, reader, kills)
        storm.endure(seed)
        return compare(calm, storm)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--saves", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=LATE)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(json.dumps(endure(**vars(arguments))))
