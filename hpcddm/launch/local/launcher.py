"""Launcher for this machine: submitit's local controller, with the same specs, manifests and logs as under Slurm."""

import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from hpcddm.config import variant_files
from hpcddm.config.site import Resources, Site
from hpcddm.files import guarded_writes
from hpcddm.jobs.entry import STOP_VARIABLE
from hpcddm.jobs.job_environment import LAUNCH_VARIABLE
from hpcddm.jobs.stopping import LAUNCHER_VARIABLE
from hpcddm.launch.base import PYTHON, ArraySpec, DirectLauncher, Job, clean_environment, python_path
from hpcddm.launch.code_copy import Checkout, CodeCopy
from hpcddm.launch.local.machine_gpus import VISIBLE_VARIABLE, GpuPool
from hpcddm.pipeline.state import State
from hpcddm.runs import state_seals
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir

NO_LIMIT_MINUTES = 60 * 24 * 365


def start_ranks(
    jobs: Path,
    command: list[str],
    resources: Resources,
    code: CodeCopy | Checkout,
    gpus: list[str] | None,
    variables: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start all ranks of a unit under submitit's controller, in a new session that Ctrl-C does not reach.

    submitit's executor is not used, because its ranks would open a pickle whose name other users can predict.

    Args:
        jobs: Existing folder for the ranks' first outputs.
        command: Words of a rank's command.
        resources: Resources that the unit requests.
        code: Code that the ranks run.
        gpus: GPUs visible to the ranks; None, if the GPUs are unknown, leaves the choice to torch.
        variables: Further variables of their environment.

    Returns:
        The process of the controller.
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
        variant_files.VARIANTS_VARIABLE: code.variants,
        # Python would run compiled code in the folder instead of the submitted code.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        **({} if gpus is None else {VISIBLE_VARIABLE: ",".join(gpus)}),
        **variables,
    }
    controller = [*PYTHON, "-m", "hpcddm.launch.local.controller", str(jobs)]
    return subprocess.Popen(controller, env=environment, start_new_session=True, stdin=subprocess.DEVNULL)


class LocalLauncher(DirectLauncher):
    """Launcher for this machine."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self.cores = site.cores or len(os.sched_getaffinity(0))
        self.gpus = GpuPool(site)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` if a unit needs more GPUs than this machine has; with fewer cores it only takes longer."""
        for array in arrays:
            self.gpus.needed(_key(array), array.resources)

    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Start one unit, all its ranks on this machine."""
        (spec,) = array.specs
        self.code.make()
        guarded_writes.make_folder(self.run.jobs)
        gpus = None
        if self.gpus.device_ids is not None:
            needed = self.gpus.needed(_key(array), array.resources)
            gpus = self.gpus.free(filter(self.is_running, self._processes))[:needed]
        command = [*PYTHON, "-u", "-m", "hpcddm.jobs.entry", str(spec.resolve())]
        variables = state_seals.job_variables(self.run)
        process = start_ranks(self.run.jobs.resolve(), command, array.resources, self.code, gpus, variables)
        job = JobId(process.pid)
        self.gpus.hold(job, gpus or [])
        self._processes[job] = process
        return job

    def is_running(self, job: str) -> bool:
        """Return True if processes of a job that this launcher started still run."""
        return job in self._processes and self._processes[job].poll() is None

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Return the jobs that this launcher started and that still run, by unit."""
        return {
            submission.units[0]: Job(submission.job, State.RUNNING)
            for submission in submissions
            if submission.job and self.is_running(submission.job)
        }

    def signal_stop(self, *jobs: JobId) -> None:
        """Signal units to save and exit."""
        for job in jobs:
            self._signal(job, signal.SIGTERM)

    def cancel(self, *jobs: JobId) -> None:
        """Signal units to save and exit, without killing them."""
        self.signal_stop(*jobs)

    def kill(self, job: str) -> None:
        """Kill all processes of a unit."""
        self._signal(job, signal.SIGKILL)

    def _signal(self, job: str, number: signal.Signals) -> None:
        try:
            if number is signal.SIGKILL:
                os.killpg(int(job), number)
            else:
                os.kill(int(job), number)
        except ProcessLookupError:
            pass


def _key(array: ArraySpec) -> str:
    """Return the key of an array's first unit, without the setting's folder in a sweep."""
    return "/".join(array.keys[0].split("/")[-2:])


def create(site: Site, run: RunDir) -> DirectLauncher:
    """Create the launcher for a site on this machine."""
    return LocalLauncher(site, run)
