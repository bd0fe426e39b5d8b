"""The embedded site: submitit's local controller, the same specs, manifests and logs as under Slurm."""

import os
import shlex
import signal
import subprocess
import uuid
from pathlib import Path

from hpcddm.config import variant_files
from hpcddm.config.site import Resources, Site
from hpcddm.files import inside
from hpcddm.jobs.entry import STOP_VARIABLE
from hpcddm.jobs.environment import LAUNCH_VARIABLE
from hpcddm.jobs.stopping import LAUNCHER_VARIABLE
from hpcddm.launch.base import PYTHON, ArraySpec, DirectLauncher, Job, clean_environment, python_path
from hpcddm.launch.code_copy import Checkout, Snapshot
from hpcddm.launch.local.machine_gpus import VISIBLE_VARIABLE, GpuPool
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.layout import RunDir

NO_LIMIT_MINUTES = 60 * 24 * 365


def start(
    jobs: Path, command: list[str], resources: Resources, code: Snapshot | Checkout, gpus: list[str] | None
) -> subprocess.Popen[bytes]:
    """Start all ranks of a unit under submitit's controller, in a session of their own: Ctrl-C reaches this one alone.

    submitit's executor would leave a pickle, which the ranks open, under a name that others know before.

    Args:
        jobs: Folder of the ranks' first outputs, which exists.
        command: Words of a rank's command.
        resources: What the unit requests.
        code: Code that the ranks run.
        gpus: GPUs that they see; None leaves to torch what it sees: nobody counts GPUs that nobody knows of.
    """
    threads = str(resources.cpus_per_rank)
    environment = clean_environment() | {
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_NTASKS": str(resources.ranks),
        "SUBMITIT_LOCAL_COMMAND": shlex.join(command),
        "SUBMITIT_LOCAL_TIMEOUT_S": str(60 * NO_LIMIT_MINUTES),
        "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "30",
        "SUBMITIT_LOCAL_NODEID": "0",
        "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
        "SUBMITIT_STDERR_TO_STDOUT": "1",
        "SUBMITIT_LOCAL_WITH_SHELL": "",
        LAUNCH_VARIABLE: uuid.uuid4().hex[:12],
        LAUNCHER_VARIABLE: str(os.getpid()),
        STOP_VARIABLE: str(jobs / "never.stop"),
        "PYTHONPATH": python_path(code.folder, os.environ.get("PYTHONPATH")),
        variant_files.VARIABLE: code.variants,
        # Compiled code beside the code would be run unseen in its place.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        **({} if gpus is None else {VISIBLE_VARIABLE: ",".join(gpus)}),
    }
    controller = [*PYTHON, "-m", "hpcddm.launch.local.controller", str(jobs)]
    return subprocess.Popen(controller, env=environment, start_new_session=True, stdin=subprocess.DEVNULL)


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
        inside.make(self.run.jobs)
        gpus = None
        if self.gpus.names is not None:
            needed = self.gpus.needed(_stage(array), array.resources)
            gpus = self.gpus.free(filter(self.is_running, self._processes))[:needed]
        command = [*PYTHON, "-u", "-m", "hpcddm.jobs.entry", str(spec.resolve())]
        process = start(self.run.jobs.resolve(), command, array.resources, self.code, gpus)
        job = JobId(process.pid)
        self.gpus.hold(job, gpus or [])
        self._processes[job] = process
        return job

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
