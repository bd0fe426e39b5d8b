"""Schema of a site: one or several clusters, or this machine, and the resources of each stage."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.job_resources import JobResources
from hpcddm.config.sbatch_flags import SRUN, refusal_reason, sbatch_refusal_reason
from hpcddm.config.schema import JOB_VARIABLE, CommandWord, Name, Positive, StrictModel, Word, inner_error
from hpcddm.config.validation_errors import KeysOfSchema

MailEvent = Literal["BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "TIME_LIMIT"]


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError("flag", "{text}", {"text": text})


def _sbatch_line(line: str) -> str:
    if text := sbatch_refusal_reason(line):
        raise _refused(text)
    return line


def _srun_words(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if text := refusal_reason(arguments, SRUN):
        raise _refused(text)
    return arguments


def _program(word: str) -> str:
    if not re.fullmatch(r"[/$].*|[^-/][^/]*", word):
        place = "a path that begins with / or a variable: a job starts in the run's folder"
        raise _refused(f"needs the name of a program, or {place}")
    return word


def _scratch(path: str) -> str:
    if not re.fullmatch(rf"(/|{JOB_VARIABLE})([^\x00-\x1f\x7f'\"`$\\]|{JOB_VARIABLE})*", path):
        place = "a path that begins with / or a variable of the job, such as $TMPDIR"
        raise _refused(f"needs {place}, without quotes, backslashes and commands of the shell")
    return path


def _starts_program(words: tuple[str, ...]) -> tuple[str, ...]:
    return (_program(words[0]), *words[1:]) if words else words


class UnitKeys(StrictModel):
    """Keys that a site sets for all units, or for one stage or unit; docs/sites.md explains each key."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    reservation: Word | None = None
    exclude: Word | None = None
    """Nodes to exclude, such as 'n[3-5],n9'."""
    cluster: Name | None = None
    """Name of the cluster, if one Slurm database serves several clusters; by default the cluster of SLURM_CONF."""
    gpu_type: Word | None = None
    extra_sbatch: tuple[Annotated[str, AfterValidator(_sbatch_line)], ...] | None = None
    """Further #SBATCH options, such as '--exclusive'."""
    setup: tuple[str, ...] | None = None
    """Shell lines that run before Python, such as 'module load python'."""
    container: Annotated[tuple[CommandWord, ...], AfterValidator(_starts_program)] | None = None
    """Command before Python in a job, such as ['apptainer', 'exec', '--nv', '--bind=$SCRATCH', 'image.sif']."""
    python: Annotated[CommandWord, AfterValidator(_program)] | None = None
    """Python interpreter of the jobs; by default the interpreter of the submission, also in a container."""
    srun_args: Annotated[tuple[CommandWord, ...], AfterValidator(_srun_words)] | None = None
    """Further options of srun, such as '--mpi=pmix'."""
    cpu_bind: Word | None = None
    """Binding of ranks to cores by srun; by default 'none'."""


