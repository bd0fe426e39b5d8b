"""Versions of the code and packages: recorded in every attempt and manifest, but never a reason to refuse."""

import hashlib
import os
import platform
import re
import runpy
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcddm import __version__
from hpcddm.config import variants
from hpcddm.config.package_data import AROUND, find_data_file
from hpcddm.errors import UserError, require
from hpcddm.files import checked_reads

PACKAGE = variants.PACKAGE_ROOT.name
TEMPLATES = (
    *(f"slurm/{name}.j2" for name in ("job.sbatch", "selftest.sbatch", "resource_flags.sbatch", "python_env.sh")),
    "slurm/functions.sh",
)
"""Templates of the job scripts, installed with the package."""
LIBRARIES = ("deepspeed", "numpy", "pillow", "h5py", "faiss-cpu", "safetensors", "submitit")
"""Packages besides torch that affect a unit's results or its start."""
DIGEST_CHARACTERS = 16
COMMIT_CHARACTERS = 12
GIT_SECONDS = 20
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Code:
    """One version of the code, identified by a hash of its content."""

    digest: str
    commit: str | None = None
    """Commit of the git checkout; None if the code is not from a checkout."""
    modified: bool | None = None
    """True if the files differ from the commit."""

    def __str__(self) -> str:
        if self.commit is None:
            return self.digest
        return f"{self.digest} (commit {self.commit[:COMMIT_CHARACTERS]}{', modified' * bool(self.modified)})"


def code_files() -> dict[str, bytes]:
    """Read the current files that jobs run.

    Returns:
        The content of each file, by its path relative to the folder around the package.
    """
    files: dict[str, bytes] = {}
    for folder, inner, names in os.walk(AROUND / PACKAGE):
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            files[str(path.relative_to(AROUND))] = path.read_bytes()
    files |= {f"{PACKAGE}/{place}": path.read_bytes() for place, path in variants.user_files().items()}
    # A process that runs from a copy of the code passes on that copy, even if the checkout has changed since.
    return files | {
        name: (AROUND / name if _code_copy_record() else find_data_file(name)).read_bytes() for name in TEMPLATES
    }


def _code_copy_record() -> dict[str, Any] | None:
    """Read the record of the copy of the code that this process runs from; None if it does not run from a copy."""
    if not re.fullmatch(rf"[0-9a-f]{{{DIGEST_CHARACTERS}}}", AROUND.name):
        # Next to a checkout, a file with such a name belongs to the user.
        return None
    stored = checked_reads.read_mapping(record_path(AROUND))
    return stored if stored and stored.get("digest") == AROUND.name else None


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of every file, in hexadecimal."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def code_digest(hashes: Mapping[str, str]) -> str:
    """Compute one short hash of all files.

    Args:
        hashes: SHA-256 of every file, by path, as `digests` returns it.
    """
    lines = "".join(f"{value} {path}\n" for path, value in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:DIGEST_CHARACTERS]


def folder_digests(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of every file below a folder, by path; 600 files take 30 ms.

    All files count, because Python could import an additional file or compiled code instead of the submitted code.

    Raises:
        UserError: If there is anything but files and folders, or a file cannot be read.
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


def commit() -> tuple[str | None, bool | None]:
    """Return the checked-out commit, and True if the jobs' files differ from it; (None, None) without a checkout."""
    if not (AROUND / ".git").exists():
        return None, None
    # Another user may own the checkout: its Python code runs already, so git may trust it, but not write its index.
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
    is_own = all(find_data_file(name).read_bytes() == (AROUND / name).read_bytes() for name in TEMPLATES)
    return named[0], not is_own or bool(variants.user_files()) or any(not line.startswith("#") for line in lines)


@cache
def current_code() -> Code:
    """Return the version of this process's code, from the record of its copy or computed from the files."""
    if (stored := _code_copy_record()) is not None:
        return Code(AROUND.name, stored.get("commit"), stored.get("modified"))
    return Code(code_digest(digests(code_files())), *commit())


def record_path(snapshot: Path) -> Path:
    """Return the path of the record next to a copy of the code."""
    return snapshot.with_name(f"{snapshot.name}.json")


def environment() -> dict[str, str | None]:
    """Return the versions of Python and of the packages without importing these; None for missing packages."""
    return {"python": platform.python_version(), **_torch(), **{name: package_version(name) for name in LIBRARIES}}


def origin() -> dict[str, Any]:
    """Return code and environment of this process, as manifests record them; neither host nor user nor path."""
    code = asdict(current_code())
    return {"hpcddm": __version__, "code": code.pop("digest"), **code, **environment()}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences between two results of `origin` as text; another commit of the same code does not count."""
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


def package_version(name: str) -> str | None:
    """Return the version of a package without importing it; None for a missing package."""
    with suppress(PackageNotFoundError):
        return version(name)
    return None
