"""Ed25519 keys of sites, in the text form of OpenSSH."""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import step
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable


class Malformed(ValueError):
    """Error for bytes or a text that do not have the form of a key or a signature; the message is the reason."""


def write_strings(*values: bytes) -> bytes:
    """Return values one after the other, each after its length."""
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def read_strings(content: bytes, count: int, allow_more: bool = False) -> list[bytes]:
    """Return the first values of bytes that `write_strings` could have written.

    Args:
        content: The bytes.
        count: Number of values.
        allow_more: False to refuse bytes behind the last value.

    Raises:
        Malformed: The bytes end too early or too late.

    Examples:
        >>> read_strings(write_strings(b"key", b""), 2)
        [b'key', b'']
    """
    values, place = [], 0
    for _ in range(count):
        size = int.from_bytes(content[place : place + 4], "big")
        place += 4 + size
        require(place <= len(content), "it ends too early", Malformed)
        values.append(content[place - size : place])
    require(allow_more or place >= len(content), f"{len(content) - place} bytes follow its end", Malformed)
    return values


KIND = b"ssh-ed25519"
RAW_BYTES = 32
FIELD = 2**255 - 19
"""Prime of the field of Ed25519's coordinates (RFC 8032, section 5.1)."""
ORDER_EIGHT = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = (0, 1, FIELD - 1, ORDER_EIGHT, FIELD - ORDER_EIGHT)
"""Second coordinates of the eight points of small order: with such a key, one signature can fit every message."""
MAX_KEY_BYTES = 16_384
"""Most bytes of a file with a key."""


@dataclass(frozen=True)
class PublicKey:
    """Public key of a site.

    Attributes:
        raw: Its 32 bytes (RFC 8032, section 5.1.5).

    Examples:
        >>> PublicKey(bytes(range(32))).text
        'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f'
        >>> PublicKey(bytes(range(32))).fingerprint
        'SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA'
    """

    raw: bytes

    @property
    def blob(self) -> bytes:
        """Bytes of the key on the wire (RFC 8709, section 4)."""
        return write_strings(KIND, self.raw)

    @property
    def text(self) -> str:
        """Kind and base64 of the key, without a comment."""
        return f"{KIND.decode()} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """Fingerprint as OpenSSH prints it."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"


def parse_blob(blob: bytes) -> PublicKey:
    """Return the key of a blob.

    Raises:
        Malformed: The blob is not an Ed25519 key; the message is the reason.
    """
    kind = read_strings(blob, 1, allow_more=True)[0]
    if kind.startswith(b"sk-"):
        raise Malformed("a key on a security token (sk-); such keys sign other bytes, take a plain ed25519 key")
    if kind != KIND:
        raise Malformed(f"a key of the kind {kind[:40].decode('ascii', 'replace')!r} instead of ssh-ed25519")
    raw = read_strings(blob, 2)[1]
    require(len(raw) == RAW_BYTES, f"an Ed25519 key of {len(raw)} bytes instead of {RAW_BYTES}", Malformed)
    second = int.from_bytes(raw, "little") % 2**255
    if second >= FIELD or second in SMALL_ORDER:
        raise Malformed("an Ed25519 key of small order, or not encoded as RFC 8032 says; it protects nothing")
    return PublicKey(raw)


def parse_text(text: str) -> PublicKey:
    """Return the key of a text such as `ssh-ed25519 AAAA...` without a comment.

    Raises:
        Malformed: The text is anything else; the message is the reason.
    """
    try:
        # Keys of other kinds are named by what they are.
        key = parse_blob(base64.b64decode(text.partition(" ")[2], validate=True))
    except (binascii.Error, ValueError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(f"not 'ssh-ed25519' and the base64 of a key, without a comment ({error})") from None
    require(key.text == text, "not the usual base64 of its bytes", Malformed)
    return key


def make_key(path: Path) -> PublicKey:
    """Write a new private key, which only this user may read, and its public key beside it.

    Args:
        path: The private key; the public one is `path` with `.pub`.

    Raises:
        UserError: A file of either name exists, or cannot be written.
    """
    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = PublicKey(private.public_key().public_bytes_raw())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place, text, mode in ((path, content, 0o600), (public_file(path), f"{public.text}\n".encode(), 0o644)):
            atomic.write_new(place, text, mode)
    except OSError as error:
        raise UserError(f"{error.filename or path}: the key cannot be written ({error.strerror})") from None
    return public


def read_public(path: Path) -> PublicKey:
    """Return the public key beside a private key; its comment is dropped.

    Raises:
        UserError: The file is missing, or is not an Ed25519 key.
    """
    file = public_file(path)
    try:
        text = checked_reads.read_bytes(file, MAX_KEY_BYTES, follows_links=True).decode()
        return parse_text(" ".join(text.split()[:2]))
    except FileNotFoundError:
        if path.exists():
            raise UserError(f"{file} is missing; write it with: ssh-keygen -y -f {path} > {file}") from None
        raise UserError(str(step("hpcddm", "site", "key", "SITE", reason=f"{path} is missing"))) from None
    except (Unreadable, UnicodeDecodeError, Malformed) as error:
        reason = f"{file}: {getattr(error, 'reason', error)}"
        raise UserError(str(step("hpcddm", "site", "key", "SITE", reason=reason))) from None


def public_file(path: Path) -> Path:
    """Return the file of the public key that belongs to a private one."""
    return path.with_name(f"{path.name}.pub")
