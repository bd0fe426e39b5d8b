"""The verbs of a site: its file, and its key for collaborations."""

import click

from hpcddm.commands.verb_group import VerbGroup

VERBS = ("init", "key", "contract", "bundle", "import", "verify")


@click.group(cls=VerbGroup, package="hpcddm.commands.sites", prefix="site_", verbs=VERBS)
def site() -> None:
    """Draft the file of a site, and sign what it sends to others.

    \b
    Example: hpcddm site init my-cluster --partition gpu
             hpcddm site key my-cluster
             hpcddm site contract runs/cells --output cells-contract
             hpcddm site bundle runs/cells train/expert-02 --output cells-02
             hpcddm site import runs/cells cells-02
             hpcddm site verify uni-b-key
    """
