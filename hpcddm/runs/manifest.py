"""Manifest of a unit: the JSON file that makes it complete, and the fingerprint of its settings and inputs."""

import hashlib
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads, nfs_reads
from hpcddm.files.atomic import digest
from hpcddm.files.checked_reads import InnerPath, OpenRecord, Unreadable, usable
from hpcddm.runs.files import CONTRACT, SNAPSHOTS
from hpcddm.runs.result_types import KnownResults, Results

FILE_NAME = "manifest.json"
FORMAT = 1
LENGTH = "training.images"
"""Suffix of the keys that set the length of a training."""
DIGESTS = "digests"
"""Results key of the digests of parts of the outputs; they cover the values, not the files that store them."""


@dataclass(frozen=True)
class Output:
    """One output file of a finished unit.

    Args:
        path: Path relative to the unit's folder, inside that folder.
        size: Size in bytes.
        sha256: SHA-256 of the content, in hexadecimal.
    """

    path: InnerPath
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Identity of a finished unit: its outputs, and everything that determines them.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "lists.json").write_text("{}")
        >>> outputs = describe_outputs(folder, ["lists.json"])
        >>> publish(folder, Manifest("expert_lists", "all", {"cluster.experts": 4}, {}, outputs))
        >>> stored = read(folder)
        >>> stored.stage, stored.settings, stored.outputs[0].size
        ('expert_lists', {'cluster.experts': 4}, 2)
        >>> find_damage(folder, stored) is None
        True
    """

    stage: str
    unit: str
    settings: dict[str, Any]
    """Settings that determine the outputs, by dotted key."""
    inputs: dict[str, str]
    """Digest of every input: by 'key' for all outputs of a unit, by 'key#part' if only one part counts."""
    outputs: list[Output]
    results: dict[str, Any] = field(default_factory=dict)
    """Results for later stages and for users: counts, FLOPs, metrics. `read` returns them as `Results`."""
    record: dict[str, Any] = field(default_factory=dict)
    """Provenance (versions, world size, seconds): recorded, never compared."""
    format: int = FORMAT
    lengths: tuple[str, ...] = ()
    """Prefixes of settings that affect only the length of a training; set in expected manifests, never stored."""

    @property
    def digest(self) -> str:
        """Hash of all outputs; later units record it for this input."""
        return digest({output.path: output.sha256 for output in self.outputs})

    def digest_of(self, part: str | None) -> str:
        """Return the digest of one part of the outputs.

        Args:
            part: Name of the part; None for all outputs. A part that the results do not name also means all outputs.
        """
        digests: dict[str | None, str] = self.results.get(DIGESTS, {})
        return digests.get(part, self.digest)

    @property
    def fingerprint(self) -> str:
        """Hash of the settings and the inputs."""
        return digest({"settings": self.settings, "inputs": self.inputs})

    @property
    def trajectory(self) -> str:
        """Hash of the settings and inputs that determine a training state.

        It excludes the number of images at which the training ends, unless the learning rate decays over that number,
        and the numbers of images at which the training keeps snapshots.
        """
        settings = {key: value for key, value in self.settings.items() if not self._is_length(key)}
        return digest({"settings": settings, "inputs": self.inputs})

    def _is_length(self, key: str) -> bool:
        """Return True if a setting affects only the length of a training, or the states that it keeps."""
        if SNAPSHOTS in key.split("."):
            return True
        if not key.endswith(LENGTH):
            return key.startswith(self.lengths)
        prefix = key.removesuffix("images")
        decays = self.settings.get(f"{prefix}schedule") in ("cosine", "linear")
        return not decays or self.settings.get(f"{prefix}decay_images") is not None


@dataclass(frozen=True)
class KnownRecord(OpenRecord):
    """Types of the entries of `Manifest.record` that a report reads."""

    world_size: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class StoredManifest:
    """Types of the entries in a manifest's file."""

    format: Literal[1]
    stage: str
    unit: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    outputs: list[Output]
    results: KnownResults = field(default_factory=KnownResults)
    record: KnownRecord = field(default_factory=KnownRecord)


def input_name(key: str, part: str | None) -> str:
    """Return the name of an input in a manifest: its key, or 'key#part'."""
    return f"{key}#{part}" if part else key


def parse_input_name(name: str) -> tuple[str, str | None]:
    """Split the name of an input in a manifest into key and part.

    Returns:
        The unit's key and the part; the part is None if all outputs count.
    """
    key, _, part = name.partition("#")
    return key, part or None


