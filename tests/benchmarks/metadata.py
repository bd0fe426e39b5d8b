"""How often the ranks of a training ask the shared file system: python -m tests.benchmarks.metadata

One expert over two nodes with two ranks each, all on this machine, watched by strace while they train. Needs strace,
and the right to attach it. To watch another version of this project, run this file in a checkout of that.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hpcddm.jobs.attempt_records import read_records
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.launch.load_site import load_site
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.benchmarks.tables import print_header, print_row
from tests.helpers import REPOSITORY, tiny
from tests.real.endless import prepare, wait_for

KEY, NODES, EACH = "train/expert-00", 2, 2
SECONDS = 60
EXPERTS, RANKS, RANKS_PER_NODE = 16, 64, 8
"""The training for which the figures are scaled."""
START = "import sys; from hpcddm.jobs.entry import run_unit; run_unit(sys.argv[1])"


def start(spec: Path) -> list[subprocess.Popen]:
    """The ranks as srun would start them."""
    ranks = []
    for rank in range(NODES * EACH):
        slurm = {"STEP_ID": 0, "PROCID": rank, "LOCALID": rank % EACH, "NTASKS": NODES * EACH, "JOB_NUM_NODES": NODES}
        slurm |= {"JOB_ID": 7, "ARRAY_JOB_ID": 7, "ARRAY_TASK_ID": 0, "JOB_NAME": "tiny-train-0123456789ab"}
        environment = os.environ | {f"SLURM_{key}": str(value) for key, value in slurm.items()}
        environment |= {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([sys.executable, "-P", "-c", START, str(spec)], env=environment))
    return ranks


def watch(ranks: list[subprocess.Popen], folder: Path, run: Path) -> list[Counter[str]]:
    """The calls of each rank that name something in the run, by name, in `SECONDS`."""
    files = [folder / f"trace-{rank}" for rank in range(len(ranks))]
    command = ["strace", "-f", "-qq", "-y", "-e", "trace=%file,getdents64"]
    traces = [
        subprocess.Popen([*command, "-o", str(file), "-p", str(rank.pid)])
        for rank, file in zip(ranks, files, strict=True)
    ]
    time.sleep(SECONDS)
    for trace in traces:
        trace.send_signal(signal.SIGINT)
        trace.wait()
    found = []
    for file in files:
        lines = [line for line in file.read_text().splitlines() if str(run) in line and "resumed>" not in line]
        found.append(Counter(match[1] for line in lines if (match := re.match(r"\d+ +(\w+)\(", line))))
    return found


def main() -> None:
    """Watch and print one table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, experiment = prepare(folder, "testbed-home"), tiny(folder, experts__training__images=16_000_000)
        experiment = with_relative_paths(experiment, run)
        items = make_items([unit for unit in plan_units(experiment) if unit.key == KEY], experiment, run)
        write_specs(items, load_site("testbed-home"))
        ranks = start(items[0].spec)
        try:
            wait_for(lambda: [one for one in read_records(run.logs(KEY)) if one.begun])
            calls = watch(ranks, folder, run.root)
        finally:
            for rank in ranks:
                rank.kill()
    per_hour = [calls[rank].total() * 3600 / SECONDS for rank in range(len(calls))]
    print_header("rank", "calls on the shared file system an hour", "of these")
    for rank, counted in enumerate(calls):
        listed = ", ".join(f"{count * 3600 // SECONDS} {call}" for call, count in counted.most_common())
        print_row(rank, f"{per_hour[rank]:.0f}", listed)
    nodes = RANKS // RANKS_PER_NODE
    other = (per_hour[1] + per_hour[3]) / 2
    whole = EXPERTS * (per_hour[0] + (nodes - 1) * per_hour[2] + (RANKS - nodes) * other)
    print(f"{EXPERTS} experts x {RANKS} ranks, {RANKS_PER_NODE} a node: {whole / 3600:.0f} calls a second,", end=" ")
    print(f"{whole / EXPERTS / RANKS:.0f} per rank and hour")


if __name__ == "__main__":
    main()
