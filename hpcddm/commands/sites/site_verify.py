"""The verb site verify: says who signed what another site has sent."""

from pathlib import Path

import click

from hpcddm.commands.options import PATH
from hpcddm.errors import UserError
from hpcddm.exchange import site_identity


@click.command("verify")
@click.argument("folder", type=PATH)
@click.option("--fingerprint", help="The one that the site has told you, such as SHA256:kmYc...: another is an error.")
def site_verify(folder: Path, fingerprint: str | None) -> None:
    """Say who signed what another site has sent.

    FOLDER is what 'hpcddm site key' wrote at the other site. A file that was changed on its way is refused. Only the
    fingerprint tells whose key it is: compare it with the one that the site tells you by another channel.

    \b
    Example: hpcddm site verify uni-b-key --fingerprint SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk
    """
    name, key = site_identity.read_identity(folder)
    if fingerprint is not None and fingerprint != key.fingerprint:
        raise UserError(
            f"{folder}: the key of {name} has the fingerprint {key.fingerprint}; do not trust it, and ask the site for"
            " the folder again"
        )
    print(f"{folder}: signed by the key of {name}, fingerprint {key.fingerprint}")
    if fingerprint is None:
        print(f"compare the fingerprint with the one that {name} tells you by another channel")
