"""Last job of a sweep: table and plot of the settings complete by then; it is not a stage of the pipeline."""

from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.sweep_results.outputs import publish
from hpcddm.evaluation.sweep_results.setting_results import blockers_by_files
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.sweep_index import read_index


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write table.csv and table.png beside the settings' runs; incomplete settings appear there with their states."""
    index = read_index(unit.run)
    rows = publish(unit.run, index, blockers_by_files(index, unit.run))
    complete = sum(bool(row.arms) for row in rows)
    print(f"{complete} of {len(rows)} settings are complete", flush=True)
    return Result([], {"settings": len(rows), "complete": complete})
