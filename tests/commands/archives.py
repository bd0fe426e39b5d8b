"""Archives of packages, as npm makes them."""

import io
import tarfile
from dataclasses import replace

from hpcddm.files import atomic


def write_archive(path, members):
    """Write an archive of files; return the SHA-256 of its bytes."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return atomic.sha256(path)


def packed(folder, package, members):
    """Write the archive of a package; return the package with the SHA-256 of these bytes."""
    return replace(package, sha256=write_archive(folder / package.archive, members))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
