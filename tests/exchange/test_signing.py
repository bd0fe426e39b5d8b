"""Signatures: ours and those of ssh-keygen verify each other, and nothing else is accepted."""

import base64
import os
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hpcddm.errors import UserError
from hpcddm.exchange import signing, ssh_keys, sshsig
from hpcddm.exchange.ssh_keys import Malformed, read_strings, write_strings

CONTENT = b'{"site": "uni-b"}\n'
needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None and "CI" not in os.environ, reason="no ssh-keygen here"
)


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    ssh_keys.make_key(path)
    return path


def ssh_keygen(*arguments, content=b""):
    return subprocess.run(["ssh-keygen", *map(str, arguments)], input=content, capture_output=True, check=False)


def verified_by_openssh(folder, content, signature, namespace, public):
    (folder / "allowed").write_text(f"uni-b {public.text}\n")
    (folder / "signature").write_bytes(signature)
    place = ("-f", folder / "allowed", "-I", "uni-b", "-n", namespace, "-s", folder / "signature")
    return ssh_keygen("-Y", "verify", *place, content=content).returncode == 0


@needs_ssh_keygen
@pytest.mark.parametrize("namespace", [signing.CONTRACT, signing.BUNDLE, signing.SITE])
def test_each_verifies_what_the_other_signed(key, tmp_path, namespace):
    public = ssh_keys.read_public(key)
    ours = signing.sign_here(CONTENT, key, namespace)
    theirs = ssh_keygen("-q", "-Y", "sign", "-f", key, "-n", namespace, content=CONTENT).stdout
    # Ed25519 is deterministic: RFC 8032.
    assert ours == theirs
    assert verified_by_openssh(tmp_path, CONTENT, ours, namespace, public)
    assert signing.verify(CONTENT, theirs, namespace) == public


@needs_ssh_keygen
def test_a_hash_of_256_bits_is_verified_too(key):
    command = ("-q", "-Y", "sign", "-O", "hashalg=sha256", "-f", key, "-n", signing.SITE)
    signature = ssh_keygen(*command, content=CONTENT).stdout
    assert sshsig.parse(signature).hash_name == b"sha256"
    assert signing.verify(CONTENT, signature, signing.SITE) == ssh_keys.read_public(key)


@needs_ssh_keygen
def test_our_keys_are_those_of_openssh(key):
    public = ssh_keys.read_public(key)
    assert public.fingerprint in ssh_keygen("-l", "-f", f"{key}.pub").stdout.decode()
    assert ssh_keygen("-y", "-f", key).stdout.decode().split()[:2] == public.text.split()
    assert key.stat().st_mode & 0o777 == 0o600


@needs_ssh_keygen
def test_a_key_with_a_passphrase_signs_without_ssh_keygen(tmp_path, monkeypatch):
    ssh_keygen("-q", "-t", "ed25519", "-N", "secret", "-C", "user@host", "-f", tmp_path / "key")
    monkeypatch.setattr("getpass.getpass", lambda prompt: "secret")
    signature = signing.sign_here(CONTENT, tmp_path / "key", signing.SITE)
    public = ssh_keys.read_public(tmp_path / "key")
    assert signing.verify(CONTENT, signature, signing.SITE) == public and "user" not in public.text
    monkeypatch.setattr("getpass.getpass", lambda prompt: "wrong")
    with pytest.raises(UserError, match="wrong passphrase"):
        signing.sign_here(CONTENT, tmp_path / "key", signing.SITE)


