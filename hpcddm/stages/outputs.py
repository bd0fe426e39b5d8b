"""Output files of finished units, read only if their bytes are those that the manifest names."""

from pathlib import Path

from hpcddm.rundir import atomic, manifest
from hpcddm.runtime.unit import require


def names(folder: Path) -> set[str]:
    """Return the outputs that the manifest of a unit's folder lists; none where there is no manifest."""
    listed = manifest.read(folder)
    return {output.path for output in listed.outputs} if listed else set()


def intact(folder: Path, name: str) -> Path:
    """Return the path of an output; raises `UserError` unless its bytes are those that the manifest names."""
    listed = manifest.read(folder)
    expected = {output.path: output.sha256 for output in listed.outputs} if listed else {}
    file = folder / name
    require(
        file.is_file() and atomic.sha256(file) == expected.get(name),
        f"{file}: its bytes are not those of its manifest; fetch it again, or remove {folder}",
    )
    return file