def flatten(settings: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted keys.

    Args:
        settings: Settings, with mappings as values where they are nested.
        place: Dotted key of `settings` itself; '' at the top.

    Examples:
        >>> flatten({"seed": 0, "cluster": {"experts": 4}})
        {'seed': 0, 'cluster.experts': 4}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = f"{place}.{key}" if place else str(key)
        flat |= flatten(value, inner) if isinstance(value, dict) else {inner: value}
    return flat


def read(folder: Path) -> Manifest | None:
    """Read the manifest in a unit's folder.

    Returns:
        The manifest, or None if the unit is not finished.

    Raises:
        Unreadable: If the file is damaged or is not a manifest; or, in a run with a contract, if the unit is of another
            site that has not signed it.
    """
    content = nfs_reads.read_mapping(folder / FILE_NAME, StoredManifest, checked_reads.MANIFEST_BYTES)
    if content is None:
        return None
    outputs = [Output(**output) for output in content.pop("outputs")]
    _require_verified(folder, outputs)
    results = Results.read_from(folder / FILE_NAME, content.pop("results", {}))
    return Manifest(outputs=outputs, results=results, **content)


def sizes_and_digests(outputs: Sequence[Output]) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of outputs by path."""
    return {output.path: (output.size, output.sha256) for output in outputs}


def _require_verified(folder: Path, outputs: Sequence[Output]) -> None:
    """Raise `Unreadable` in a run with a contract if the unit is of another site that has not signed its outputs."""
    # Two calls, for every unit of every run.
    if any(os.path.isdir(place / CONTRACT) for place in (folder.parent, folder.parent.parent)):
        from hpcddm.runs.import_records import unverified_reason

        if reason := unverified_reason(folder, sizes_and_digests(outputs)):
            raise Unreadable(folder / FILE_NAME, reason)


def read_if_usable(folder: Path) -> Manifest | None:
    """Read the manifest in a unit's folder; None also if it is damaged, which `hpcddm status` reports."""
    return usable(read, folder)


def publish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into a unit's folder, as the last of its files; this makes the unit complete."""
    atomic.write_json(folder / FILE_NAME, {key: value for key, value in asdict(manifest).items() if key != "lengths"})


def describe_outputs(folder: Path, paths: list[str]) -> list[Output]:
    """Sync and hash the output files of a unit.

    Args:
        folder: Folder of the unit.
        paths: Paths of the outputs, relative to the folder.

    Returns:
        The outputs, sorted by path.
    """
    outputs = []
    for path in sorted(paths):
        file = folder / path
        atomic.sync(file)
        outputs.append(Output(path, file.stat().st_size, atomic.sha256(file)))
    return outputs


def find_damage(folder: Path, manifest: Manifest) -> str | None:
    """Compare the output files of a unit with its manifest, by type and size.

    Returns:
        A message about the first output that is missing, a link, or of another size; None if all are intact.
    """
    for output in manifest.outputs:
        file = folder / output.path
        # A folder in between, such as `snapshots`, may also be a link.
        between = [folder / part for part in Path(output.path).parents[:-1]] if "/" in output.path else []
        try:
            modes = [place.lstat().st_mode for place in between]
            status = file.lstat()
        except OSError:
            return f"{file} is missing"
        for place, mode in zip([*between, file], [*modes, status.st_mode], strict=True):
            if stat.S_ISLNK(mode):
                return f"{place} is a link; put the files themselves there"
        if not stat.S_ISREG(status.st_mode):
            return f"{file} is not a file"
        if status.st_size != output.size:
            return f"{file} has {status.st_size} bytes instead of {output.size}"
    return None


def provenance_record(started: float, world_size: int, origin: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of a unit: code, versions and duration.

    It contains neither host nor user nor path, because manifests are copied between sites.

    Args:
        started: Start of the work, in seconds since the epoch.
        world_size: Number of ranks.
        origin: Code and versions of the packages, as `provenance.origin` returns them.
    """
    return {
        **origin,
        "world_size": world_size,
        "seconds": round(time.time() - started, 1),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def output_names(folder: Path) -> set[str]:
    """Return the paths of the outputs that the manifest in a unit's folder lists; empty without a manifest."""
    listed = read(folder)
    return {output.path for output in listed.outputs} if listed else set()


def recorded_digest(folder: Path, name: str) -> str | None:
    """Return the SHA-256 of an output according to the manifest in a unit's folder; None without a manifest.

    Raises:
        UserError: If the manifest does not list the output; or as `read`, also without a manifest.
    """
    if (listed := read(folder)) is None:
        _require_verified(folder, [])
        return None
    digests = {output.path: output.sha256 for output in listed.outputs}
    require(name in digests, f"{folder / name}: its manifest does not list it; fetch it again, or remove {folder}")
    return digests[name]


def read_verified(folder: Path, name: str) -> bytes:
    """Read a small output and check it against the manifest.

    Args:
        folder: Folder of the unit.
        name: Path of the output, relative to the folder.

    Raises:
        UserError: If the file is missing or its SHA-256 differs from the manifest.
    """
    file, stated = folder / name, recorded_digest(folder, name)
    try:
        content = checked_reads.read_bytes(file, checked_reads.RESULT_BYTES)
    except FileNotFoundError:
        raise UserError(f"{file}: is missing; fetch it again, or remove {folder}") from None
    is_stated = stated == hashlib.sha256(content).hexdigest()
    require(is_stated, f"{file}: its bytes are not those of its manifest; fetch it again, or remove {folder}")
    return content


def read_verified_json(folder: Path, name: str, kind: Any = Any) -> Any:
    """Read a small JSON output, check it against the manifest, and parse it as `kind`.

    Raises:
        UserError: If the file is missing, differs from the manifest, or does not hold JSON of that type.
    """
    try:
        return checked_reads.parse_json(read_verified(folder, name), kind)
    except ValueError as error:
        raise Unreadable(folder / name, f"holds no usable JSON ({error})") from None