@needs_ssh_keygen
def test_a_key_of_another_kind_is_refused_with_its_name(tmp_path):
    ssh_keygen("-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "key")
    with pytest.raises(UserError, match=r"key: not an Ed25519 key; next: hpcddm site key SITE"):
        signing.sign_here(CONTENT, tmp_path / "key", signing.SITE)
    with pytest.raises(UserError, match=r"key.pub: a key of the kind 'ecdsa-sha2-nistp256' instead of ssh-ed25519"):
        ssh_keys.read_public(tmp_path / "key")
    signature = ssh_keygen("-q", "-Y", "sign", "-f", tmp_path / "key", "-n", signing.SITE, content=CONTENT).stdout
    with pytest.raises(Malformed, match="'ecdsa-sha2-nistp256' instead of ssh-ed25519"):
        signing.verify(CONTENT, signature, signing.SITE)


@needs_ssh_keygen
def test_a_key_that_only_an_agent_holds_signs(key, tmp_path, monkeypatch):
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        while not (tmp_path / "agent").exists():
            assert agent.poll() is None
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)
        key.unlink()
        signature = signing.sign(CONTENT, key, signing.SITE)
    finally:
        agent.kill()
        agent.wait()
    assert signing.verify(CONTENT, signature, signing.SITE) == ssh_keys.read_public(key)
    with pytest.raises(UserError, match="ssh-keygen cannot sign with this key"):
        signing.sign(CONTENT, key, signing.SITE)


def test_a_key_is_never_overwritten(key):
    before = key.read_bytes()
    with pytest.raises(UserError, match="File exists"):
        ssh_keys.make_key(key)
    assert key.read_bytes() == before


def test_another_file_purpose_or_key_is_no_signature_of_this_one(key, tmp_path):
    signature = signing.sign_here(CONTENT, key, signing.SITE)
    with pytest.raises(Malformed, match="does not fit the file"):
        signing.verify(CONTENT + b" ", signature, signing.SITE)
    with pytest.raises(Malformed, match="a signature for 'site@hpcddm' instead of 'bundle@hpcddm'"):
        signing.verify(CONTENT, signature, signing.BUNDLE)
    other = ssh_keys.make_key(tmp_path / "other")
    forged = sshsig.armour(sshsig.parse(signature)._replace(key=other))
    with pytest.raises(Malformed, match="does not fit the file"):
        signing.verify(CONTENT, forged, signing.SITE)
    renamed = sshsig.armour(sshsig.parse(signature)._replace(namespace=signing.BUNDLE))
    with pytest.raises(Malformed, match="does not fit the file"):
        signing.verify(CONTENT, renamed, signing.BUNDLE)


def blob_of(signature):
    return base64.b64decode(b"".join(signature.splitlines()[1:-1]))


def armoured(blob):
    return b"\n".join([sshsig.BEGIN.encode(), base64.b64encode(blob), sshsig.END.encode(), b""])


def changed_blob(own, **fields):
    blob = blob_of(own)
    names = ("public", "namespace", "reserved", "hash_name", "signature")
    values = dict(zip(names, read_strings(blob[10:], 5), strict=True)) | fields
    return armoured(blob[:10] + write_strings(*values.values()))


