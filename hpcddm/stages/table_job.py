"""Last job of a sweep: table and plot of the settings complete by then; it is no stage of the pipeline."""

from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.sweep_results.outputs import publish
from hpcddm.evaluation.sweep_results.table import states_by_files
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.sweep_index import read_index


def run(settings: Experiment, unit: Unit) -> Result:
    """Write table.csv and table.png beside the settings' runs; what is not complete is named there with its state."""
    index = read_index(unit.run)
    rows = publish(unit.run, index, states_by_files(index, unit.run))
    complete = sum(bool(row.arms) for row in rows)
    print(f"{complete} of {len(rows)} settings are complete", flush=True)
    return Result([], {"settings": len(rows), "complete": complete})
