"""Drafts of sites from what Slurm 20.11, 22.05 and 24.05 print, after their documentation, and on the real clusters."""

import dataclasses
import re

import pytest
import yaml

from hpcddm.commands.sites.site_draft import SiteDraft, SlurmOutputs
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.launch.checks.gpu_requests import all_resource_keys, gpu_remarks
from hpcddm.launch.load_site import load_site
from hpcddm.pipeline.stage import GpuUse
from hpcddm.pipeline.unit_graph import usable_gpus
from tests.helpers import hpcddm

OLD_CONFIG = """Configuration data as of 2026-01-12T10:00:00
AccountingStorageEnforce = associations,limits,qos
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = Ye_Olde
JobRequeue              = 0
KillWait                = 30 sec
MaxArraySize            = 1001
PreemptMode             = OFF
SelectType              = select/cons_res
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 20.11.9
TmpFS                   = /tmp

Slurmctld(primary) at login1 is UP
"""
OLD_PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=c[01-40] PreemptMode=OFF State=UP "
    "TotalCPUs=1280 TotalNodes=40 SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=01:00:00 GraceTime=0 MaxNodes=4 MaxTime=1-00:00:00 Nodes=g[01-08] PreemptMode=OFF State=UP "
    "TotalCPUs=256 TotalNodes=8 SelectTypeParameters=NONE DefMemPerCPU=4000 MaxMemPerNode=UNLIMITED\n"
)
OLD_NODES = """cpu|40|32|192000|(null)
gpu|6|32|384000|gpu:v100:4(S:0-1)
gpu|2|48|768000|gpu:a100:8(S:0-1),nvme:1
"""
OLD = SlurmOutputs(OLD_CONFIG, OLD_PARTITIONS, OLD_NODES, "0815|normal,long|500\nteaching|normal|\n", True)

MIDDLE_CONFIG = """Configuration data as of 2026-01-12T10:00:00
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/none
JobRequeue              = 1
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CPU
SLURM_VERSION           = 22.05.8
"""
MIDDLE = SlurmOutputs(
    MIDDLE_CONFIG,
    "PartitionName=main AllowAccounts=ALL AllowQos=ALL Default=YES DefaultTime=00:10:00 GraceTime=20 "
    "MaxNodes=UNLIMITED MaxTime=01:00:00 Nodes=h[1-4] PreemptMode=REQUEUE State=UP TotalCPUs=16 TotalNodes=4 "
    "TRES=cpu=16,mem=32000M,node=4,billing=16\n",
    "main|4|4|8000|(null)\n",
)

NEW_CONFIG = """Configuration data as of 2026-02-01T08:00:00
AccountingStorageEnforce = associations,limits,qos,safe
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = aurora
JobRequeue              = 1
MaxArraySize            = 10001
PreemptMode             = CANCEL
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY,CR_CORE_DEFAULT_DIST_BLOCK
SLURM_VERSION           = 24.05.4

Cgroup Support Configuration:
SignalChildrenProcesses = no
"""
NEW = SlurmOutputs(
    NEW_CONFIG,
    "PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO MaxTime=00:30:00 State=DOWN "
    "TotalNodes=1\n"
    "PartitionName=h100 AllowGroups=ALL AllowAccounts=hai_aurora,other AllowQos=gpu-prio,gpu-std AllocNodes=ALL "
    "Default=NO QoS=h100 DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=120 Hidden=NO "
    "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED "
    "Nodes=n[001-016] PreemptMode=CANCEL State=UP TotalCPUs=1536 TotalNodes=16 JobDefaults=DefCpuPerGPU=24 "
    "DefMemPerCPU=5000 MaxMemPerNode=UNLIMITED TRES=cpu=1536,mem=16T,node=16,gres/gpu=64,gres/gpu:h100=64\n",
    "debug|1|8|16000|(null)\nh100|16|96+|1031000+|gpu:h100:4(S:0-3)\n",
    "free|std|\nhai_aurora|gpu-std|200\n",
    True,
    "Memory flags are not allowed on this cluster",
    ("eno1", "ib0"),
)


def drafted(answers: SlurmOutputs, partition: str | None = None) -> tuple[Site, str]:
    text = SiteDraft(answers, partition).text("drafted")
    return validate(Site, yaml.safe_load(text), "the draft"), text


def test_old_slurm_with_gpus_of_two_types_an_enforced_account_and_no_requeue_by_default():
    site, text = drafted(OLD)
    assert (site.partition, site.account, site.qos) == ("gpu", "0815", None)
    assert (site.gpus_flag, site.gpu_type, site.memory_flag) == ("gres", "v100", "total")
    assert (site.requeue, site.has_sacct) == ("scontrol", True), "JobRequeue=0 is a default, which --requeue overrides"
    assert "JobRequeue=0" in text and "Default=YES" in text and "# max_submitted: 500" in text
    one, training = site.resources_for("draw"), site.resources_for("train")
    assert (one.gpus_per_node, one.cpus_per_rank, one.memory_gb, one.minutes) == (1, 8, 86, 1440)
    assert (training.nodes, training.ranks_per_node, training.gpus_per_node) == (2, 4, 4)
    assert training.memory_gb * 1024 < 384000
    without = [place for place in all_resource_keys() if not site.resources_for(*place.split("/")).gpus_per_node]
    encoders = {"encode", "encode_captions"}
    assert without == [place for place in all_resource_keys() if usable_gpus(place) is GpuUse.NONE or place in encoders]
    assert len(without) > len(encoders) and gpu_remarks(site, all_resource_keys()) == []
    assert "#   gpu*: up to 1-00:00:00, 6 nodes of 32 CPUs, 384 GB, 4 GPUs v100; 2 nodes of 48 CPUs" in text


