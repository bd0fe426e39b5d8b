"""Submitting a whole run to a queueing scheduler: arrays chained by `afterany`, then leave."""

from dataclasses import dataclass

from hpcddm.config import Experiment
from hpcddm.launch.base import Launcher
from hpcddm.launch.submission import Decision, array_name, array_spec, arrays, submit_array
from hpcddm.pipeline import PlannedUnit
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir


@dataclass(frozen=True)
class Submitted:
    """One array: its job id, its elements, and the jobs that it waits for."""

    job: str
    keys: list[str]
    script: str
    after: list[str]


def submit_all(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> list[Submitted]:
    """Submit everything that is to run; each array waits for the jobs of the units that it reads."""
    job_of = {key: job.id.split("_")[0] for key, job in decision.active.items()}
    submitted = []
    for script, units in _scripts(decision, launcher, run):
        after = _jobs_needed(units, job_of)
        job = submit_array(units, experiment, run, launcher, after, script)
        keys = [unit.key for unit in units]
        job_of |= dict.fromkeys(keys, job)
        submitted.append(Submitted(job, keys, script, after))
    return submitted


def render_all(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> list[Submitted]:
    """Write the scripts that `submit_all` would hand over, byte for byte, and submit nothing."""
    rendered = []
    for script, units in _scripts(decision, launcher, run):
        launcher.render(array_spec(units, experiment, run, launcher.site, []), script)
        rendered.append(Submitted("", [unit.key for unit in units], script, []))
    return rendered


def _scripts(decision: Decision, launcher: Launcher, run: RunDir) -> list[tuple[str, list[PlannedUnit]]]:
    """The arrays with the names of their scripts; numbers go on over submissions, so no script is overwritten."""
    first = len(Journal(run.journal).submissions())
    found = []
    for number, units in enumerate(arrays(decision.to_run, launcher.site), first + 1):
        found.append((f"{number:04d}-{array_name(units[0])}.sbatch", units))
    return found


def _jobs_needed(units: list[PlannedUnit], job_of: dict[str, str]) -> list[str]:
    needed = [job_of[key] for unit in units for key in unit.needs if key in job_of]
    return list(dict.fromkeys(needed))
