"""The verbs of a site: its file, and its key for collaborations."""

import importlib

import click

VERBS = {
    "init": ("site_init", "Draft the file of a new site."),
    "key": ("site_key", "Make or show the key of this site."),
    "contract": ("site_contract", "Write what all sites of a collaboration agree on."),
    "bundle": ("site_bundle", "Pack and sign an expert of RUN for the other sites."),
    "import": ("site_import", "Take an expert that another site has signed into RUN."),
    "verify": ("site_verify", "Say who signed what another site has sent, and whether it is whole."),
}


class SiteGroup(click.Group):
    """Verbs that are imported when they are called."""

    def list_commands(self, context: click.Context | None) -> list[str]:
        """Return the names of the verbs, in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        """Import a verb; None for another name."""
        if name not in VERBS:
            return None
        own = VERBS[name][0]
        command: click.Command = getattr(importlib.import_module(f"hpcddm.commands.sites.{own}"), own)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of the verbs, for which none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=SiteGroup)
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
