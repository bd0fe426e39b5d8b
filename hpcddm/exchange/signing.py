"""Signing of what goes to other sites, and verification of what comes from them.

Signing uses `ssh-keygen`, which knows agents and asks for passphrases, if it can sign; otherwise `cryptography`. Files
are verified by `cryptography` alone, so that every site gives the same answer whatever its OpenSSH.
"""

import getpass
import re
import shutil
import subprocess
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hpcddm.errors import UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import quoted
from hpcddm.exchange import ssh_keys, sshsig
from hpcddm.exchange.ssh_keys import MAX_KEY_BYTES, Malformed, PublicKey
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

CONTRACT, BUNDLE, SITE, ENSEMBLE = "contract@hpcddm", "bundle@hpcddm", "site@hpcddm", "ensemble@hpcddm"
"""Namespaces: a signature for one purpose is none for another."""
SIGNS_SINCE = (8, 2)
"""OpenSSH whose ssh-keygen signs with keys in files and in agents."""
HASH = b"sha512"


def sign(content: bytes, key: Path, namespace: str) -> bytes:
    """Sign bytes with a private key.

    Args:
        content: The bytes.
        key: File of the private key, in OpenSSH's format; it may be missing if an agent holds it.
        namespace: Purpose of the signature.

    Returns:
        The armoured signature.

    Raises:
        UserError: The key cannot be used; the message names it.
    """
    return _sign_with_openssh(content, key, namespace) if openssh_signs() else sign_here(content, key, namespace)


def sign_here(content: bytes, key: Path, namespace: str) -> bytes:
    """Sign bytes as `sign` does, without ssh-keygen."""
    private = _load(key)
    signed = sshsig.signed_bytes(content, namespace, HASH)
    public = PublicKey(private.public_key().public_bytes_raw())
    return sshsig.armour(sshsig.Signature(public, namespace, HASH, private.sign(signed)))


def verify(content: bytes, armoured: bytes, namespace: str) -> PublicKey:
    """Return the key that signed bytes; whether it may sign them is for the caller to say.

    Args:
        content: The bytes.
        armoured: The signature.
        namespace: Purpose for which it must have been made.

    Raises:
        Malformed: The signature is not one of these bytes for this purpose; the message is the reason.
    """
    signature = sshsig.parse(armoured)
    if signature.namespace != namespace:
        raise Malformed(f"a signature for {signature.namespace[:64]!r} instead of {namespace!r}")
    signed = sshsig.signed_bytes(content, namespace, signature.hash_name)
    try:
        Ed25519PublicKey.from_public_bytes(signature.key.raw).verify(signature.raw, signed)
    except (InvalidSignature, ValueError):
        changed = ", whose line ends are those of Windows: copy it as it was sent" * (b"\r\n" in content)
        raise Malformed(f"the signature does not fit the file{changed}") from None
    return signature.key


def openssh_signs() -> bool:
    """Return True if this machine's ssh-keygen can sign."""
    if shutil.which("ssh-keygen") is None or shutil.which("ssh") is None:
        return False
    answer = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    version = re.match(r"OpenSSH_(\d+)\.(\d+)", answer.stderr + answer.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= SIGNS_SINCE


def _sign_with_openssh(content: bytes, key: Path, namespace: str) -> bytes:
    # Of a key that only an agent holds, its public half is named.
    named = key if key.exists() else ssh_keys.public_file(key)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(named), "-n", namespace]
    # A passphrase is read from the terminal, not from the standard input.
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = [line.strip().rstrip(".") for line in done.stderr.decode(errors="replace").splitlines()]
    # It draws a frame of @ around a warning.
    reason = "; ".join(line for line in said if line.strip("@ ") and not line.startswith("@")) or done.returncode
    raise UserError(f"{key}: ssh-keygen cannot sign with this key ({reason}){_advice(named)}")


def _advice(key: Path) -> str:
    """Return the next step for a private key with a fault that we can see; '' for others."""
    if key.is_file() and key.stat().st_mode & 0o077 and key.suffix != ".pub":
        return f"; others may read it: chmod 600 {quoted(key)}"
    try:
        ends = checked_reads.read_bytes(key, MAX_KEY_BYTES, follows_links=True).endswith(b"\n")
    except (OSError, Unreadable):
        return ""
    return "" if ends else f"; its last line has no end: echo >> {quoted(key)}"


def _load(key: Path) -> Ed25519PrivateKey:
    try:
        content = checked_reads.read_bytes(key, MAX_KEY_BYTES, follows_links=True)
    except FileNotFoundError:
        raise UserError(str(step("hpcddm", "site", "key", "SITE", reason=f"{key} is missing"))) from None
    except Unreadable as error:
        raise UserError(f"{key}: {error.reason}; name the file of a private key") from None
    try:
        private = _parse_private(content, key)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{key}: not a private key of OpenSSH, or a wrong passphrase ({error})") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(str(step("hpcddm", "site", "key", "SITE", reason=f"{key}: not an Ed25519 key")))
    return private


def _parse_private(content: bytes, key: Path) -> object:
    try:
        return serialization.load_ssh_private_key(content, None)
    except (TypeError, ValueError) as error:
        if "password" not in str(error).lower():
            raise
    return serialization.load_ssh_private_key(content, getpass.getpass(f"passphrase of {key}: ").encode())
