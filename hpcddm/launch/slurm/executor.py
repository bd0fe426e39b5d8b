"""submitit's executor for arrays, with the batch script of this package and one pickle for all elements."""

from functools import partial
from pathlib import Path

import submitit
from submitit.core.utils import DelayedSubmission

from hpcddm.jobs.entry import run_element
from hpcddm.launch.slurm.sbatch import Sbatch


class TemplateExecutor(submitit.SlurmExecutor):
    """submitit's executor with another batch script and one pickle per array, written before the submission.

    Args:
        folder: Folder for pickle and element map.
        token: Token of the submission, which names both files.
        sbatch: The prepared call of sbatch.
    """

    def __init__(self, folder: Path, token: str, sbatch: Sbatch) -> None:
        super().__init__(folder)
        self._pickle, self._map = folder / f"{token}.pkl", folder / f"{token}.json"
        self._sbatch = sbatch

    def submit_elements(self) -> str:
        """Submit an array whose elements read their units from the element map, and return the job id."""
        return self.submit(partial(run_element, str(self._map))).job_id

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job]:
        (delayed,) = delayed_submissions
        delayed.set_timeout(0, 0)
        delayed.dump(self._pickle)
        return [submitit.SlurmJob(self.folder, self._sbatch.submit())]
