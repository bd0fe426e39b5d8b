"""Process between the launcher and the ranks of one unit: `python -m hpcddm.launch.local.controller FOLDER`."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from submitit.local.local import Controller

from hpcddm.errors import UserError
from hpcddm.files import guarded_writes
from hpcddm.jobs.stopping import LAUNCHER_VARIABLE, SAVING_SECONDS

DEATH_SECONDS = 5


class UnitController(Controller):
    """submitit's controller, which also ends all ranks if one rank dies or the launcher ends.

    Args:
        folder: Folder of the ranks' first outputs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._launcher = int(os.environ[LAUNCHER_VARIABLE])

    def start_tasks(self) -> None:
        """Start the ranks; links are not followed, because other users can predict the names of the outputs."""
        guarded_writes.make_folder(self.folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for rank in range(self.ntasks):
            variables = {"LOCALID": str(rank), "GLOBALID": str(rank), "JOB_ID": self.pid}
            environment = os.environ | {f"SUBMITIT_LOCAL_{name}": value for name, value in variables.items()}
            with open(guarded_writes.open_file(self.folder / f"{self.pid}_{rank}_log.out", flags), "ab") as output:
                task = subprocess.Popen(self.command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            self.tasks.append(task)

    def wait(self, freq: int = 24) -> Sequence[int | None]:
        """Wait for all ranks, after a stop signal at most for the grace period; `run` kills the remaining ranks.

        Args:
            freq: Checks per second.

        Returns:
            The exit code of each rank; None for a rank that still runs.
        """
        deadline = math.inf
        while None in (codes := [task.poll() for task in self.tasks]) and time.monotonic() < deadline:
            patience = self._patience(codes)
            if time.monotonic() + patience < deadline:
                deadline = time.monotonic() + patience
                self._forward_signal(signal.SIGTERM)
            time.sleep(1 / freq)
        return codes

    def _patience(self, codes: list[int | None]) -> float:
        """Return the seconds that the ranks may still run."""
        if any(codes):
            # The other ranks wait for the dead rank, and cannot save without it.
            return DEATH_SECONDS
        # Not kill(pid, 0): it also succeeds for a zombie, and for a new process with the same number.
        return math.inf if os.getppid() == self._launcher else SAVING_SECONDS


if __name__ == "__main__":
    # Only once: the launcher decides about another attempt.
    try:
        UnitController(Path(sys.argv[1])).run(max_retry=1)
    except UserError as error:
        sys.exit(f"error: {error}")