SK = write_strings(b"sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:")
MALFORMED = {
    "a key on a token": (lambda own: changed_blob(own, public=SK), "security token"),
    "another kind of key": (lambda own: changed_blob(own, public=write_strings(b"ssh-rsa", bytes(32))), "ssh-rsa"),
    "a key that is too short": (
        lambda own: changed_blob(own, public=write_strings(b"ssh-ed25519", bytes(31))),
        "31 bytes",
    ),
    "something reserved": (lambda own: changed_blob(own, reserved=b"x"), "not an Ed25519 signature"),
    "another hash": (lambda own: changed_blob(own, hash_name=b"md5"), "not an Ed25519 signature"),
    "a short signature": (
        lambda own: changed_blob(own, signature=write_strings(b"ssh-ed25519", bytes(63))),
        "not an Ed25519 signature",
    ),
    "more behind its end": (lambda own: armoured(blob_of(own) + b"x"), "1 bytes follow its end"),
    "a length beyond its end": (lambda own: armoured(blob_of(own)[:10] + b"\xff\xff\xff\xff"), "ends too early"),
    "another version": (lambda own: armoured(b"SSHSIG" + b"\0\0\0\2" + blob_of(own)[10:]), "not of version 1"),
    "another magic": (lambda own: armoured(b"SSHSIH" + blob_of(own)[6:]), "not an SSHSIG"),
    "nothing": (lambda own: b"", "no text between"),
    "text before it": (lambda own: b"hello\n" + own, "no text between"),
    "two of them": (lambda own: own + own, "no text between"),
    "no ASCII": (lambda own: own.replace(b"A", "\u0430".encode(), 1), "no text between"),
    "bad padding": (lambda own: own.replace(b"\n-----END", b"=\n-----END"), "not base64"),
    "too long": (lambda own: own + b"\n" * 5000, "longer than 4096 bytes"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_refused_with_the_reason(key, case):
    change, reason = MALFORMED[case]
    with pytest.raises(Malformed, match=reason):
        signing.verify(CONTENT, change(signing.sign_here(CONTENT, key, signing.SITE)), signing.SITE)


@pytest.mark.parametrize(
    "text",
    [
        "ssh-ed25519 " + "A" * 68 + " user@host",
        "ssh-ed25519  AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
    ],
)
def test_a_text_that_is_no_plain_key_is_refused(text):
    with pytest.raises(Malformed):
        ssh_keys.parse_text(text)


PRIME, CURVE = 2**255 - 19, -121665 * pow(121666, -1, 2**255 - 19)


def added(first, second):
    """The sum of two points (RFC 8032, section 5.1.4, in affine coordinates)."""
    (x, y), (u, v) = first, second
    product = CURVE * x * u * y * v
    return (x * v + y * u) * pow(1 + product, -1, PRIME) % PRIME, (y * v + x * u) * pow(1 - product, -1, PRIME) % PRIME


def small_points():
    """All multiples of a point of order eight, the neutral one first."""
    second = ssh_keys.ORDER_EIGHT
    square = (second**2 - 1) * pow(CURVE * second**2 + 1, -1, PRIME) % PRIME
    root = pow(square, (PRIME + 3) // 8, PRIME)
    root = root if root**2 % PRIME == square else root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    points = [(0, 1)]
    while len(points) < 8:
        points.append(added(points[-1], (root, second)))
    assert added(points[-1], points[1]) == points[0] and len(set(points)) == 8
    return points


def encoded(y, odd):
    return (y | odd << 255).to_bytes(32, "little")


def test_keys_of_small_order_and_encodings_beyond_the_field_are_not_keys(key):
    points = small_points()
    raw = {encoded(y, x % 2) for x, y in points}
    raw |= {encoded(y, odd) for y in range(PRIME, 2**255) for odd in (0, 1)}
    raw |= {encoded(y, odd) for _, y in points for odd in (0, 1)}
    assert len(raw) == 10 + 38
    for one in raw:
        public = ssh_keys.PublicKey(one)
        for parse in (ssh_keys.parse_text, lambda text, public=public: ssh_keys.parse_blob(public.blob)):
            with pytest.raises(Malformed, match="small order"):
                parse(public.text)
    # Its signature fits every message, for whoever does not look at the key.
    neutral = ssh_keys.PublicKey(encoded(1, 0))
    everything = sshsig.Signature(neutral, signing.SITE, b"sha512", neutral.raw + bytes(32))
    for content in (CONTENT, b"anything"):
        signed = sshsig.signed_bytes(content, signing.SITE, b"sha512")
        Ed25519PublicKey.from_public_bytes(neutral.raw).verify(everything.raw, signed)
        with pytest.raises(Malformed, match="small order"):
            signing.verify(content, sshsig.armour(everything), signing.SITE)
    assert ssh_keys.parse_text(ssh_keys.read_public(key).text)


def test_line_ends_of_windows_are_taken_in_a_signature_and_named_in_a_file(key):
    signature = signing.sign_here(CONTENT, key, signing.SITE)
    assert signing.verify(CONTENT, signature.replace(b"\n", b"\r\n"), signing.SITE) == ssh_keys.read_public(key)
    with pytest.raises(Malformed, match="whose line ends are those of Windows"):
        signing.verify(CONTENT.replace(b"\n", b"\r\n"), signature, signing.SITE)
