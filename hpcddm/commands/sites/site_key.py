"""The verb site key: makes or shows the key with which a site signs what it sends."""

from pathlib import Path

import click

from hpcddm.commands.options import PATH
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.exchange import site_identity, ssh_keys

DEFAULT = Path(".ssh/hpcddm_ed25519")
"""The private key in the home folder, unless an option names another one."""
SIGN = click.option(
    "--sign", "key", type=PATH, metavar="KEY", help="Private key of this site.  [default: ~/.ssh/hpcddm_ed25519]"
)


def own_key(named: Path | None) -> Path:
    """Return the private key with which this user signs, also where its public key is named."""
    is_public = named is not None and named.suffix == ".pub" and not ssh_keys.public_file(named).exists()
    return (named.with_suffix("") if named and is_public else named) or Path.home() / DEFAULT


@click.command("key")
@click.argument("name", metavar="SITE")
@click.option("--key", type=PATH, help="Your own Ed25519 key, also one in an agent.  [default: ~/.ssh/hpcddm_ed25519]")
@click.option("--output", type=PATH, help="Folder for the coordinator.  [default: SITE-key]")
def site_key(name: str, key: Path | None, output: Path | None) -> None:
    """Make or show the key of this site.

    SITE signs with this Ed25519 key what it sends to other sites. A key that exists is used as it is. Send the folder
    to the coordinator of the collaboration, and tell the fingerprint by another channel, such as the telephone:
    whoever changes the folder on its way cannot change both.

    \b
    Example: hpcddm site key uni-b
    Next:    send the folder uni-b-key/, and tell the fingerprint
    """
    validate(Site, {"name": name, "scheduler": "slurm"}, f"the name '{name}'")
    site_identity.require_name(name)
    path = own_key(key)
    is_new = not path.exists() and not path.with_name(f"{path.name}.pub").exists() and key is None
    if is_new:
        ssh_keys.make_key(path)
    folder = output or Path(f"{name}-key")
    public = site_identity.write_identity(folder, name, path)
    print(f"{'made' if is_new else 'uses'} the key {path}")
    print(f"fingerprint {public.fingerprint}")
    print(f"send {folder}/ to the coordinator, and tell the fingerprint by another channel")
