"""The verbs of a site: its file, and its key for collaborations."""

import click

from hpcddm.commands.verb_group import VerbGroup

VERBS = {
    "init": "Draft the file of a new site.",
    "key": "Make or show the key of this site.",
    "contract": "Write what all sites of a collaboration agree on.",
    "bundle": "Pack and sign an expert of RUN for the other sites.",
    "import": "Take an expert that another site has signed into RUN.",
    "verify": "Say who signed what another site has sent, and whether it is whole.",
}


@click.group(cls=VerbGroup, modules="hpcddm.commands.sites.site_", verbs=VERBS)
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
