"""Manifest of a unit: the JSON file that makes it complete, and the fingerprint of its settings and inputs."""

import hashlib
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, fresh, reading
from hpcddm.files.atomic import digest
from hpcddm.files.reading import Unreadable
from hpcddm.runs.results import KnownResults, Results

FILE_NAME = "manifest.json"
FORMAT = 1
LENGTH = "training.images"
"""End of the keys that say how long a training goes on."""
SNAPSHOTS = "snapshots"
"""Part of the keys that say at which numbers of images a training keeps its weights; key among its results."""
DIGESTS = "digests"
"""Key, among the results, of the digests of parts of the outputs: what is read of each, wherever it lies."""


@dataclass(frozen=True)
class Output:
    """One file of a finished unit; `path` is relative to the unit's folder, and inside it."""

    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        """Raise `ValueError` for a path that leads out of the folder."""
        reading.require_inside(self.path)


@dataclass(frozen=True)
class Manifest:
    """Identity of a finished unit: its outputs, and everything that they are a function of."""

    stage: str
    unit: str
    settings: dict[str, Any]
    """The settings that shaped the outputs, as flat dotted keys."""
    inputs: dict[str, str]
    """Digest of every unit that was read: by key, of its outputs; by 'key#part', of a part that alone counts."""
    outputs: list[Output]
    results: dict[str, Any] = field(default_factory=dict)
    """Results for later stages and for people: counts, FLOPs, figures; `Results` of a manifest that was read."""
    record: dict[str, Any] = field(default_factory=dict)
    """Circumstances of the making (versions, world size, seconds): recorded, never compared."""
    format: int = FORMAT
    lengths: tuple[str, ...] = ()
    """Of an expected manifest, never stored: beginnings of settings that say how long the training goes on."""

    @classmethod
    def expected(
        cls,
        key: str,
        settings: dict[str, Any],
        inputs: Mapping[str, "Manifest"],
        parts: Mapping[str, str],
        lengths: Sequence[str] = (),
    ) -> "Manifest":
        """Return the manifest that stage/unit should have with these settings and inputs; its outputs are empty.

        parts: of some inputs, by key, the part that alone counts; '' where nothing of it does.
        lengths: beginnings of settings from which nothing but the number of images of a training follows.
        """
        stage, _, unit = key.partition("/")
        counted = {name: manifest for name, manifest in inputs.items() if parts.get(name) != ""}
        references = {name: reference(name, parts.get(name)) for name in counted}
        digests = {references[name]: manifest.digest_of(parts.get(name)) for name, manifest in counted.items()}
        return cls(stage, unit, settings, digests, [], lengths=tuple(lengths))

    @property
    def digest(self) -> str:
        """Hash over all outputs, which a later stage records for its input."""
        return digest({output.path: output.sha256 for output in self.outputs})

    def digest_of(self, part: str | None) -> str:
        """Return the digest of a part; that of all outputs for None, and where the results name no such part."""
        digests: dict[str | None, str] = self.results.get(DIGESTS, {})
        return digests.get(part, self.digest)

    @property
    def fingerprint(self) -> str:
        """Hash over the settings and the inputs."""
        return digest({"settings": self.settings, "inputs": self.inputs})

    @property
    def trajectory(self) -> str:
        """Hash over what a training state is a function of.

        That is all but the number of images at which the training ends, unless the learning rate has fallen by then,
        and those at which it keeps snapshots.
        """
        settings = {key: value for key, value in self.settings.items() if not self._is_length(key)}
        return digest({"settings": settings, "inputs": self.inputs})

    def _is_length(self, key: str) -> bool:
        """Tell if a setting says how long the training goes on, or what it keeps on the way, and nothing else."""
        if SNAPSHOTS in key.split("."):
            return True
        if not key.endswith(LENGTH):
            return key.startswith(self.lengths)
        beside = key.removesuffix("images")
        decays = self.settings.get(f"{beside}schedule") in ("cosine", "linear")
        return not decays or self.settings.get(f"{beside}decay_images") is not None


@dataclass(frozen=True)
class KnownRecord:
    """Types of the circumstances that a report reads."""

    __pydantic_config__: ClassVar = reading.OPEN

    world_size: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Stored:
    """Types of a manifest as its file has it."""

    format: Literal[1]
    stage: str
    unit: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    outputs: list[Output]
    results: KnownResults = field(default_factory=KnownResults)
    record: KnownRecord = field(default_factory=KnownRecord)


