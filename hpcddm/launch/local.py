"""The embedded site: submitit's local executor, the same specs, manifests and logs as under Slurm."""

import os
import shlex
import signal
import subprocess
import uuid
from functools import partial
from pathlib import Path

import submitit
from submitit.local.local import LocalJob

from hpcddm import rooms
from hpcddm.launch.base import PYTHON, ArraySpec, DirectLauncher, Job, clean_environment, python_path
from hpcddm.launch.machine_gpus import VISIBLE_VARIABLE, GpuPool
from hpcddm.launch.snapshot import Checkout, Snapshot
from hpcddm.rundir.job import JobId
from hpcddm.rundir.journal import Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.entry import STOP_VARIABLE, run_unit
from hpcddm.runtime.environment import LAUNCH_VARIABLE
from hpcddm.runtime.stopping import LAUNCHER_VARIABLE
from hpcddm.site import Resources, Site

NO_LIMIT_MINUTES = 60 * 24 * 365


class DetachedExecutor(submitit.LocalExecutor):
    """submitit's local executor, with jobs in a session of their own: Ctrl-C reaches the launcher alone."""

    def __init__(self, folder: Path, resources: Resources, code: Snapshot | Checkout, gpus: list[str] | None) -> None:
        super().__init__(folder)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        """Process between this one and the ranks, by job id."""
        self._code = code
        self._ranks = resources.ranks
        self._threads = resources.cpus_per_rank
        # None leaves to torch what it sees: nobody counts GPUs that nobody knows of.
        self._gpus = {} if gpus is None else {VISIBLE_VARIABLE: ",".join(gpus)}

    def _submit_command(self, command: str) -> LocalJob:
        threads = str(self._threads)
        environment = clean_environment() | {
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_NTASKS": str(self._ranks),
            "SUBMITIT_LOCAL_COMMAND": command,
            "SUBMITIT_LOCAL_TIMEOUT_S": str(60 * NO_LIMIT_MINUTES),
            "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "30",
            "SUBMITIT_LOCAL_NODEID": "0",
            "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
            "SUBMITIT_STDERR_TO_STDOUT": "1",
            "SUBMITIT_LOCAL_WITH_SHELL": "",
            LAUNCH_VARIABLE: uuid.uuid4().hex[:12],
            LAUNCHER_VARIABLE: str(os.getpid()),
            STOP_VARIABLE: str(self.folder / "never.stop"),
            "PYTHONPATH": python_path(self._code.folder, os.environ.get("PYTHONPATH")),
            rooms.VARIABLE: self._code.variants,
            # Compiled code beside the code would be run unseen in its place.
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            **self._gpus,
        }
        controller = [*PYTHON, "-m", "hpcddm.launch.controller", str(self.folder)]
        process = subprocess.Popen(controller, env=environment, start_new_session=True, stdin=subprocess.DEVNULL)
        self.processes[str(process.pid)] = process
        return LocalJob(self.folder, str(process.pid), tasks=list(range(self._ranks)), process=process)

    @property
    def _submitit_command_str(self) -> str:
        return shlex.join([*PYTHON, "-u", "-m", "submitit.core._submit", str(self.folder)])


class Local(DirectLauncher):
    """Launcher of this machine."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self.cores = site.cores or len(os.sched_getaffinity(0))
        self.gpus = GpuPool(site)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when a unit needs more GPUs than there are; with fewer cores it only takes longer."""
        for array in arrays:
            self.gpus.needed(_stage(array), array.resources)

    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Start one unit, all its ranks on this machine."""
        (spec,) = array.specs
        self.code.make()
        self.run.jobs.mkdir(parents=True, exist_ok=True)
        gpus = None
        if self.gpus.names is not None:
            needed = self.gpus.needed(_stage(array), array.resources)
            gpus = self.gpus.free(filter(self.is_running, self._processes))[:needed]
        executor = DetachedExecutor(self.run.jobs.resolve(), array.resources, self.code, gpus)
        job = executor.submit(partial(run_unit, str(spec.resolve())))
        self.gpus.hold(job.job_id, gpus or [])
        self._processes |= executor.processes
        return JobId(job.job_id)

    def is_running(self, job: str) -> bool:
        """Tell if the processes of a job that this launcher started still run."""
        return job in self._processes and self._processes[job].poll() is None

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Return the units whose processes, started by this launcher, still run."""
        return {
            submission.units[0]: Job(submission.job, "running")
            for submission in submissions
            if submission.job and self.is_running(submission.job)
        }

    def dismiss(self, *jobs: JobId) -> None:
        """Signal units to save and exit."""
        for job in jobs:
            self._signal(job, signal.SIGTERM)

    def cancel(self, *jobs: JobId) -> None:
        """Signal units to save and exit; nothing ends them before they have."""
        self.dismiss(*jobs)

    def kill(self, job: str) -> None:
        """End a unit's whole process group at once."""
        self._signal(job, signal.SIGKILL)

    def _signal(self, job: str, number: signal.Signals) -> None:
        try:
            if number is signal.SIGKILL:
                os.killpg(int(job), number)
            else:
                os.kill(int(job), number)
        except ProcessLookupError:
            pass


def _stage(array: ArraySpec) -> str:
    """Return the stage of an array; in a sweep the setting's folder stands before it."""
    return array.keys[0].split("/")[-2]


def create(site: Site, run: RunDir) -> DirectLauncher:
    """Create the launcher of a site."""
    return Local(site, run)
