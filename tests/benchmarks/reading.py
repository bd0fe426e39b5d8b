"""Images/s of a training here and in an older checkout, in turn, pinned to one core and to two, and the wait for data.

`python -m tests.benchmarks.reading --before CHECKOUT [--unit train/expert-00] [--rounds 3]` runs the small experiment
once on each side, then trains one unit again and again. A figure is the median of the lines of a training's log.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.helpers import REPOSITORY

SETTINGS = [
    "experts.training.images=8192",
    "experts.training.log_every_images=1024",
    "monolith.enabled=false",
    "router.training.images=64",
    "evaluators.extractor.training.images=64",
    "evaluators.classifier.training.images=64",
    "evaluate.images=20",
    "evaluate.batch=20",
    "evaluate.units=1",
    "evaluate.steps=1",
]
"""The quickstart's experts, long enough for a steady pace: 2,048 images each; and little else."""
CORES = ("0", "0,1")


class Side:
    """One checkout, with a small run, in which everything is there that the unit reads."""

    def __init__(self, name: str, checkout: Path, folder: Path, unit: str) -> None:
        self.name, self.run, self.unit = name, folder / name, unit
        self._environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        self._call("submit", "quickstart", "--site", "embedded", "--run-dir", str(self.run), *SETTINGS)

    def images_per_second(self, cores: str) -> tuple[float, float | None]:
        """Train the unit anew on these cores; return images/s and, where the log tells it, the wait for data."""
        for place in (self.run / self.unit, self.run / "logs" / self.unit):
            shutil.rmtree(place, ignore_errors=True)
        self._call("run-unit", str(self.run), self.unit, prefix=["taskset", "-c", cores])
        (log,) = (self.run / "logs" / self.unit).rglob("rank0.log")
        text = log.read_text()
        rates = [float(rate.replace(",", "")) for rate in re.findall(r"([\d,.]+) images/s", text)][1:]
        waits = [float(wait) for wait in re.findall(r"waiting for data ([\d.]+)%", text)][1:]
        return statistics.median(rates), statistics.median(waits) if waits else None

    def _call(self, *arguments: str, prefix: list[str] | None = None) -> None:
        command = [*(prefix or []), sys.executable, "-P", "-m", "hpcddm.cli", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{self.name}: {' '.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def measure(sides: list[Side], rounds: int) -> Table:
    """Train on every side and every set of cores in turn; tabulate the medians and their ratios to the first side."""
    table = Table("cores", "side", "images/s", "ratio", "waiting for data")
    for cores in CORES:
        found = {side.name: [] for side in sides}
        for _ in range(rounds):
            for side in sides:
                found[side.name].append(side.images_per_second(cores))
        base = statistics.median(rate for rate, _ in found[sides[0].name])
        for name, measured in found.items():
            rate = statistics.median(rate for rate, _ in measured)
            waits = [wait for _, wait in measured if wait is not None]
            wait_text = f"{statistics.median(waits):.1f} %" if waits else ""
            table.add_row(cores, name, f"{rate:.1f}", f"{rate / base:.3f}", wait_text)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an older commit")
    parser.add_argument("--unit", default="train/expert-00")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    checkouts = ({"before": options.before.resolve()} if options.before else {}) | {"now": REPOSITORY}
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(name, checkout, Path(folder), options.unit) for name, checkout in checkouts.items()]
        Console(width=100).print(measure(sides, options.rounds))


if __name__ == "__main__":
    main()
