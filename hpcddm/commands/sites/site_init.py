"""The verb site init: queries this machine's cluster and drafts a site's file."""

import subprocess
from contextlib import suppress
from pathlib import Path

import click
import psutil

from hpcddm.commands.options import PATH
from hpcddm.commands.sites.site_draft import SiteDraft, SlurmOutputs
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.files import atomic
from hpcddm.launch.load_site import load_site
from hpcddm.launch.slurm.client import SlurmUnavailable, call_slurm, error_text, query_slurm, unavailable_reason
from hpcddm.launch.slurm.slurm_cluster import parse_config
from hpcddm.runs.group_permissions import current_user

SCRIPT = "#!/bin/bash\ntrue\n"


@click.command("init")
@click.argument("name", required=False)
@click.option("--partition", help="Default: the cluster's default partition.")
@click.option("--output", type=PATH, help="Default: slurm/sites/NAME.yaml.")
def site_init(name: str | None, partition: str | None, output: Path | None) -> None:
    """Draft the file of a new site.

    Its keys come from this cluster's own configuration. NAME defaults to the name of the cluster.

    \b
    Example: hpcddm site init my-cluster --partition gpu
    Next:    read and correct slurm/sites/my-cluster.yaml, then: hpcddm selftest --site my-cluster
    """
    if reason := unavailable_reason():
        raise UserError(f"no Slurm answers here ({reason}); try on a login node of the cluster")
    draft = SiteDraft(_query_all(partition), partition)
    name = name or draft.cluster
    validate(Site, {"name": name, "scheduler": "slurm"}, f"the name '{name}'")
    path = output or Path("slurm/sites") / f"{name}.yaml"
    if path.exists():
        raise UserError(f"{path} exists and is not overwritten; move it away, or choose another NAME or --output")
    atomic.write_text(path, draft.text(name))
    load_site(str(path))
    place = name if output is None else path
    print(f"drafted {path}; read it, correct it, then try it:\n  {command('hpcddm', 'selftest', '--site', place)}")


def _query_all(partition: str | None) -> SlurmOutputs:
    config = query_slurm("scontrol", "show", "config")
    own = (f"user={current_user()}", f"cluster={parse_config(config).get('ClusterName', '')}")
    associations = ("sacctmgr", "-n", "-P", "show", "assoc", *own)
    return SlurmOutputs(
        config=config,
        partitions=query_slurm("scontrol", "--oneliner", "show", "partition"),
        nodes=_output_of("sinfo", "-h", "-e", "-o", "%R|%D|%c|%m|%G") or "",
        associations=_output_of(*associations, "format=Account,QOS,MaxSubmit") or "",
        has_sacct=_output_of("sacct", "-n", "-X") is not None,
        memory_refusal=_memory_refusal(partition),
        interfaces=tuple(name for name in psutil.net_if_addrs() if name != "lo"),
    )


def _output_of(*command: str) -> str | None:
    """Return the output of a client of Slurm; None where it fails."""
    with suppress(SlurmUnavailable):
        return query_slurm(*command)
    return None


def _memory_refusal(partition: str | None) -> str:
    """Return the error of sbatch about a small job with --mem where it takes the same job without; else ''."""
    command = ["sbatch", "--test-only", *([f"--partition={partition}"] if partition else [])]
    try:
        plain, with_memory = (call_slurm(*command, *flags, script=SCRIPT) for flags in ((), ("--mem=100M",)))
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return error_text(with_memory) if plain.returncode == 0 and with_memory.returncode else ""