SMALL = {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": 1, "gpus_per_node": 0, "memory_gb": 2}
"""Resources of the job that continues a submission, unless the site's `stages` set them."""


class Resources(JobResources, UnitKeys):
    """Resources that one unit requests; units with equal resources can share an array."""

    @property
    def for_job(self) -> dict[str, int | bool | str | None]:
        """Values that a job reads, without the keys that only its submission uses."""
        return self.model_dump(include=set(JobResources.model_fields))


def _unit_keys(changes: Any) -> Any:
    """Validate the keys that a stage or a unit changes, one by one."""
    if isinstance(changes, dict):
        Resources.model_validate(changes)
    return changes


StageKeys = Annotated[dict[str, bool | int | str | list[str]], BeforeValidator(_unit_keys), KeysOfSchema(Resources)]


class Site(UnitKeys):
    """Site where units run: its scheduler, its keys, and the resources of each stage.

    Examples:
        >>> site = Site(name="site_a", scheduler="slurm", stages={"train": {"nodes": 2, "ranks_per_node": 4}})
        >>> site.resources_for("train", "expert-00").ranks, site.resources_for("catalog", "all").ranks
        (8, 1)
    """

    name: Name
    scheduler: Literal["slurm", "local"]
    cores: Positive | None = None
    """Number of cores that units may fill, for scheduler `local` only; by default all cores of this process."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """Number of GPUs that units may fill, for scheduler `local` only; by default all GPUs of this process."""
    allow_idle_gpus: bool = False
    """True to allow requests of unused GPUs, for partitions that only accept jobs with GPUs."""
    gpus_flag: Literal["gpus_per_node", "gres"] = "gpus_per_node"
    memory_flag: Literal["total", "per_cpu", "all", "none"] = "total"
    scratch: Annotated[str, AfterValidator(_scratch)] | None = None
    """Folder on a disk of the node, for caches; may contain variables of the job, such as '$TMPDIR'."""
    network_interface: str | None = None
    """Network interface between the nodes of a unit; by default the one of the host name."""
    signal_lead_seconds: Positive = 120
    """Seconds before the time limit at which a job saves and exits."""
    requeue: Literal["scontrol", "resubmit", "none"] = "scontrol"
    """Restart of an interrupted job: Slurm requeues it, it submits itself again, or the user resubmits it."""
    raise_on_retry: dict[Literal["memory_gb", "minutes"], Annotated[float, Field(gt=1, le=10)]] = {}
    """Factors by which the next attempt raises memory after running out of it, or minutes after a time limit too short
    for progress; never above the limits of the partition."""
    max_excluded_nodes: Annotated[int, Field(ge=0)] = 4
    """Maximum number of recently faulty nodes that new jobs exclude."""
    watchdog_minutes: Positive = 20
    """Minutes without a step after which a training is ended and tried again."""
    keep_states: bool = True
    """True to keep the last state of a finished training, from which a longer training could continue."""
    recheck_seconds: Positive = 300
    """Maximum seconds between two checks of a unit for inputs from another cluster."""
    has_sacct: bool = True
    """True if the site's accounting can be queried with sacct."""
    max_parallel: Positive = 256
    """Maximum number of elements of an array that run at the same time."""
    max_submitted: Positive | None = None
    """Maximum number of this user's jobs in the queue; by default Slurm's limit."""
    continue_submission: bool = True
    """True to submit units beyond the limit on jobs by a small last job, as soon as the queue has room."""
    mail: Word | None = None
    mail_events: list[MailEvent] = ["END", "FAIL", "INVALID_DEPEND"]
    hook: str | None = None
    """Shell command that runs when the run is complete or a unit needs the user; HPCDDM_EVENT tells which."""
    resources: Resources = Resources()
    """Default resources of a unit."""
    stages: dict[str, StageKeys] = {}
    """Keys that differ for single stages or units, such as 'train' or 'train/monolith'."""
    _shapes: dict[str, Resources] = PrivateAttr(default_factory=dict)
    """Cache of resources, because a sweep needs them thousands of times."""

    @model_validator(mode="after")
    def _stage_resources(self) -> "Site":
        for key in self.stages:
            self.resources_for(*key.partition("/")[::2])
        if self.clusters and self.cluster is None and self.resources.cluster is None:
            raise inner_error(
                f"cluster: needed here, too, since stages name {', '.join(self.clusters)}: jobs of several clusters ask"
                " each other's queues by name ('scontrol show config | grep ClusterName' tells that of this one)"
            )
        return self

    @property
    def clusters(self) -> list[str]:
        """Names of the clusters on which the site's units run; empty if the site names none."""
        shapes = [self.resources_for("", ""), *(self.resources_for(*key.partition("/")[::2]) for key in self.stages)]
        return [cluster for cluster in dict.fromkeys(shape.cluster for shape in shapes) if cluster]

    def resources_for(self, stage: str, unit: str = "") -> Resources:
        """Return the resources of a unit: the site's defaults, changed by the entries of its stage and of the unit.

        Args:
            stage: Name of the stage.
            unit: Name of the unit within the stage; '' for the usual units.
        """
        key = f"{stage}/{unit}"
        place = key if key in self.stages else stage
        if place not in self._shapes:
            self._shapes[place] = self._combined(stage, self.stages.get(stage, {}) | self.stages.get(key, {}))
        return self._shapes[place]

    def _combined(self, stage: str, changes: dict[str, bool | int | str | list[str]]) -> Resources:
        values = {name: getattr(self, name) for name in UnitKeys.model_fields}
        values |= self.resources.model_dump(exclude_none=True)
        values |= SMALL if stage == "submission" else {}
        try:
            return Resources.model_validate(values | changes)
        except ValidationError as error:
            # Each key has been validated by itself before.
            raise inner_error(f"stages.{stage}.{error.errors()[0]['msg']}") from None
