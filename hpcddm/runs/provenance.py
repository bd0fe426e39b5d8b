"""Versions of the code and packages, recorded in every attempt and manifest, and never a reason to refuse."""

import hashlib
import os
import platform
import re
import runpy
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcddm import __version__
from hpcddm.config import variant_files
from hpcddm.config.package_data import AROUND, share_file
from hpcddm.errors import UserError, require
from hpcddm.files import reading

PACKAGE = variant_files.PACKAGE.name
TEMPLATES = (
    *(f"slurm/{name}.j2" for name in ("job.sbatch", "selftest.sbatch", "asked.sbatch", "start.sh")),
    "slurm/functions.sh",
)
"""Templates, beside the package, that a job is made from."""
LIBRARIES = ("deepspeed", "numpy", "pillow", "h5py", "faiss-cpu", "safetensors", "submitit")
"""Packages beside torch that affect a unit's results, or its start."""
DIGEST_CHARACTERS = 16
COMMIT_CHARACTERS = 12
GIT_SECONDS = 20
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Code:
    """One version of the code, by its content; `commit` is known in a git checkout only."""

    digest: str
    commit: str | None = None
    modified: bool | None = None
    """True where the files differ from those of the commit."""

    def __str__(self) -> str:
        if self.commit is None:
            return self.digest
        return f"{self.digest} (commit {self.commit[:COMMIT_CHARACTERS]}{', modified' * bool(self.modified)})"


def code_files() -> dict[str, bytes]:
    """Read the files that jobs run from, as they are now: path below the folder around the package -> content."""
    files: dict[str, bytes] = {}
    for folder, inner, names in os.walk(AROUND / PACKAGE):
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            files[str(path.relative_to(AROUND))] = path.read_bytes()
    files |= {f"{PACKAGE}/{place}": path.read_bytes() for place, path in variant_files.own_files().items()}
    # A process that runs from a snapshot hands on what was submitted, whatever a checkout holds by now.
    return files | {name: (AROUND / name if _snapshot() else share_file(name)).read_bytes() for name in TEMPLATES}


def _snapshot() -> dict[str, Any] | None:
    """Read the record of the snapshot that this process runs from; None where it runs from none."""
    if not re.fullmatch(rf"[0-9a-f]{{{DIGEST_CHARACTERS}}}", AROUND.name):
        # Beside a checkout, a file of such a name is the user's.
        return None
    stored = reading.read_mapping(record_of(AROUND))
    return stored if stored and stored.get("digest") == AROUND.name else None


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of every file, in hexadecimal."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def code_digest(hashes: Mapping[str, str]) -> str:
    """Compute one short hash over all files, from the result of `digests`."""
    lines = "".join(f"{value} {path}\n" for path, value in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:DIGEST_CHARACTERS]


def folder_digests(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of every file below a folder, by path; links are not followed. 600 files take 30 ms.

    All files count: Python would import a further one, or compiled code, in place of what was submitted.

    Raises:
        UserError: Where something is not a file, or cannot be read.
    """
    hashes: dict[str, str] = {}
    try:
        for place, inner, names, descriptor in os.fwalk(folder):
            for name in (*inner, *names):
                path = Path(place, name)
                mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                require(stat.S_ISREG(mode) or stat.S_ISDIR(mode), f"{path}: not a file; remove it")
                if stat.S_ISREG(mode):
                    with open(os.open(name, READING, dir_fd=descriptor), "rb") as file:
                        hashes[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be read ({error.strerror})") from None
    return hashes


def is_checkout() -> bool:
    """Tell if the package runs from a git checkout, and not from an installation or a snapshot."""
    return (AROUND / ".git").exists()


def commit() -> tuple[str | None, bool | None]:
    """Return the checked-out commit, and True if the files of jobs differ from it; (None, None) elsewhere."""
    if not is_checkout():
        return None, None
    # A checkout of somebody else is trusted as far as its Python is, which runs already; the index is left alone.
    command = ["git", "-C", str(AROUND), "--no-optional-locks", "-c", f"safe.directory={AROUND}"]
    command += ["status", "--porcelain=v2", "--branch", "--", PACKAGE, *TEMPLATES]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = process.stdout.splitlines()
    named = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if not named or named[0] == "(initial)":
        return None, None
    is_own = all(share_file(name).read_bytes() == (AROUND / name).read_bytes() for name in TEMPLATES)
    return named[0], not is_own or bool(variant_files.own_files()) or any(not line.startswith("#") for line in lines)


@cache
def own_code() -> Code:
    """Return the version of this process's code: the record of its snapshot, else computed from the files."""
    stored = _snapshot()
    if stored is not None:
        return Code(AROUND.name, stored.get("commit"), stored.get("modified"))
    return Code(code_digest(digests(code_files())), *commit())


def record_of(snapshot: Path) -> Path:
    """Return the path of the record beside a snapshot."""
    return snapshot.with_name(f"{snapshot.name}.json")


def environment() -> dict[str, str | None]:
    """Return the versions of Python and of the packages, without importing them; None for missing ones."""
    return {"python": platform.python_version(), **_torch(), **{name: _version(name) for name in LIBRARIES}}


def origin() -> dict[str, Any]:
    """Return code and environment of this process, as manifests record them; no host, user or path."""
    code = asdict(own_code())
    return {"hpcddm": __version__, "code": code.pop("digest"), **code, **environment()}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences between two origins, for the user; another commit of the same code is none."""
    keys = [key for key in (*now, *(before.keys() - now.keys())) if key not in ("commit", "modified")]
    return [f"{key} {before.get(key)} -> {now.get(key)}" for key in keys if before.get(key) != now.get(key)]


def _torch() -> dict[str, str | None]:
    """Return the versions of torch and of its CUDA (None on CPU), from its file version.py without importing it."""
    spec = find_spec("torch")
    try:
        values = runpy.run_path(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else {}
    except (OSError, SyntaxError):
        values = {}
    return {"torch": str(values["__version__"]) if "__version__" in values else None, "cuda": values.get("cuda")}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
