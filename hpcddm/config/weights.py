"""Weights in a public layout, supplied by the user or fetched by name: their place, files and hash.

Nothing here uses the network, and nothing needs torch.
"""

import fnmatch
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config import pretrained
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.schema import PathSetting, StrictModel, VariantSettings
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.foreign_json import ForeignJson

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
HubName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*){1,3}$")]
Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.-]*$")]


@dataclass(frozen=True)
class WeightsLayout:
    """Files of a folder of weights, by patterns of their names; others in the folder are never read."""

    config: str | None
    """JSON file that describes the network; None for a network that weights alone describe."""
    weights: tuple[str, ...]
    """Patterns of the weights; the first one that matches a file is used; several files are parts: *-of-*."""
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    """At least one of these files is needed."""
    optional: tuple[str, ...] = ()
    """Patterns of files that are read if they exist."""

    def select_files(self, names: Collection[str]) -> list[str]:
        """Choose the files that are read, in alphabetical order; raises `LookupError` saying what is missing."""
        missing = [name for name in self.required if name not in names]
        matches = (fnmatch.filter(sorted(names), pattern) for pattern in self.weights)
        weights = next((some for some in matches if some), [])
        if self.one_of and not set(self.one_of) & set(names):
            missing.append(" or ".join(self.one_of))
        if not weights:
            missing.append(" or ".join(self.weights))
        if missing:
            raise LookupError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        if len(weights) > 1 and not all("-of-" in name for name in weights):
            raise LookupError(f"{', '.join(weights)} are several weights; leave one of them")
        further = (
            name
            for pattern in (self.config or "", *self.one_of, *self.optional)
            for name in fnmatch.filter(names, pattern)
        )
        return sorted({*self.required, *weights, *further})


class Weights(StrictModel):
    """Place of some weights, and their hash; only the hash is in the fingerprint, so copies may be anywhere."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"hub", "revision", "label"})
    example: ClassVar[str] = "{folder: FOLDER}, or {hub: OWNER/NAME}"

    folder: PathSetting | None = None
    """A folder in the layout that the variant reads."""
    hub: HubName | None = None
    """Name on the Hugging Face hub, owner/name or owner/name/subfolder; `hpcddm prefetch` copies it into its cache."""
    revision: Revision | None = None
    """Commit, branch or tag on the hub; by default its main branch as it is when it is fetched."""
    content_hash: Digest | None = None
    """SHA-256 over names and bytes of the files that are read; filled in by submit, or stated to be checked."""

    label: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] | None = None
    """What keys of figures call the network; filled in by submit, so that a run can be read where weights are gone."""

    @model_validator(mode="after")
    def _one_place(self) -> "Weights":
        if (self.folder is None) == (self.hub is None):
            raise PydanticCustomError("variant", "needs one of the two, 'folder' or 'hub'")
        if self.revision is not None and self.hub is None:
            raise PydanticCustomError("variant", "revision: a folder has none; remove it")
        return self

    @property
    def repository(self) -> str:
        """Owner and name on the hub."""
        return "/".join((self.hub or "").split("/")[:2])

    @property
    def subfolder(self) -> str:
        """Folder inside of the repository, '' for the whole."""
        return "/".join((self.hub or "").split("/")[2:])

    @property
    def place(self) -> Path:
        """Folder of the files, in the cache of prefetch for weights of the hub."""
        if self.folder is not None:
            return Path(self.folder)
        name = str(self.hub).replace("/", "--")
        return pretrained.cache_folder() / "hub" / f"{name}@{self.revision or 'main'}"


class SettingsWithWeights(VariantSettings):
    """Settings of a variant that runs a network of a public package on the user's weights."""

    layout: ClassVar[WeightsLayout]

    weights: Weights
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of weights and activations; the two short ones need a GPU."""

    @property
    def needs_gpu(self) -> bool:
        """True for a network that is far too slow on a CPU."""
        return self.precision != "fp32"

    @property
    def precision_label(self) -> str:
        """Part of a label that names the precision; '' for full precision."""
        return self.precision if self.needs_gpu else ""

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError where the JSON of the weights describes another network than these settings do."""


class ImageNetworkSettings(SettingsWithWeights, ImageEncoderSettings):
    """Settings of an encoder of images that runs a network on the user's weights."""


def list_files(settings: SettingsWithWeights) -> list[str]:
    """List the names of the files that are read, after a look at them that takes no time.

    Raises `UserError` naming what is missing, or does not fit the settings, and the next step.
    """
    place, layout = settings.weights.place, settings.layout
    try:
        names = layout.select_files([path.name for path in place.iterdir() if path.is_file()])
        settings.check_config(read_config(settings))
    except OSError as error:
        reason = "no such folder" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise UserError(f"{place}: weights of {settings.name}: {reason}; {_remedy(settings)}") from None
    except LookupError as error:
        raise UserError(f"{place}: weights of {settings.name}: {error.args[0]}; {_remedy(settings)}") from None
    except ValueError as error:
        raise UserError(f"{place}: weights of {settings.name}: {error}") from None
    return names


def read_config(settings: SettingsWithWeights) -> ForeignJson:
    """Read the JSON that describes the network; empty for a layout without it. Raises ValueError for invalid JSON."""
    name = settings.layout.config
    path = settings.weights.place / (name or "")
    if name is None or not path.exists():
        return ForeignJson({}, path)
    try:
        return ForeignJson.read(path)
    except Unreadable as error:
        raise ValueError(f"{path.name} {error.reason}; copy it again") from None


def checked_config(settings: SettingsWithWeights) -> ForeignJson:
    """Read the JSON that describes the network; raises `UserError` as `list_files` does."""
    list_files(settings)
    return read_config(settings)


def content_hash(settings: SettingsWithWeights) -> str:
    """Hash names and bytes of the files that are read, as `sha256sum NAMES | sha256sum` does in their folder.

    Raises `UserError` as `list_files` does, and for a file that cannot be read.
    """
    place = settings.weights.place
    try:
        stats = [(name, (place / name).stat()) for name in list_files(settings)]
        return _hash(place, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))
    except OSError as error:
        raise UserError(f"{error.filename}: weights of {settings.name} cannot be read: {error.strerror}") from None


@cache
def _hash(place: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Hash files once in a process: many settings of a sweep have the same gigabytes."""
    lines = (f"{atomic.sha256(place / name)}  {name}\n" for name, _, _ in stamps)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def verified_folder(settings: SettingsWithWeights) -> Path:
    """Return the folder of the weights, after a check of their files, and of their hash where it is known.

    Raises `UserError` naming the folder, what is wrong and the next step.
    """
    require_content(settings, content_hash(settings))
    return settings.weights.place


def require_content(settings: SettingsWithWeights, computed: str) -> None:
    """Raise `UserError` if the hash of the files differs from the one in the settings."""
    stated = settings.weights.content_hash
    if stated not in (None, computed):
        files = ", ".join(list_files(settings))
        raise UserError(
            f"{settings.weights.place}: weights of {settings.name}: SHA-256 over {files} begins {computed[:12]}"
            f" and not {str(stated)[:12]}, as `content_hash` says; put the right files back, or correct `content_hash`"
            " and submit again"
        )


def _remedy(own: SettingsWithWeights) -> str:
    if own.weights.hub is not None:
        return "on a node with network 'hpcddm prefetch' fetches it, with the name of the experiment"
    names = [*own.layout.required, *own.layout.one_of[:1], own.layout.weights[0]]
    return f"copy {' and '.join(names)} there, or name another folder in `weights`"
