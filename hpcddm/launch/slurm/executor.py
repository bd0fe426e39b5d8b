"""submitit's executor for arrays: its own way of starting a job, with our script and one pickle for all elements."""

from functools import partial
from pathlib import Path

import submitit
from submitit.core.utils import DelayedSubmission

from hpcddm.jobs.entry import run_element
from hpcddm.launch.slurm.sbatch import Sbatch


class TemplateExecutor(submitit.SlurmExecutor):
    """submitit's executor, but the script is ours, and one pickle, there before the job, serves a whole array."""

    def __init__(self, folder: Path, token: str, sbatch: Sbatch) -> None:
        super().__init__(folder)
        self._pickle, self._map = folder / f"{token}.pkl", folder / f"{token}.json"
        self._sbatch = sbatch

    def submit_elements(self) -> str:
        """Submit an array of which every element finds its unit in the map beside the pickle; return the job id."""
        return self.submit(partial(run_element, str(self._map))).job_id

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job]:
        (delayed,) = delayed_submissions
        delayed.set_timeout(0, 0)
        delayed.dump(self._pickle)
        return [submitit.SlurmJob(self.folder, self._sbatch.submit())]
