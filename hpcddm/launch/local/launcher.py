"""Launcher for this machine: submitit's local controller, with the same specs, manifests and logs as under Slurm."""

import os
import shlex
import signal
import uuid
from contextlib import suppress
from pathlib import Path

from hpcddm.config import variants
from hpcddm.config.site import Resources, Site
from hpcddm.files import guarded_writes
from hpcddm.jobs.entry import STOP_VARIABLE
from hpcddm.jobs.job_environment import LAUNCH_VARIABLE
from hpcddm.jobs.stopping import LAUNCHER_VARIABLE
from hpcddm.launch.base import ArraySpec, DirectLauncher, Job, clean_environment, python_path
from hpcddm.launch.code_copy import CodeCopy
from hpcddm.launch.local.fork_server import ForkServer
from hpcddm.launch.local.machine_gpus import VISIBLE_VARIABLE, GpuPool
from hpcddm.pipeline.state import State
from hpcddm.runs import state_seals
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import key_in_run

NO_LIMIT_MINUTES = 60 * 24 * 365
ENTRY = "hpcddm.jobs.entry"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _server_environment(code: CodeCopy, threads: int) -> dict[str, str]:
    """Return the environment of the processes that run a code with a number of threads each."""
    return clean_environment() | {
        "PYTHONPATH": python_path(code.folder, os.environ.get("PYTHONPATH")),
        # The snapshot holds the user's own variants among the package's files.
        variants.VARIANTS_VARIABLE: "",
        # Python would run compiled code in the folder instead of the submitted code.
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(THREADS, str(threads)),
    }


def _unit_variables(jobs: Path, command: list[str], num_ranks: int, gpus: list[str] | None) -> dict[str, str]:
    """Return the variables of submitit's controller and of the ranks.

    submitit's executor is not used, because its ranks would open a pickle whose name other users can predict.

    Args:
        jobs: Folder for the ranks' first outputs.
        command: Module that the ranks run, and the arguments of its function `run_unit`.
        num_ranks: Number of ranks.
        gpus: GPUs visible to the ranks; None, if the GPUs are unknown, leaves the choice to torch.
    """
    return {
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_NTASKS": str(num_ranks),
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
        **({} if gpus is None else {VISIBLE_VARIABLE: ",".join(gpus)}),
    }


class LocalLauncher(DirectLauncher):
    """Launcher for this machine."""

    def __init__(self, site: Site, run: RunDir) -> None:
        super().__init__(site, run)
        self.cores = site.cores or len(os.sched_getaffinity(0))
        self.gpus = GpuPool(site)
        self._servers: dict[int, ForkServer] = {}
        """By the number of threads, which libraries read when they are imported."""
        self._jobs: dict[str, ForkServer] = {}

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` if a unit needs more GPUs than this machine has; with fewer cores it only takes longer."""
        for array in arrays:
            self.gpus.needed(key_in_run(array.keys[0]), array.resources)

    def submit(self, array: ArraySpec, token: str, script: str) -> JobId:
        """Start one unit, all its ranks on this machine."""
        (spec,) = array.specs
        self.code.make()
        guarded_writes.make_folder(self.run.jobs)
        gpus = None
        if self.gpus.device_ids is not None:
            needed = self.gpus.needed(key_in_run(array.keys[0]), array.resources)
            gpus = self.gpus.free(filter(self.is_running, self._jobs))[:needed]
        process = self.start_ranks([ENTRY, str(spec.resolve())], array.resources, gpus)
        self.gpus.hold(process, gpus or [])
        return process

    def start_ranks(self, command: list[str], resources: Resources, gpus: list[str] | None) -> JobId:
        """Start the ranks of a unit in a session that Ctrl-C does not reach.

        Args:
            command: Module that the ranks run, and the arguments of its function `run_unit`.
            resources: Resources that the unit requests.
            gpus: GPUs visible to the ranks; None leaves the choice to torch.

        Returns:
            Process id of their controller.
        """
        threads, jobs = resources.cpus_per_rank, self.run.jobs.resolve()
        if threads not in self._servers:
            self._servers[threads] = ForkServer(_server_environment(self.code, threads))
        server = self._servers[threads]
        variables = _unit_variables(jobs, command, resources.ranks, gpus) | state_seals.job_variables(self.run)
        job = JobId(server.start(jobs, variables))
        self._jobs[job] = server
        return job

    def is_running(self, job: str) -> bool:
        """Return True if processes of a job that this launcher started still run."""
        return job in self._jobs and self._jobs[job].is_running(int(job))

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """Return the jobs that this launcher started and that still run, by unit."""
        return {
            one.units[0]: Job(one.job, State.RUNNING) for one in submissions if one.job and self.is_running(one.job)
        }

    def signal_stop(self, *jobs: JobId) -> None:
        """Signal units to save and exit."""
        for job in jobs:
            with suppress(ProcessLookupError):
                os.kill(int(job), signal.SIGTERM)

    def cancel(self, *jobs: JobId) -> None:
        """Signal units to save and exit, without killing them."""
        self.signal_stop(*jobs)

    def kill(self, job: str) -> None:
        """Kill all processes of a unit."""
        with suppress(ProcessLookupError):
            os.killpg(int(job), signal.SIGKILL)


def create(site: Site, run: RunDir) -> DirectLauncher:
    """Create the launcher for a site on this machine."""
    return LocalLauncher(site, run)
