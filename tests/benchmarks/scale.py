"""Data stages at 0.1, 1 and 10 million samples, extrapolated to 158 and 400 million.

    python -m tests.benchmarks.scale FOLDER [SAMPLES ...]

The samples are those of the source `synthetic_load`, whose pictures are a gigabyte of real JPEGs, made in FOLDER where
they are not there yet. Every unit of every stage runs in a process of its own, one after the other; its anonymous
memory (RssAnon, without what a Python with torch takes before) is looked at every 20 ms.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config.variants import VARIANTS_VARIABLE
from hpcddm.loading.content_hashes import with_tar_counts
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.ranges import MAX_RANGES
from hpcddm.runs.unit_keys import stage_of
from tests.benchmarks.expert_reading import write_tars
from tests.benchmarks.tables import parser_of, print_header, print_row
from tests.helpers import LOAD_VARIANTS
from tests.stages.routes import STAGES, Bench

REAL_TARS = 70
SAMPLES = (100_000, 1_000_000, 10_000_000)
PAPERS = (158_000_000, 400_000_000)
"""LAION-Aesthetics as arXiv 2501.05450 has it, and LAION-400M."""
MEASURED = ("shard", "catalog", "encode", "cluster", "assign", "expert_lists", "cluster_report")
RANGES = MAX_RANGES + 1
"""Units of a stage by ranges: those of the training samples, and one of the held-out ones."""
EXPERTS = 8
MEGABYTE = 1e6


@dataclass
class Cost:
    """Cost of a stage: processor seconds of all units and of the slowest, largest growth of a process, its files."""

    units: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    anonymous: int = 0
    disk: int = 0
    files: int = 0


def anonymous_bytes(process: int) -> int:
    """Anonymous memory of a process, 0 when it is over."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def in_a_process(call: Callable[[], object]) -> tuple[float, int]:
    """Processor seconds, which other jobs disturb least, and growth of the memory of a call in a process of its own."""
    before = anonymous_bytes(os.getpid())
    process = os.fork()
    if process == 0:
        code = 1
        try:
            call()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    most, ended = 0, 0
    try:
        while not ended:
            time.sleep(0.02)
            most = max(most, anonymous_bytes(process))
            ended, _, usage = os.wait4(process, os.WNOHANG)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    return usage.ru_utime + usage.ru_stime, max(most - before, 0)


def bench_of(folder: Path, real: Path, count: int) -> Bench:
    """A run of so many invented samples."""
    source = {"name": "synthetic_load", "folder": str(real), "samples": count}
    data = {"data__source": source, "data__num_classes": None, "data__condition": {"name": "none"}}
    data |= {"data__image_size": 64, "data__channels": 3, "evaluators__classifier": None}
    clustering = {"name": "kmeans", "fine_clusters": 256, "iterations": 10, "restarts": 1, "max_share": None}
    own = {"encode__encoder": {"name": "synthetic_load"}, "cluster__clustering": clustering}
    bench = Bench(folder, f"run-{count}", **data, **own, cluster__experts=EXPERTS)
    bench.settings = with_tar_counts(bench.settings)
    return bench


def stage_costs(bench: Bench) -> dict[str, Cost]:
    """Make all units of the data stages, one after the other."""
    costs = {stage: Cost() for stage in MEASURED}
    for key in [unit.key for unit in plan_units(bench.settings) if unit.stage in MEASURED]:
        cost = costs[stage_of(key)]
        # The plan, which finds a unit's inputs, is made once in a run.
        unit = bench.unit(key)
        run = STAGES[stage_of(key)].run
        seconds, grown = in_a_process(lambda unit=unit, run=run: bench.publish(unit, run(bench.settings, unit)))
        assert manifest.read(bench.run.unit(key)) is not None, f"{key} failed"
        cost.units += 1
        cost.seconds += seconds
        cost.slowest, cost.anonymous = max(cost.slowest, seconds), max(cost.anonymous, grown)
    for stage, cost in costs.items():
        files = [path for path in (bench.run.root / stage).rglob("*") if path.is_file()]
        cost.files, cost.disk = len(files), sum(path.stat().st_size for path in files)
    return costs


def extrapolated(counts: list[int], costs: list[Cost], wanted: int) -> Cost:
    """Cost of so many samples by the line through the last two measurements; memory is that of blocks, and stays."""

    def line(name: str) -> float:
        first, last = (getattr(cost, name) for cost in costs[-2:])
        return last + (last - first) / (counts[-1] - counts[-2]) * (wanted - counts[-1])

    units = costs[-1].units if costs[-1].units == 1 else RANGES
    seconds = line("seconds")
    files = round(costs[-1].files / costs[-1].units * units)
    return Cost(units, seconds, seconds / units, costs[-1].anonymous, round(line("disk")), files)


def show(measured: dict[int, dict[str, Cost]]) -> None:
    """Print what was measured, and what follows from it."""
    counts = sorted(measured)
    print_header("stage", "samples", "units", "CPU seconds", "slowest unit", "anonymous MB", "disk MB", "files")
    for stage in measured[counts[0]]:
        costs = [measured[count][stage] for count in counts]
        rows = [(f"{count:,}", cost) for count, cost in zip(counts, costs, strict=True)]
        if len(counts) > 1:
            rows += [(f"{wanted:,} (line)", extrapolated(counts, costs, wanted)) for wanted in PAPERS]
        for label, cost in rows:
            values = (cost.seconds, cost.slowest, cost.anonymous / MEGABYTE, cost.disk / MEGABYTE)
            print_row(stage, label, cost.units, *(f"{value:,.1f}" for value in values), f"{cost.files:,}")


def main() -> None:
    """Measure, and print one table."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("samples", type=int, nargs="*", default=list(SAMPLES))
    given = parser.parse_args()
    if VARIANTS_VARIABLE not in os.environ:
        # The names of variants are read with the imports.
        command = [sys.executable, "-m", "tests.benchmarks.scale", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {VARIANTS_VARIABLE: str(LOAD_VARIANTS)})
    real = given.folder / "real"
    if not real.is_dir():
        real.mkdir(parents=True)
        write_tars(real, REAL_TARS)
    measured: dict[int, dict[str, Cost]] = {}
    for count in given.samples:
        bench = bench_of(given.folder, real, count)
        measured[count] = stage_costs(bench)
        print(count, measured[count], flush=True)
    show(measured)


if __name__ == "__main__":
    main()
