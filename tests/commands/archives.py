"""Archives of packages, as npm makes them."""

import io
import tarfile
from dataclasses import replace

from hpcddm.files import atomic


def packed(folder, package, members):
    """Write the archive of a package; return the package with the SHA-256 of these bytes."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / package.archive, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return replace(package, sha256=atomic.sha256(folder / package.archive))