SLICED = "gpu:h100:2(S:0-1),gpu:h100_4g.40gb:2,gpu:h100_1g.10gb:8"
GRES = [
    (SLICED, "h100", 2, "2 GPUs h100; also 2 h100_4g.40gb, 8 h1"),
    ("gpu:h100_1g.10gb:8,gpu:h100:1(S:0),gpu:h100:1(S:1)", "h100", 2, "2 GPUs h100; also 8 h100_1g.10gb"),
    ("gpu:t4:1,gpu:a100:4", "a100", 4, "4 GPUs a100; also 1 t4"),
    ("gpu:1g.10gb:7,gpu:3g.40gb:2", "1g.10gb", 1, "7 GPUs 1g.10gb; also 2 3g.40gb"),
]


@pytest.mark.parametrize("gres, gpu_type, per_node, said", GRES)
def test_gpus_of_several_kinds_in_one_node_are_kept_apart_and_whole_ones_are_taken(gres, gpu_type, per_node, said):
    nodes = f"gpu|9|64|515000|gpu:2g.20gb:4\ngpu|4|64|515000|{gres}\n"
    site, text = drafted(dataclasses.replace(OLD, nodes=nodes if per_node > 1 else nodes.partition("\n")[2]))
    training = site.resources_for("train")
    assert (site.gpu_type, training.gpus_per_node, training.ranks_per_node) == (gpu_type, per_node, per_node)
    assert said in text and ("slices are left out" in text) == (per_node > 1)


def test_a_cluster_without_gpus_accounting_and_counted_memory():
    site, text = drafted(MIDDLE)
    assert (site.partition, site.account, site.gpu_type) == ("main", None, None)
    assert (site.requeue, site.has_sacct, site.memory_flag) == ("scontrol", False, "total")
    assert "CR_CPU does not count memory" in text and "PreemptMode=REQUEUE" in text and "GraceTime=20" in text
    assert site.resources_for("train").model_dump(exclude_none=True) == {
        "nodes": 2, "ranks_per_node": 1, "cpus_per_rank": 4, "gpus_per_node": 0, "memory_gb": 7, "minutes": 60,
        "zero_stage": 1, "sync_every_steps": 16, "checkpoint_blocks": 0, "compile_blocks": "auto",
        "partition": "main",
    }  # fmt: skip


def test_new_slurm_where_the_partition_takes_certain_accounts_and_memory_flags_are_refused():
    site, text = drafted(NEW, "h100")
    assert (site.partition, site.account, site.qos) == ("h100", "hai_aurora", "gpu-std")
    assert (site.gpus_flag, site.gpu_type, site.memory_flag) == ("gpus_per_node", None, "none")
    assert "# gpu_type: h100" in text and "Memory flags are not allowed" in text
    assert "this login node has eno1, ib0" in text and "debug: up to 00:30:00, DOWN" in text
    assert site.resources_for("train").minutes == 1440 and "MaxTime=UNLIMITED" in text
    assert site.resources_for("shard").cpus_per_rank == 24


def test_without_a_default_partition_the_first_one_is_taken_and_said_and_a_wrong_one_lists_the_valid_ones():
    site, text = drafted(NEW)
    assert site.partition == "debug" and "the cluster has no default: choose" in text
    with pytest.raises(ConfigError, match="--partition gpu: no such partition; valid: debug, h100"):
        SiteDraft(NEW, "gpu")


@pytest.mark.parametrize("answers", [OLD, MIDDLE, NEW])
def test_hints_are_valid_when_their_mark_is_taken_away(answers):
    """What a user does with a draft is to take the # away."""
    lines = [re.sub(r"^# (?=[a-z_]+: )", "", line) for line in drafted(answers)[1].splitlines()]
    site = validate(Site, yaml.safe_load("\n".join(lines)), "the draft")
    assert site.container == ("apptainer", "exec", "--nv", "image.sif") and site.scratch == "$TMPDIR"


def test_words_of_a_client_never_become_keys():
    evil = SlurmOutputs(NEW.config, NEW.partitions, NEW.nodes, memory_refusal="no\nrequeue: none\n")
    assert drafted(evil, "h100")[0].requeue == "scontrol"


@pytest.mark.slurm
@pytest.mark.parametrize("cluster", ["home", "partner"])
def test_the_draft_of_a_real_cluster_can_be_loaded_and_is_not_overwritten(request, tmp_path, monkeypatch, cluster):
    monkeypatch.setenv("SLURM_CONF", request.getfixturevalue(cluster))
    path = tmp_path / "sites" / "mine.yaml"
    done = hpcddm("site", "init", "mine", "--output", path)
    assert done.exit_code == 0, done.output
    assert f"hpcddm selftest --site {path}" in done.output
    site = load_site(str(path))
    assert (site.name, site.partition, site.requeue) == ("mine", "main", "scontrol")
    assert site.has_sacct is (cluster == "home")
    assert (site.resources_for("train").nodes, site.resources_for("train").minutes) == (2, 60)
    before = path.read_text()
    again = hpcddm("site", "init", "mine", "--output", path)
    assert again.exit_code == 1 and "is not overwritten" in again.output and path.read_text() == before


def test_without_slurm_it_says_where_to_try(monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))
    done = hpcddm("site", "init", "mine", "--output", tmp_path / "mine.yaml")
    assert done.exit_code == 1 and "try on a login node" in done.output
