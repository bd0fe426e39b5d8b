"""Sites from their files, and the choice between Slurm and this machine."""

import shutil
import sys

from hpcddm.config.package_data import find_yaml
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.config.strict_yaml import read_yaml
from hpcddm.errors import SchedulerUnreachable


def load_site(name: str) -> Site:
    """Read a site by name or path; `auto` is Slurm where there is one, else this machine.

    Raises `SchedulerUnreachable` when `auto` finds a Slurm that does not answer.
    """
    if name == "auto":
        name = "slurm" if _has_slurm() else "embedded"
    return validate(Site, *read_yaml(find_yaml(name, "slurm/sites", "site")))


def _has_slurm() -> bool:
    """Tell if this machine belongs to a cluster.

    Raises `SchedulerUnreachable` when its Slurm does not answer: a run started by mistake would occupy a login node.
    """
    if not shutil.which("sbatch"):
        return False
    from hpcddm.launch.slurm import client

    if (reason := client.unavailable_reason()) is None:
        return True
    if client.NO_CLUSTER in reason:
        print("note: Slurm is installed, but for no cluster; running on this machine", file=sys.stderr)
        return False
    advice = "try again when it does, or say --site embedded to run on this machine, with all its cores"
    raise SchedulerUnreachable(f"--site auto: Slurm is here and does not answer ({reason}); {advice}")
