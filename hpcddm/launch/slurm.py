"""Slurm: one array per shape, rendered from the readable template in slurm/, carried by submitit."""

import os
import shlex
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import jinja2
import submitit
from submitit.core.utils import DelayedSubmission, JobPaths

from hpcddm.config import Site
from hpcddm.errors import UserError
from hpcddm.launch.base import ArraySpec, Job, Launcher, clean_environment
from hpcddm.rundir import atomic
from hpcddm.rundir.journal import Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.entry import run_unit
from hpcddm.share import share_file

TEMPLATE = "slurm/job.sbatch.j2"
CLIENT_SECONDS = 60
QUEUE_FORMAT = "%F|%K|%T|%r|%N|%j"


def silence() -> str | None:
    """Why no Slurm controller answers here, or None when one does."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        # Slurm's clients would look for it for a minute.
        return f"SLURM_CONF={conf} does not exist"
    try:
        answer = _client("sinfo", "--noheader", seconds=10)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "sinfo gave no answer in 10 s"
    return None if answer.returncode == 0 else answer.stderr.strip() or "sinfo failed"


class TemplateExecutor(submitit.SlurmExecutor):
    """submitit's executor, except that the script is ours and every submission is an array."""

    def __init__(self, folder: Path, script: Path, arguments: list[str]) -> None:
        super().__init__(folder)
        self._script = script
        self._arguments = arguments

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job]:
        pickles = [self.folder / f"{uuid.uuid4().hex}.pkl" for _ in delayed_submissions]
        for delayed, pickle in zip(delayed_submissions, pickles, strict=True):
            delayed.set_timeout(0, 0)
            delayed.dump(pickle)
        array = self._sbatch()
        elements = [f"{array}_{index}" for index in range(len(pickles))]
        for element, pickle in zip(elements, pickles, strict=True):
            JobPaths(self.folder, element).move_temporary_file(pickle, "submitted_pickle")
        return [submitit.SlurmJob(self.folder, element) for element in elements]

    def _sbatch(self) -> str:
        try:
            answer = _client("sbatch", "--parsable", *self._arguments, str(self._script))
        except subprocess.TimeoutExpired:
            raise UserError(
                f"sbatch gave no answer to {self._script} in {CLIENT_SECONDS} s; submit again when Slurm answers:"
                " what it accepted after all is found by its name and not submitted twice"
            ) from None
        if answer.returncode != 0:
            words = answer.stderr.strip() or answer.stdout.strip()
            raise UserError(f"sbatch refused {self._script}: {words}")
        job = answer.stdout.strip().split(";")[0]
        if not job.isdigit():
            raise UserError(f"sbatch said '{answer.stdout.strip()}' and not a job id for {self._script}")
        return job


class Slurm(Launcher):
    """The site's Slurm."""

    def check(self, arrays: list[ArraySpec]) -> None:
        """Raise `UserError` when no controller answers, or when sbatch would refuse one of these shapes."""
        why = silence()
        if why:
            raise UserError(f"site {self.site.name}: no Slurm answers here ({why}); submit from a login node")
        for array in {array.resources: array for array in arrays}.values():
            answer = _client("sbatch", "--test-only", script=self._text(array))
            if answer.returncode != 0:
                words = " ".join((answer.stderr.strip() or answer.stdout.strip()).split())
                raise UserError(f"site {self.site.name}: sbatch would refuse {array.name}: {words}")

    def render(self, array: ArraySpec, script: str) -> Path:
        """Write the batch script of an array into the run; a dry run writes the same bytes.

        Raises `UserError` naming the template when it has a mistake.
        """
        path = self.run.scripts / script
        atomic.write_text(path, self._text(array))
        return path

    def _text(self, array: ArraySpec) -> str:
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters["quote"] = lambda value: shlex.quote(str(value))
        source = share_file(TEMPLATE)
        root, jobs = self.run.root.resolve(), str(self.run.jobs.resolve())
        try:
            text = environment.from_string(source.read_text()).render(
                array=array,
                site=self.site.model_dump(),
                resources=array.resources.model_dump(),
                run=root,
                jobs=jobs,
                python=sys.executable,
            )
        except jinja2.TemplateError as error:
            line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise UserError(f"{source}{line}: {error.message}") from None
        return text + "\n"

    def submit(self, array: ArraySpec, token: str, script: str) -> str:
        """Submit through sbatch; the job's name carries the token, so that a lost answer can be looked up."""
        path = self.render(array, script)
        self.run.jobs.mkdir(parents=True, exist_ok=True)
        arguments = [f"--job-name={array.name}-{token}"]
        if array.after:
            arguments.append(f"--dependency=afterany:{':'.join(array.after)}")
        executor = TemplateExecutor(self.run.jobs.resolve(), path, arguments)
        jobs = executor.submit_array([partial(run_unit, str(spec.resolve())) for spec in array.specs])
        return jobs[0].job_id.split("_")[0]

    def states(self, submissions: list[Submission]) -> dict[str, Job] | None:
        """One squeue call; the token in a job's name tells ours, for ids are used again and by other clusters too."""
        try:
            answer = _client("squeue", "--noheader", "--array", f"--user={os.getuid()}", f"--format={QUEUE_FORMAT}")
        except (OSError, subprocess.TimeoutExpired):
            return None
        if answer.returncode != 0:
            return None
        units = {one.uuid: one.units for one in submissions}
        found = {}
        for line in answer.stdout.splitlines():
            job, element, state, reason, nodes, name = line.split("|", 5)
            token = name.rsplit("-", 1)[-1]
            if token in units and element.isdigit():
                found[units[token][int(element)]] = Job(f"{job}_{element}", state.lower(), nodes or reason)
        return found

    def cancel(self, job: str) -> None:
        """scancel the job."""
        _client("scancel", job)


def create(site: Site, run: RunDir) -> Launcher:
    """The launcher of a site."""
    return Slurm(site, run)


def _client(
    *command: str, seconds: float = CLIENT_SECONDS, script: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=script,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=seconds,
        check=False,
    )
