"""Disturbs one expert on the testbed, and lets it go on with other nodes, another ZeRO stage and micro batch each time.

`python -m tests.real.reshaped --folder FOLDER` prints the disturbances, and the losses beside those of an undisturbed
training by two ranks in stage 1.
"""

import argparse
import json
import os
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
from rich.console import Console
from safetensors.numpy import load_file

from hpcddm.runs import manifest
from tests.real.storm import KEY, Disturbance, Storm, table
from tests.whole_runs import hpcddm

SHAPES = (
    ("nodes=1", "ranks_per_node=1", "zero_stage=0"),
    ("nodes=2", "ranks_per_node=2", "zero_stage=3"),
    ("nodes=2", "ranks_per_node=1", "zero_stage=2", "micro_batch=2"),
)
"""Resources with which the training goes on, one after the other."""
KINDS = ("reshaped", "sigkill", "reshaped", "usr2", "reshaped", "scancel")


class Reshaping(Storm):
    """A storm in which the unit is killed and retried with other resources."""

    shapes = cycle(SHAPES)

    def _reshaped(self, one: Disturbance) -> None:
        """Kill the job, as where two nodes are lost for good, and retry with what is left."""
        shape = next(self.shapes)
        one.note = ", ".join(shape)
        self.slurm("scancel", "--signal=KILL", "--full", self.last.job)
        self.slurm("scancel", self.last.job)
        self.until(lambda: not self.slurm("squeue", "-h", "-j", self.last.job).strip(), 120, "the queue to forget it")
        words = [word for resource in shape for word in ("--resource", resource)]
        done = hpcddm("retry", self.run, KEY, *words, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr


def compared(run: Path, calm: Path) -> dict[str, float]:
    """Return the largest difference of two loss curves, relative, and the distance of the weights, relative L2."""
    losses = [np.array(json.loads((each / KEY / "curve.json").read_text())) for each in (run, calm)]
    assert (losses[0][:, 0] == losses[1][:, 0]).all()
    weights = [load_file(each / KEY / "weights.safetensors") for each in (run, calm)]
    flat = [np.concatenate([each[name].ravel() for name in sorted(each)]) for each in weights]
    return {
        "losses": float(np.abs(losses[0][:, 1] / losses[1][:, 1] - 1).max()),
        "last loss": float(losses[0][-1, 1] / losses[1][-1, 1] - 1),
        "weights": float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])),
    }


def main() -> int:
    """Run a whole storm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=240_000)
    arguments = parser.parse_args()
    conf = f"{os.environ.get('HPCDDM_TESTBED', '/tmp/hpcddm-testbed')}/home/slurm.conf"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    storm = Reshaping(arguments.folder, conf, 0, images=arguments.images)
    storm.submit(arguments.folder / "calm", "local")
    storm.submit(storm.run, "slurm")
    storm.rage([Disturbance(kind, "step", 1.0) for kind in KINDS])
    Console(width=110).print(table(storm.log))
    resources = manifest.read(storm.run / KEY).results["resources"]
    for each in resources:
        print(", ".join(f"{name} {value}" for name, value in each.items()))
    print(json.dumps(compared(storm.run, arguments.folder / "calm")))
    return 0 if len(resources) > len(SHAPES) else 1


if __name__ == "__main__":
    sys.exit(main())
