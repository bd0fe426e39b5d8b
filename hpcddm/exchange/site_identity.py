"""The identity of a site: its name and key in a signed file, which goes to the coordinator of a collaboration."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from hpcddm.errors import UserError, require
from hpcddm.exchange import signing, ssh_keys
from hpcddm.exchange.signed_folder import NAME
from hpcddm.exchange.ssh_keys import Malformed, PublicKey
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable

FILE, SIGNATURE = "site.json", "site.json.sig"
SiteName = Annotated[str, StringConstraints(pattern=rf"^{NAME.pattern}$")]
"""Name of a site: it is also a name of files."""


@dataclass(frozen=True)
class SiteIdentity:
    """Content of the file.

    Attributes:
        format: Name and version of the format.
        site: Name of the site.
        key: Public key of the site, without a comment.
    """

    format: Literal["hpcddm site 1"]
    site: SiteName
    key: Annotated[str, StringConstraints(max_length=100)]


def require_name(site: str) -> None:
    """Raise `UserError` for a name of a site that other sites would refuse."""
    text = f"'{site}': other sites refuse this name; write at most 64 of a-z, 0-9, '.', '_', '-'"
    require(NAME.fullmatch(site) is not None, text)


def write_identity(folder: Path, site: str, key: Path) -> PublicKey:
    """Write the signed identity of a site.

    Args:
        folder: Folder of the two files; it is made, and files of another key in it are not overwritten.
        site: Name of the site.
        key: File of its private key.

    Returns:
        The public key.

    Raises:
        UserError: The key cannot be used, or the folder has another identity.
    """
    public = ssh_keys.read_public(key)
    content = f"{json.dumps(asdict(SiteIdentity('hpcddm site 1', site, public.text)), indent=1)}\n".encode()
    path = folder / FILE
    if path.exists() and path.read_bytes() != content:
        raise UserError(f"{path} has another name or key and is not overwritten; name another folder with --output")
    signature = signing.sign(content, key, signing.SITE)
    if signing.verify(content, signature, signing.SITE) != public:
        raise UserError(f"{key} and {key}.pub are not one pair; write the second with: ssh-keygen -y -f {key}")
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / SIGNATURE, signature.decode())
    atomic.write_text(path, content.decode())
    return public


def read_identity(folder: Path) -> tuple[str, PublicKey]:
    """Return name and key of a site from a folder that somebody sent.

    Raises:
        UserError: A file is missing, malformed, or signed by another key than it names.
    """
    path = folder / FILE
    try:
        content = checked_reads.read_bytes(path, checked_reads.RECORD_BYTES, root=folder)
        signature = checked_reads.read_bytes(folder / SIGNATURE, checked_reads.RECORD_BYTES, root=folder)
        identity = checked_reads.parse_json(content, SiteIdentity)
        key = ssh_keys.parse_text(identity.key)
        if signing.verify(content, signature, signing.SITE) != key:
            raise Malformed("signed by another key than it names")
    except FileNotFoundError as error:
        missing = folder / Path(str(error.filename)).name if folder.is_dir() else folder
        raise UserError(f"{missing} is missing; ask the site for the folder of 'hpcddm site key'") from None
    except (Unreadable, Malformed, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'reason', error)}; ask the site to send it again") from None
    return identity.site, key
