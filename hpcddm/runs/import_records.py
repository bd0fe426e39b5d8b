"""Records of imports: `imports/<expert>/<number>/` keeps the signed list of every bundle that a run has taken."""

from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.exchange.bundle import FILE, MAX_BYTES, Bundle
from hpcddm.exchange.contract import flat_name
from hpcddm.exchange.signed_folder import ListedFile, read_document
from hpcddm.exchange.signing import BUNDLE
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import unit_name


def record_folder(run: RunDir, key: str, number: int) -> Path:
    """Return the folder of the record of one bundle."""
    return run.imports / unit_name(key) / str(number)


def record_numbers(run: RunDir, key: str) -> list[int]:
    """List the numbers of the bundles of an expert that were taken, in ascending order."""
    folder = run.imports / unit_name(key)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_signed_bundle(folder: Path) -> tuple[Bundle, PublicKey]:
    """Read the signed list of a bundle, and the key that signed it; whether to trust the key is for the caller.

    Raises:
        UserError: A file is missing or malformed, or the signature does not fit. The message names it.
    """
    return read_document(folder, FILE, Bundle, BUNDLE, MAX_BYTES)


def imported_bundle(run: RunDir, key: str) -> Bundle | None:
    """Return the signed bundle from which the present folder of an expert was made; None where there is none.

    Sizes and SHA-256 in the unit's manifest are compared, not the bytes of the files, which are hashed when they are
    loaded.
    """
    present = manifest.read_if_usable(run.unit(key))
    if present is None:
        return None
    for number in reversed(record_numbers(run, key)):
        try:
            bundle, _ = read_signed_bundle(record_folder(run, key, number))
        except UserError:
            continue
        if bundle.files == _weights(present):
            return bundle
    return None


def _weights(present: Manifest) -> dict[str, ListedFile]:
    return {
        flat_name(output.path): ListedFile(output.size, output.sha256)
        for output in present.outputs
        if output.path != CURVE
    }
