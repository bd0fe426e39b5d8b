"""What tests of hostile folders share: signing anew what was changed, and a refusal that changes nothing."""

import hashlib
import json
import os
import stat
from pathlib import Path

from hpcddm.exchange import signing
from hpcddm.exchange.bundle import FILE
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import Agreed
from tests.helpers import hpcddm

WEIGHTS = "weights.safetensors"


def tree(run: RunDir) -> dict[str, tuple[int, str]]:
    """Return mode and SHA-256 of everything in a run; its lock and the folder of imports itself may stay."""
    found = {}
    for path in run.root.rglob("*"):
        status = path.lstat()
        if path.name != ".submit.lock" and path != run.imports:
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path.relative_to(run.root))] = (status.st_mode, hashlib.sha256(content).hexdigest())
    return found


def refusal_of(done) -> str:
    """Return the one line of a refusal, which every terminal can show."""
    lines = [line for line in done.output.splitlines() if not line.startswith("copying and checking")]
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    assert done.exit_code == 1, done.output
    assert len(lines) == 1 and lines[0].startswith("error: "), done.output
    assert lines[0].isprintable() and lines[0].isascii() and len(lines[0]) < 1000
    return lines[0]


def refused(runs: Agreed, folder: Path, reason: str, *options: str) -> None:
    """An import fails with a reason in one line, and changes nothing."""
    before = tree(runs.home)
    said = refusal_of(runs.take(folder, *options))
    assert reason in said, said
    assert tree(runs.home) == before


def row(run: Path, key: str) -> tuple[str, str]:
    """Return state and reason of a unit in `status --json`."""
    units = json.loads(hpcddm("status", run, "--json").output)["units"]
    return next((unit["state"], unit["reason"]) for unit in units if unit["unit"] == key)


def sign_bytes(
    folder: Path, runs: Agreed, content: bytes, signer: str = "uni-b", namespace: str = signing.BUNDLE
) -> None:
    """Write the signed list of a bundle, and sign it."""
    sign_json(folder / FILE, content, runs.key(signer), namespace)


def sign_json(path: Path, content: bytes, key: Path, namespace: str = signing.CONTRACT) -> None:
    """Write a signed JSON, and its signature beside it."""
    path.write_bytes(content)
    path.with_name(f"{path.name}.sig").write_bytes(signing.sign_here(content, key, namespace))


def sign_list(
    folder: Path, runs: Agreed, signer: str = "uni-b", namespace: str = signing.BUNDLE, **changes: object
) -> None:
    """Change the signed list of a bundle, and sign it again."""
    values = json.loads((folder / FILE).read_text()) | changes
    sign_bytes(folder, runs, json.dumps(values).encode(), signer, namespace)


def listed(folder: Path, name: str = WEIGHTS, **changes: object) -> dict[str, dict[str, object]]:
    """Return the list of files with one entry changed."""
    files = json.loads((folder / FILE).read_text())["files"]
    return files | {name: files[name] | changes}


def entry_of(content: bytes) -> dict[str, object]:
    """Return the entry of a file in a signed list."""
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def sign_file(folder: Path, runs: Agreed, name: str = WEIGHTS) -> None:
    """Sign a file as it is now."""
    sign_list(folder, runs, files=listed(folder, name, **entry_of((folder / name).read_bytes())))


def encode_header(header: bytes, values: bytes = b"") -> bytes:
    """Return a file of tensors with a header of any content."""
    return len(header).to_bytes(8, "little") + header + values


def split_header(content: bytes) -> tuple[bytes, bytes]:
    """Return header and values of a file of tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], content[end:]


def grow_while_read(path: Path, monkeypatch) -> None:
    """Let a file become longer whenever a part of it was read."""
    read = os.read

    def grow(descriptor: int, count: int) -> bytes:
        block = read(descriptor, count)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            with open(path, "ab") as file:
                file.write(b"\0" * 1000)
        return block

    monkeypatch.setattr(os, "read", grow)
