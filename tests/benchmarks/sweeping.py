"""How long `hpcddm sweep` takes for 1,000 settings, and how often it calls Slurm: python -m tests.benchmarks.sweeping

Needs the testbed and HPCDDM_TESTBED, its folder. All jobs are held and cancelled at the end: nothing runs. The testbed
keeps jobs for five minutes after their end, and 10,000 at most: wait before you repeat it.
"""

import os
import time
from collections import Counter
from typing import NamedTuple

from tests.benchmarks.submitting import Place, cpu_seconds, on_testbed
from tests.benchmarks.tables import print_header, print_row
from tests.whole_runs import hpcddm

SETTINGS = 1000
TARGET = 10.0
"""Seconds of the whole command."""
SWEEP = "{{name: thousand, experiment: quickstart, set: {{evaluate.units: 1}}, grid: {{evaluate.guidance: {values}}}}}"


class Sweeping(NamedTuple):
    """Seconds of one command, of the processors in it, and its calls of Slurm's clients."""

    whole: float
    cpu: float
    calls: Counter[str]
    said: str


def sweep(place: Place, count: int) -> Sweeping:
    """Submit a sweep over the guidance; all that does not depend on it is shared."""
    file = place.folder / "sweep.yaml"
    file.write_text(SWEEP.format(values=[1 + number / 1000 for number in range(count)]))
    place.log.write_text("")
    used, started = cpu_seconds(), time.time()
    where = ["--site", place.folder / "held.yaml", "--dir", place.folder / "sweep"]
    done = hpcddm("sweep", file, *where, PATH=f"{place.folder / 'bin'}:{os.environ['PATH']}")
    whole, used = time.time() - started, cpu_seconds() - used
    assert done.returncode == 0, done.stderr
    return Sweeping(whole, used, place.counted(), done.stdout)


def main() -> None:
    """Print a row for each case."""
    with on_testbed() as place:
        print_header(f"sweep of {SETTINGS:,} settings", "s", "target s", "CPU s", "calls")
        for case in ("submit", "again, all in the queue"):
            taken = sweep(place, SETTINGS)
            listed = ", ".join(f"{count} {client}" for client, count in sorted(taken.calls.items()))
            print_row(case, f"{taken.whole:.2f}", f"{TARGET:.1f}", f"{taken.cpu:.2f}", listed)


if __name__ == "__main__":
    main()