def reference(key: str, part: str | None) -> str:
    """Return the name of an input in a manifest: its key, or 'key#part'."""
    return f"{key}#{part}" if part else key


def referenced(name: str) -> tuple[str, str | None]:
    """Parse a name of an input in a manifest: key and part."""
    key, _, part = name.partition("#")
    return key, part or None


def flatten(settings: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = f"{place}.{key}" if place else str(key)
        flat |= flatten(value, inner) if isinstance(value, dict) else {inner: value}
    return flat


def read(folder: Path) -> Manifest | None:
    """Read the manifest of a unit's folder; None when the unit is not finished.

    Raises `Unreadable` naming the file when it is damaged or foreign.
    """
    content = fresh.read_mapping(folder / FILE_NAME, Stored, reading.MANIFEST_BYTES)
    if content is None:
        return None
    outputs = [Output(**output) for output in content.pop("outputs")]
    results = Results.read_from(folder / FILE_NAME, content.pop("results", {}))
    return Manifest(outputs=outputs, results=results, **content)


def read_if_usable(folder: Path) -> Manifest | None:
    """Read the manifest of a unit's folder; None also where it is damaged: `hpcddm status` shows the unit as such."""
    try:
        return read(folder)
    except Unreadable:
        return None


def publish(folder: Path, manifest: Manifest) -> None:
    """Make a unit complete; the last thing that is written."""
    stored = {key: value for key, value in asdict(manifest).items() if key != "lengths"}
    atomic.write_json(folder / FILE_NAME, stored)


def describe_outputs(folder: Path, paths: list[str]) -> list[Output]:
    """Sync and hash the files of a unit that are its result."""
    outputs = []
    for path in sorted(paths):
        file = folder / path
        atomic.sync(file)
        outputs.append(Output(path, file.stat().st_size, atomic.sha256(file)))
    return outputs


def damage(folder: Path, manifest: Manifest) -> str | None:
    """Return a message about the first output that is missing, a link, or of another size; None without one."""
    for output in manifest.outputs:
        file = folder / output.path
        # A folder in between, as `snapshots`, may be a link, too.
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


def record(started: float, world_size: int, origin: dict[str, Any]) -> dict[str, Any]:
    """Return code, versions and cost of a unit; no host, user or path, as manifests travel between sites.

    origin: the code and the versions of the packages that it was made with.
    """
    return {
        **origin,
        "world_size": world_size,
        "seconds": round(time.time() - started, 1),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def output_names(folder: Path) -> set[str]:
    """Return the outputs that the manifest of a unit's folder lists; none where there is no manifest."""
    listed = read(folder)
    return {output.path for output in listed.outputs} if listed else set()


def stated_digest(folder: Path, name: str) -> str | None:
    """Return the SHA-256 that the manifest of a unit's folder states of an output; None while there is no manifest.

    Raises `UserError` for an output that it does not list.
    """
    listed = read(folder)
    if listed is None:
        return None
    digests = {output.path: output.sha256 for output in listed.outputs}
    require(name in digests, f"{folder / name}: its manifest does not list it; fetch it again, or remove {folder}")
    return digests[name]


def intact(folder: Path, name: str) -> bytes:
    """Read a small output; raises `UserError` unless its bytes are those that the manifest states."""
    file, stated = folder / name, stated_digest(folder, name)
    try:
        content = reading.read_bytes(file, reading.RESULT_BYTES)
    except FileNotFoundError:
        raise UserError(f"{file}: is missing; fetch it again, or remove {folder}") from None
    is_stated = stated == hashlib.sha256(content).hexdigest()
    require(is_stated, f"{file}: its bytes are not those of its manifest; fetch it again, or remove {folder}")
    return content


def intact_json(folder: Path, name: str, kind: Any = Any) -> Any:
    """Read a small output of JSON, of a type; raises `UserError` where it is not, or other than the manifest states."""
    try:
        return reading.parse(intact(folder, name), kind)
    except ValueError as error:
        raise Unreadable(folder / name, f"holds no usable JSON ({error})") from None
