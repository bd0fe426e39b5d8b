"""Draft of a site's file from the outputs of Slurm's commands, every key with its source."""

import re
from collections import Counter
from dataclasses import dataclass, field

from hpcddm.errors import ConfigError
from hpcddm.errors.next_step import command
from hpcddm.jobs.resource_requests import parse_minutes
from hpcddm.launch.checks.gpu_requests import all_resource_keys
from hpcddm.loading.run_defaults import flow_text
from hpcddm.pipeline.stage import GpuUse
from hpcddm.pipeline.unit_graph import usable_gpus

DAY = 1440
SHARE_OF_MEMORY = 0.9
"""Share of a node's memory that is requested: some of it is the system's."""
COMMENT_COLUMN = 44
GPUS = re.compile(r"(?:^|,)gpu:(?:([^:,(]+):)?([0-9]+)")
"""GPUs in GRES words such as 'gpu:a100:4(S:0-1),nvme:1'."""
SLICE = re.compile(r"[0-9]+g[._-]?[0-9]+gb", re.IGNORECASE)
"""Part of the type of a slice of a GPU, such as h100_1g.10gb."""


@dataclass(frozen=True)
class SlurmOutputs:
    """Outputs of Slurm's commands; empty where a command failed."""

    config: str
    """`scontrol show config`."""
    partitions: str
    """`scontrol --oneliner show partition`."""
    nodes: str
    """`sinfo -h -e -o '%R|%D|%c|%m|%G'`: partition, number of nodes, CPUs, MB, GRES."""
    associations: str = ""
    """`sacctmgr -n -P show assoc ... format=Account,QOS,MaxSubmit`."""
    has_sacct: bool = False
    memory_refusal: str = ""
    """Error of sbatch about --mem; empty where it takes the flag."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces of the login node."""


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one kind."""

    count: int
    cpus: int
    memory_gb: int
    gpu_type: str | None
    gpus: int
    others: dict[str, int] = field(default_factory=dict)
    """Numbers of GPUs, or slices of them, of the other types."""

    @property
    def is_sliced(self) -> bool:
        """True if the GPUs are slices; ranks on slices of one GPU cannot use NCCL together."""
        return bool(SLICE.search(self.gpu_type or ""))

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPUs{f' {self.gpu_type}' if self.gpu_type else ''}" if self.gpus else ""
        also = ", ".join(f"{number} {name}" for name, number in self.others.items())
        return f"{self.count} nodes of {self.cpus} CPUs, {self.memory_gb} GB{gpus}{f'; also {also}' if also else ''}"


class SiteDraft:
    """Draft of one site's file."""

    def __init__(self, answers: SlurmOutputs, partition: str | None) -> None:
        self._answers = answers
        self._config = _pairs(answers.config)
        self._partitions = {
            values["PartitionName"]: values for values in map(_words, answers.partitions.splitlines()) if values
        }
        self._nodes = {name: _nodes(answers.nodes, name) for name in self._partitions}
        self._name, self._why = self._choose(partition)
        # The usual node, with whole GPUs if there are any.
        self._node = max(
            self._nodes[self._name],
            key=lambda kind: (kind.gpus > 0, not kind.is_sliced, kind.count),
            default=NodeKind(1, 1, 4, None, 0),
        )
        self._partition = self._partitions[self._name]
        self._lines: list[str] = []

    @property
    def cluster(self) -> str:
        """Name of the cluster, without characters that a site's name cannot have."""
        return re.sub(r"[^A-Za-z0-9_.-]", "-", self._config.get("ClusterName", "")).strip("-._") or "cluster"

    def text(self, name: str) -> str:
        """Return the whole file."""
        version = self._config.get("SLURM_VERSION", "of unknown version")
        self._lines = [
            f"# Drafted by 'hpcddm site init' from the configuration of cluster {self.cluster} (Slurm {version}).",
            f"# Check every line, then try it: {command('hpcddm', 'selftest', '--site', name)}",
            "# Partitions:",
            *(f"#   {self._describe(partition)}" for partition in self._partitions),
        ]
        self._set("name", name)
        self._set("scheduler", "slurm")
        self._set("partition", self._name, self._why)
        self._set_account()
        self._set_gpus_and_memory()
        self._set_node_keys()
        self._set_requeue()
        self._set_limits()
        self._set_shapes()
        return "\n".join(self._lines) + "\n"

    def _choose(self, partition: str | None) -> tuple[str, str]:
        if not self._partitions:
            raise ConfigError("scontrol show partition names no partition; try on a login node of the cluster")
        if partition is not None:
            if partition not in self._partitions:
                raise ConfigError(f"--partition {partition}: no such partition; valid: {', '.join(self._partitions)}")
            return partition, "from --partition"
        for name, values in self._partitions.items():
            if values.get("Default") == "YES":
                return name, "scontrol show partition: Default=YES"
        return next(iter(self._partitions)), "the first one; the cluster has no default: choose"

    def _describe(self, name: str) -> str:
        values = self._partitions[name]
        star = "*" if values.get("Default") == "YES" else ""
        state = "" if values.get("State", "UP") == "UP" else f", {values['State']}"
        kinds = "; ".join(map(str, self._nodes[name])) or f"{values.get('TotalNodes', '?')} nodes"
        return f"{name}{star}: up to {values.get('MaxTime', '?')}{state}, {kinds}"

    def _set_account(self) -> None:
        rows = [(line.split("|") + [""] * 3)[:3] for line in self._answers.associations.splitlines() if line]
        accounts = list(dict.fromkeys(row[0] for row in rows if row[0]))
        qos = list(dict.fromkeys(name for row in rows for name in row[1].split(",") if name))
        enforced = self._config.get("AccountingStorageEnforce", "none")
        self._chosen("account", accounts, self._partition.get("AllowAccounts", "ALL"), enforced != "none")
        self._chosen("qos", qos, self._partition.get("AllowQos", "ALL"), False)
        self._max_submitted = next((row[2] for row in rows if row[2].isdecimal()), None)

    def _chosen(self, key: str, available: list[str], allowed: str, is_needed: bool) -> None:
        """Add an account or a QOS: set where the partition or the accounting requires one, else as a comment."""
        valid = available if allowed == "ALL" else [name for name in available if name in allowed.split(",")]
        yours = f"sacctmgr: yours are {', '.join(available)}" if available else "sacctmgr names none for you"
        if allowed != "ALL":
            yours += f"; the partition takes {allowed}"
        if valid and (is_needed or allowed != "ALL"):
            self._set(key, valid[0], yours)
        else:
            self._hint(key, (valid or [f"my-{key}"])[0], yours)

    def _set_gpus_and_memory(self) -> None:
        select = self._config.get("SelectType", "")
        nodes = self._nodes[self._name]
        kinds = sorted({name for kind in nodes for name in (kind.gpu_type, *kind.others) if name})
        if self._node.gpus:
            # --gpus-per-node came with select/cons_tres; the older plugins take --gres only.
            if select.endswith("cons_tres"):
                self._set("gpus_flag", "gpus_per_node", f"SelectType={select}; else: gres")
            else:
                self._set("gpus_flag", "gres", f"SelectType={select} takes no --gpus-per-node")
        if self._node.gpu_type:
            write = self._set if len(kinds) > 1 else self._hint
            sliced = any(SLICE.search(name) for name in kinds) and not self._node.is_sliced
            write("gpu_type", self._node.gpu_type, f"sinfo: {', '.join(kinds)}{'; slices are left out' * sliced}")
        parameters = self._config.get("SelectTypeParameters", "")
        if self._answers.memory_refusal:
            self._set("memory_flag", "none", f"sbatch refuses --mem: {self._answers.memory_refusal}")
        elif "MEMORY" in parameters.upper():
            self._set("memory_flag", "total", f"SelectTypeParameters={parameters}; else: per_cpu")
        else:
            self._set("memory_flag", "total", f"accepted, though {parameters or 'this Slurm'} does not count memory")

    def _set_node_keys(self) -> None:
        interfaces = f"this login node has {', '.join(self._answers.interfaces)}; " if self._answers.interfaces else ""
        self._hint("network_interface", "ib0", f"{interfaces}needed where node names give the wrong address")
        self._hint("scratch", "$TMPDIR", f"a disk of the node; TmpFS={self._config.get('TmpFS', '?')}")
        self._hint("setup", '["module load python"]', "lines before Python starts, modules for instance", raw=True)
        self._hint("container", "[apptainer, exec, --nv, image.sif]", "words before Python", raw=True)
        self._hint("extra_sbatch", '["--exclusive"]', "further #SBATCH lines", raw=True)

    def _set_requeue(self) -> None:
        grace, wait = self._partition.get("GraceTime", "0"), self._config.get("KillWait", "?")
        self._set("signal_lead_seconds", 120, f"a save must fit in; KillWait={wait}, GraceTime={grace}")
        # JobRequeue is only a default: the template's --requeue overrides it.
        default = self._config.get("JobRequeue", "1")[:1]
        mode = self._partition.get("PreemptMode", self._config.get("PreemptMode", "?"))
        self._set("requeue", "scontrol", f"JobRequeue={default}, the template sets --requeue; PreemptMode={mode}")
        storage = self._config.get("AccountingStorageType", "?")
        self._set("has_sacct", self._answers.has_sacct, f"AccountingStorageType={storage}")

    def _set_limits(self) -> None:
        size = self._config.get("MaxArraySize", "?")
        self._set("max_parallel", 256, f"elements at the same time; MaxArraySize={size} is kept to by itself")
        comment = "sacctmgr: MaxSubmit" if self._max_submitted else "jobs you may have; default: Slurm's limit"
        self._hint("max_submitted", self._max_submitted or "100", comment, raw=True)
        self._hint("mail", "you@example.org", f"MailProg={self._config.get('MailProg', '?')}")

    def _set_shapes(self) -> None:
        """Draft the stages' resources: whole nodes for a training, else one rank with its share of a usual node."""
        node = self._node
        limit = parse_minutes(self._partition.get("MaxTime", ""))
        time = f"MaxTime={self._partition.get('MaxTime', '?')}"
        ranks = 1 if node.is_sliced else max(1, node.gpus)
        cpus = max(1, node.cpus // ranks) if node.gpus else min(4, node.cpus)
        whole = max(1, int(node.memory_gb * SHARE_OF_MEMORY))
        share = max(1, whole // ranks if node.gpus else whole * cpus // node.cpus)
        self._lines.append(f"# {time}; the commonest node has {node.cpus} CPUs, {node.memory_gb} GB, {node.gpus} GPUs.")
        values = {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": cpus, "gpus_per_node": min(1, node.gpus)}
        values |= {"memory_gb": share, "minutes": limit or DAY}
        self._lines.append(f"resources: {flow_text(values)}")
        numbers = [self._partition.get(key, "") for key in ("MaxNodes", "TotalNodes")]
        most_nodes = min((int(number) for number in numbers if number.isdecimal()), default=1)
        train = {"nodes": 2 if most_nodes > 1 else 1}
        if node.gpus:
            train |= {"ranks_per_node": ranks, "gpus_per_node": min(node.gpus, ranks), "memory_gb": whole}
        self._lines += ["stages:", f"  train: {flow_text(train)}   # one expert is one job over so many nodes"]
        if node.gpus:
            self._lines += self._without_gpus()

    def _without_gpus(self) -> list[str]:
        """Return the entries of stages that compute nothing on a GPU."""
        names = [name for name in all_resource_keys() if usable_gpus(name) is GpuUse.NONE]
        entry = flow_text({"gpus_per_node": 0})
        return [
            *(f"  {name}: {entry}" for name in names),
            f"  encode_captions: {entry}   # 1 where the encoder of captions is a network, as minilm is",
            f"  encode: {entry}   # 1 where the encoder is a network, as efficientnet_lite0 is",
        ]

    def _set(self, key: str, value: object, comment: str = "") -> None:
        self._lines.append(_commented(f"{key}: {flow_text(value)}", comment))

    def _hint(self, key: str, value: str, comment: str, raw: bool = False) -> None:
        self._lines.append(_commented(f"# {key}: {value if raw else flow_text(value)}", comment))


def _commented(text: str, comment: str) -> str:
    # Output of a client must not start a new line of the file.
    comment = " ".join(comment.split())
    return f"{text:<{COMMENT_COLUMN}}  # {comment}" if comment else text


def _pairs(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _words(line: str) -> dict[str, str]:
    values = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return values if "PartitionName" in values else {}


def _nodes(text: str, partition: str) -> list[NodeKind]:
    kinds = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5 or fields[0] != partition:
            continue
        # '64+' means that nodes differ.
        starts = (re.match("[0-9]+", field) for field in fields[1:4])
        count, cpus, memory = (int(start[0]) if start else 0 for start in starts)
        gpus = Counter[str]()
        for name, number in GPUS.findall(fields[4]):
            gpus[name] += int(number)
        kind = max(gpus, key=lambda name: (not SLICE.search(name), gpus[name]), default="")
        others = {name: number for name, number in gpus.items() if name != kind}
        kinds.append(NodeKind(count, cpus, memory // 1000, kind or None, gpus[kind], others))
    return kinds
