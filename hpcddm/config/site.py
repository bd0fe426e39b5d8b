"""The schema of a site: one cluster, or this machine, and the resources of each stage."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.mistakes import KeysOf
from hpcddm.config.sbatch_flags import SRUN, complaint, sbatch_complaint
from hpcddm.config.schema import JOB_VARIABLE, CommandWord, Name, Positive, StrictModel, Word

MailEvent = Literal["BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "TIME_LIMIT"]


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError("flag", "{text}", {"text": text})


def _sbatch_line(line: str) -> str:
    if text := sbatch_complaint(line):
        raise _refused(text)
    return line


def _srun_words(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if text := complaint(arguments, SRUN):
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
    """Keys that a site gives for everything, or for one stage or unit; docs/sites.md explains each."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    reservation: Word | None = None
    exclude: Word | None = None
    """Nodes that are not to be taken, for instance 'n[3-5],n9'."""
    cluster: Name | None = None
    """Name of the cluster, where one Slurm database serves several; by default that of SLURM_CONF."""
    gpu_type: Word | None = None
    extra_sbatch: tuple[Annotated[str, AfterValidator(_sbatch_line)], ...] | None = None
    """Further #SBATCH lines, for instance '--exclusive'."""
    setup: tuple[str, ...] | None = None
    """Shell lines before Python starts, for instance 'module load python'."""
    container: Annotated[tuple[CommandWord, ...], AfterValidator(_starts_program)] | None = None
    """Command before Python in a job, for instance ['apptainer', 'exec', '--nv', '--bind=$SCRATCH', 'image.sif']."""
    python: Annotated[CommandWord, AfterValidator(_program)] | None = None
    """Interpreter of the jobs; by default the interpreter of the submission, also within a container."""
    srun_args: Annotated[tuple[CommandWord, ...], AfterValidator(_srun_words)] | None = None
    """Further words for srun, for instance '--mpi=pmix'."""
    cpu_bind: Word | None = None
    """Binding of ranks to cores by srun; by default 'none'."""


