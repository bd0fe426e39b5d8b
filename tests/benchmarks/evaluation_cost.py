"""Seconds of an evaluation by its parts: python -m tests.benchmarks.evaluation_cost RUN ...

Sampling is the stage draw. Forward passes are the stages measure and measure_real, with reading and loading. The rest
is the stage compare: metrics with their values without each tenth. Seconds are those of the last attempts.
"""

from collections import defaultdict
from pathlib import Path

from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import unit_name
from hpcddm.stages.evaluation.measure_real import evaluator_of
from tests.benchmarks.tables import given_runs, print_header, print_row

SAMPLING = "-"
LABELS = {"draw": lambda key: SAMPLING, "measure": evaluator_of, "measure_real": evaluator_of, "compare": unit_name}
"""Extractor of a unit, by its stage."""


def seconds_by_part(root: Path) -> dict[tuple[str, str], float]:
    """Sum the seconds of the units of an evaluation by stage and extractor."""
    run, seconds = RunDir(root), defaultdict[tuple[str, str], float](float)
    for unit in plan_units(stored_experiment(run)):
        if unit.stage in LABELS:
            label = LABELS[unit.stage](unit.key)
            made = manifest.read(run.unit(unit.key))
            if made is None:
                raise SystemExit(f"{root}: {unit.key} is not complete")
            seconds[unit.stage, label] += made.record["seconds"]
    return dict(seconds)


def main() -> None:
    """Print a row for every part of every run."""
    roots = given_runs(__doc__)
    print_header("run", "part", "extractor", "s", "share of sampling")
    for root in roots:
        found = seconds_by_part(root)
        for (stage, label), spent in found.items():
            print_row(root.name, stage, label, f"{spent:.1f}", f"{spent / found['draw', SAMPLING]:.1%}")


if __name__ == "__main__":
    main()
