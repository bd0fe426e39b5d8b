"""The tables of docs/results/ from a sweep's folder, in Markdown: python -m tests.benchmarks.tables sweeps/method

One line for each setting and arm, mean and standard deviation over the seeds; then the routers by noise level. What
all benchmarks share is here, too: their arguments, sides that take turns, and the lines of a table.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hpcddm.config.sweep import label_of, short_names
from hpcddm.errors import UserError
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.sweep_results.seed_statistics import SEED, statistics_over_seeds
from hpcddm.evaluation.sweep_results.setting_results import FLOOR, blockers_by_files, setting_results
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.sweep_index import SweepIndex, read_index
from hpcddm.runs.unit_keys import ROUTER

LEVELS = (0.05, 0.25, 0.45, 0.65, 0.85)
BEFORE_ROUTERS = ("encode", "cluster", "router")
"""Sections of the settings by which routers differ."""


def parser_of(text: str) -> argparse.ArgumentParser:
    """Return a parser that shows a module's text as it is."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def given_runs(text: str) -> list[Path]:
    """Read folders from the command line."""
    parser = parser_of(text)
    parser.add_argument("runs", nargs="+", type=Path)
    return parser.parse_args().runs


def run_main(main: Callable[[], None]) -> None:
    """Call the main function of a module; an error of the user ends it in one line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")


def processor_seconds(call: Callable[[], object]) -> float:
    """Processor seconds of one call, which other jobs disturb least."""
    started = time.process_time()
    call()
    return time.process_time() - started


def least_in_turns(
    sides: Mapping[str, Callable[[], object]], rounds: int, measure: Callable[..., float] = processor_seconds
) -> dict[str, float]:
    """Measure all sides in turn, so that a machine with other work slows them alike; return the least of each."""
    taken = [{name: measure(call) for name, call in sides.items()} for _ in range(rounds)]
    return {name: min(one[name] for one in taken) for name in sides}


def print_row(*cells: object) -> None:
    """Print a line of a table at once."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_header(*columns: object) -> None:
    """Print the titles of a table."""
    print_row(*columns)
    print_row(*["---"] * len(columns))


def formatted(values: Iterable[float], digits: int, scale: float = 1.0) -> str:
    """Return 'mean +- standard deviation', or the only value."""
    values = [scale * value for value in values]
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} +- {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def arms(index: SweepIndex, home: RunDir) -> None:
    """Every measure of every setting and arm."""
    print_header("setting", "arm", *(metric.title for metric in all_metrics()))
    spreads = statistics_over_seeds(setting_results(index, home, blockers_by_files(index, home)), fewest=1)
    floors = [spread for spread in spreads if spread.arm == FLOOR]
    for spread in [spread for spread in spreads if spread.arm != FLOOR] + floors[:1]:
        label = label_of(spread.setting, short_names(spread.setting)) if spread.arm != FLOOR else ""
        print_row(label, spread.arm, *(spread.formatted(metric) for metric in all_metrics()))


def routers(index: SweepIndex, home: RunDir) -> None:
    """Accuracy and calibration of every router by noise level."""
    by_name: dict[str, list[dict]] = {}
    for label in index.current:
        made = manifest.read(RunDir(home.root / label).unit(ROUTER))
        if made is not None:
            own = {key: value for key, value in index.settings[label].items() if key.startswith(BEFORE_ROUTERS)}
            name = label_of(own, short_names(own)) if own else "trained"
            by_name.setdefault(name, []).append({SEED: index.settings[label].get(SEED), **made.results})
    print()
    print_header("router", "what", *(f"t = {level:g}" for level in LEVELS))
    for name, seeded in by_name.items():
        seeds = list({results[SEED]: results for results in seeded}.values())
        places = [seeds[0]["noise_levels"].index(level) for level in LEVELS]
        for what in ("accuracy", "nll", "calibration_error", "scaled_nll", "scaled_calibration_error"):
            if what in seeds[0]:
                scale, digits = (1, 3) if "nll" in what else (100, 1)
                cells = [formatted([results[what][place] for results in seeds], digits, scale) for place in places]
                print_row(name, what, *cells)


def main() -> None:
    """Print both tables."""
    (root,) = given_runs(__doc__)
    home = RunDir(root)
    index = read_index(home)
    arms(index, home)
    routers(index, home)


if __name__ == "__main__":
    main()