SMALL = {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": 1, "gpus_per_node": 0, "memory_gb": 2}
"""Resources of the job that continues a submission, unless the site's `stages` have an entry for it."""


class Resources(UnitKeys):
    """Resources that one unit requests; units with the same resources can be one array."""

    nodes: Positive = 1
    ranks_per_node: Positive = 1
    cpus_per_rank: Positive = 1
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    memory_gb: Positive = 4
    minutes: Positive = 60
    zero_stage: Literal[0, 1, 2, 3] = 1
    """Stage of DeepSpeed's ZeRO: what of a training is split among its ranks, from nothing to everything."""
    micro_batch: Positive | None = None
    """Largest number of images that a rank sends through a network at once; by default its whole share of a batch."""
    checkpoint_blocks: Annotated[int, Field(ge=0)] = 0
    """Every so many-th block of a network recomputes its activations in the backward pass: 1 all of them, 0 none."""
    compile_blocks: bool = False
    """True to compile the blocks of a network with `torch.compile` when its training starts."""
    agree_every: Positive = 16
    """Most steps between two agreements of a training's ranks on stops and saves; fewer where they last a second."""

    @model_validator(mode="after")
    def _can_compile(self) -> "Resources":
        if self.compile_blocks and self.zero_stage == 3:
            text = "compile_blocks: true needs zero_stage: 0, 1 or 2; in 3 weights come and go within a block"
            raise PydanticCustomError("inner", "{text}", {"text": text})
        return self

    @property
    def ranks(self) -> int:
        """World size of the unit."""
        return self.nodes * self.ranks_per_node

    @property
    def for_job(self) -> dict[str, int | bool | None]:
        """Values that a job reads again, without the keys by which it was submitted."""
        return self.model_dump(exclude=set(UnitKeys.model_fields))


def _unit_keys(changes: Any) -> Any:
    """Validate the keys that a stage or a unit changes, one by one."""
    if isinstance(changes, dict):
        Resources.model_validate(changes)
    return changes


StageKeys = Annotated[dict[str, bool | int | str | list[str]], BeforeValidator(_unit_keys), KeysOf(Resources)]


class Site(UnitKeys):
    """One cluster, or this machine: its scheduler, its keys, and the resources of each stage."""

    name: Name
    scheduler: Literal["slurm", "local"]
    cores: Positive | None = None
    """Embedded only: cores to fill with units; by default all that this process may use."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """Embedded only: GPUs to fill with units; by default all that this process may use."""
    allow_idle_gpus: bool = False
    """True to allow GPUs that no rank uses, for partitions that start no job without GPUs."""
    gpus_flag: Literal["gpus_per_node", "gres"] = "gpus_per_node"
    memory_flag: Literal["total", "per_cpu", "all", "none"] = "total"
    scratch: Annotated[str, AfterValidator(_scratch)] | None = None
    """A folder on a disk of the node, for caches; may name variables of the job, for instance '$TMPDIR'."""
    network_interface: str | None = None
    signal_lead_seconds: Positive = 120
    """Seconds before its time limit at which a job saves and leaves."""
    requeue: Literal["scontrol", "resubmit", "none"] = "scontrol"
    """Way back of a job that has to leave: requeued, submitted anew by itself, or by the user."""
    escalate: dict[Literal["memory_gb", "minutes"], Annotated[float, Field(gt=1, le=10)]] = {}
    """Factors by which the next attempt requests more memory when there was too little, or more minutes when a slot was
    too short for any progress; never more than its partition has."""
    max_excluded_nodes: Annotated[int, Field(ge=0)] = 4
    """Number of nodes, the newest ones, that jobs avoid because earlier jobs or attempts ended there by their fault."""
    watchdog_minutes: Positive = 20
    """Minutes without a step after which a training is ended and tried again."""
    keep_states: bool = True
    """True to keep the last state of a finished training, so that more images continue it."""
    recheck_seconds: Positive = 300
    """Longest time between two checks of a unit for inputs from another cluster."""
    has_sacct: bool = True
    max_parallel: Positive = 256
    max_submitted: Positive | None = None
    """Number of jobs that this user may have in the queue; by default Slurm's limit."""
    continue_submission: bool = True
    """True where a last small job submits what the limit on jobs left out, when there is room."""
    mail: Word | None = None
    mail_events: list[MailEvent] = ["END", "FAIL", "INVALID_DEPEND"]
    hook: str | None = None
    """A shell command at the end of the run, and when a unit stops with a reason, with the event in HPCDDM_EVENT."""
    resources: Resources = Resources()
    stages: dict[str, StageKeys] = {}
    """Keys that differ from `resources` and from the keys above, per stage or per unit, as 'train/monolith'."""
    _shapes: dict[str, Resources] = PrivateAttr(default_factory=dict)
    """Cache of resources by the most specific entry of `stages`: a sweep needs them thousands of times."""

    @model_validator(mode="after")
    def _stage_resources(self) -> "Site":
        for key in self.stages:
            self.resources_for(*key.partition("/")[::2])
        if self.clusters and self.cluster is None and self.resources.cluster is None:
            text = (
                f"cluster: needed here, too, since stages name {', '.join(self.clusters)}: jobs of several clusters ask"
                " each other's queues by name ('scontrol show config | grep ClusterName' tells that of this one)"
            )
            raise PydanticCustomError("inner", "{text}", {"text": text})
        return self

    @property
    def clusters(self) -> list[str]:
        """Names of the clusters that units of this site go to; empty where none is named."""
        shapes = [self.resources_for("", ""), *(self.resources_for(*key.partition("/")[::2]) for key in self.stages)]
        return [cluster for cluster in dict.fromkeys(shape.cluster for shape in shapes) if cluster]

    def resources_for(self, stage: str, unit: str = "") -> Resources:
        """Return the resources of a unit: the site's default, changed by its stage's entry, then by its own."""
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
            # Every key by itself is right by now.
            context = {"text": f"stages.{stage}.{error.errors()[0]['msg']}"}
            raise PydanticCustomError("inner", "{text}", context) from None
