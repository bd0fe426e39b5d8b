"""Draft of a site's file from the outputs of Slurm's commands, every key with its source."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from hpcddm.errors import ConfigError
from hpcddm.errors.next_step import command
from hpcddm.jobs.job_end import parse_job
from hpcddm.jobs.resource_requests import parse_minutes
from hpcddm.launch.checks.gpu_requests import all_resource_keys
from hpcddm.launch.slurm.slurm_cluster import parse_config
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
        self._answers, self._config = answers, parse_config(answers.config)
        lines = [line for line in answers.partitions.splitlines() if "PartitionName=" in line]
        self._partitions = {values["PartitionName"]: values for values in map(parse_job, lines)}
        self._nodes = {name: _nodes(answers.nodes, name) for name in self._partitions}
        name, self._reason = self._choose(partition)
        # The usual node, with whole GPUs if there are any.
        self._node = max(
            self._nodes[name],
            key=lambda kind: (kind.gpus > 0, not kind.is_sliced, kind.count),
            default=NodeKind(1, 1, 4, None, 0),
        )
        self._partition = self._partitions[name]

    @property
    def cluster(self) -> str:
        """Name of the cluster, without characters that a site's name cannot have."""
        return re.sub(r"[^A-Za-z0-9_.-]", "-", self._config.get("ClusterName", "")).strip("-._") or "cluster"

    def text(self, name: str) -> str:
        """Return the whole file."""
        kinds = self._nodes[self._partition["PartitionName"]]
        types = sorted({name for kind in kinds for name in (kind.gpu_type, *kind.others) if name})
        without_gpus = [place for place in all_resource_keys() if usable_gpus(place) is GpuUse.NONE]
        # Output of a client must not start a new line of the file.
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: " ".join(str(value).split()),
        )
        environment.filters["yaml"] = flow_text
        rendered = environment.from_string(Path(__file__).with_suffix(".yaml.j2").read_text()).render(
            name=name,
            cluster=self.cluster,
            command=command("hpcddm", "selftest", "--site", name),
            answers=self._answers,
            config=self._config,
            select=self._config.get("SelectType", ""),
            parameters=self._config.get("SelectTypeParameters", ""),
            partitions=[self._describe(partition) for partition in self._partitions],
            partition=self._partition,
            reason=self._reason,
            node=self._node,
            kinds=types,
            leaves_slices_out=any(map(SLICE.search, types)) and not self._node.is_sliced,
            without_gpus=without_gpus if self._node.gpus else [],
            **self._accounts(),
            **self._shapes(),
        )
        return "".join(map(_aligned, rendered.splitlines()))

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

    def _accounts(self) -> dict[str, Any]:
        """Return key, value, need and source of account and QOS, and the limit on the user's jobs."""
        rows = [(line.split("|") + [""] * 3)[:3] for line in self._answers.associations.splitlines() if line]
        accounts = list(dict.fromkeys(row[0] for row in rows if row[0]))
        qos = list(dict.fromkeys(name for row in rows for name in row[1].split(",") if name))
        is_enforced = self._config.get("AccountingStorageEnforce", "none") != "none"
        chosen = [
            self._chosen("account", accounts, self._partition.get("AllowAccounts", "ALL"), is_enforced),
            self._chosen("qos", qos, self._partition.get("AllowQos", "ALL"), False),
        ]
        return {"accounts": chosen, "max_submitted": next((row[2] for row in rows if row[2].isdecimal()), None)}

    def _chosen(self, key: str, available: list[str], allowed: str, is_needed: bool) -> tuple[str, str, bool, str]:
        """Choose an account or a QOS, which is set where the partition or the accounting requires one."""
        valid = available if allowed == "ALL" else [name for name in available if name in allowed.split(",")]
        yours = f"sacctmgr: yours are {', '.join(available)}" if available else "sacctmgr names none for you"
        takes = "" if allowed == "ALL" else f"; the partition takes {allowed}"
        return key, (valid or [f"my-{key}"])[0], bool(valid) and (is_needed or bool(takes)), yours + takes

    def _shapes(self) -> dict[str, dict[str, int]]:
        """Draft the stages' resources: whole nodes for a training, else one rank with its share of a usual node."""
        node = self._node
        ranks = 1 if node.is_sliced else max(1, node.gpus)
        cpus = max(1, node.cpus // ranks) if node.gpus else min(4, node.cpus)
        whole = max(1, int(node.memory_gb * SHARE_OF_MEMORY))
        share = max(1, whole // ranks if node.gpus else whole * cpus // node.cpus)
        values = {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": cpus, "gpus_per_node": min(1, node.gpus)}
        values |= {"memory_gb": share, "minutes": parse_minutes(self._partition.get("MaxTime", "")) or DAY}
        numbers = [self._partition.get(key, "") for key in ("MaxNodes", "TotalNodes")]
        most_nodes = min((int(number) for number in numbers if number.isdecimal()), default=1)
        train = {"nodes": 2 if most_nodes > 1 else 1}
        if node.gpus:
            train |= {"ranks_per_node": ranks, "gpus_per_node": min(node.gpus, ranks), "memory_gb": whole}
        return {"resources": values, "train": train}


def _aligned(line: str) -> str:
    """Return a line of the file with its comment, behind ' ## ' in the template, where comments begin."""
    text, has_comment, comment = line.partition(" ## ")
    return f"{text:<{COMMENT_COLUMN}}  # {comment}\n" if has_comment else f"{text}\n"


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
