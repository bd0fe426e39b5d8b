"""Signatures in OpenSSH's format SSHSIG: https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.sshsig."""

import base64
import binascii
import hashlib
import re
import struct
from typing import NamedTuple

from hpcddm.errors import require
from hpcddm.exchange.ssh_keys import KIND, Malformed, PublicKey, parse_blob, read_strings, write_strings

MAGIC, VERSION = b"SSHSIG", 1
BEGIN, END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
ARMOUR = re.compile(rf"{BEGIN}\r?\n(?P<body>[A-Za-z0-9+/=\r\n]+?)\r?\n{END}\r?\n?")
LINE_LENGTH = 70
MAX_BYTES = 4096
"""Most bytes of an armoured signature; an Ed25519 one has about 300."""
HASHES = {b"sha512": hashlib.sha512, b"sha256": hashlib.sha256}
RAW_BYTES = 64
"""Bytes of an Ed25519 signature (RFC 8032, section 5.1.6)."""


class Signature(NamedTuple):
    """A parsed signature: who signed, for which purpose, with which hash of the message, and its 64 bytes."""

    key: PublicKey
    namespace: str
    hash_name: bytes
    raw: bytes


def parse(armoured: bytes) -> Signature:
    """Parse an armoured signature; raise `Malformed` with the reason for anything else."""
    require(len(armoured) <= MAX_BYTES, f"longer than {MAX_BYTES} bytes", Malformed)
    match = ARMOUR.fullmatch(armoured.decode("ascii", "replace"))
    if match is None:
        raise Malformed(f"no text between '{BEGIN}' and '{END}' alone")
    try:
        blob = base64.b64decode(re.sub(r"\r?\n", "", match["body"]), validate=True)
    except binascii.Error as error:
        raise Malformed(f"not base64 ({error})") from None
    require(blob[: len(MAGIC)] == MAGIC, "not an SSHSIG", Malformed)
    require(blob[len(MAGIC) : len(MAGIC) + 4] == struct.pack(">I", VERSION), f"not of version {VERSION}", Malformed)
    public, namespace, reserved, hash_name, signature = read_strings(blob[len(MAGIC) + 4 :], 5)
    key = parse_blob(public)
    kind, raw = read_strings(signature, 2)
    if kind != KIND or len(raw) != RAW_BYTES or reserved or hash_name not in HASHES:
        raise Malformed("not an Ed25519 signature of a SHA-256 or SHA-512")
    return Signature(key, namespace.decode("ascii", "replace"), hash_name, raw)


def armour(signature: Signature) -> bytes:
    """Return the text of a signature, as `ssh-keygen -Y sign` writes it."""
    fields = (signature.key.blob, signature.namespace.encode(), b"", signature.hash_name)
    blob = MAGIC + struct.pack(">I", VERSION) + write_strings(*fields, write_strings(KIND, signature.raw))
    body = base64.b64encode(blob).decode()
    lines = [body[start : start + LINE_LENGTH] for start in range(0, len(body), LINE_LENGTH)]
    return "\n".join([BEGIN, *lines, END, ""]).encode()


def signed_bytes(content: bytes, namespace: str, hash_name: bytes) -> bytes:
    """Return the bytes that an Ed25519 key signs for a message."""
    return MAGIC + write_strings(namespace.encode(), b"", hash_name, HASHES[hash_name](content).digest())
