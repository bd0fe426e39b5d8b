"""Process between the server and the ranks of one unit; all are forked."""

import importlib
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from submitit.local.local import Controller

from hpcddm.errors import UserError
from hpcddm.files import guarded_writes
from hpcddm.jobs.stopping import SAVING_SECONDS

DEATH_SECONDS = 5


class ForkedRank:
    """Rank of a unit, with the methods of `subprocess.Popen` that submitit's controller calls.

    Args:
        command: Name of a module, and the arguments of its function `run_unit`.
        variables: Variables of the rank, beside those of this process.
        output: Descriptor of the file for its standard output and error.
    """

    def __init__(self, command: Sequence[str], variables: dict[str, str], output: int) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.environ.update(variables)
                for stream in (1, 2):
                    os.dup2(output, stream)
                importlib.import_module(command[0]).run_unit(*command[1:])
            except BaseException:
                traceback.print_exc()
            os._exit(1)

    def poll(self) -> int | None:
        """Return the exit code, the negative number of the signal that ended the rank, or None while it runs."""
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            if process:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal the rank if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class UnitController(Controller):
    """submitit's controller, which also ends all ranks if one rank dies or the server ends with the launcher.

    Args:
        folder: Existing folder for the ranks' first outputs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = os.getppid()

    def start_tasks(self) -> None:
        """Start the ranks; links are not followed, because other users can predict the names of the outputs."""
        guarded_writes.make_folder(self.folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for rank in range(self.ntasks):
            variables = {"LOCALID": str(rank), "GLOBALID": str(rank), "JOB_ID": self.pid}
            own = {f"SUBMITIT_LOCAL_{name}": value for name, value in variables.items()}
            with open(guarded_writes.open_file(self.folder / f"{self.pid}_{rank}_log.out", flags), "ab") as output:
                rank_process: Any = ForkedRank(self.command, own, output.fileno())
            self.tasks.append(rank_process)

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
        return math.inf if os.getppid() == self._server else SAVING_SECONDS


def control(folder: Path) -> NoReturn:
    """Run a unit's ranks, once, and exit: the launcher decides about another attempt.

    Args:
        folder: Existing folder for the ranks' first outputs.
    """
    try:
        UnitController(folder).run(max_retry=1)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
