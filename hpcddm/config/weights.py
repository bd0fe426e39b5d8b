"""Weights in a public layout that the user has, or fetches by name: their place, their files and their hash.

Nothing here uses the network, and nothing needs torch.
"""

import fnmatch
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config import pretrained
from hpcddm.config.schema import PathSetting, StrictModel, VariantSettings
from hpcddm.errors import UserError
from hpcddm.files import atomic, reading
from hpcddm.files.reading import Unreadable

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
HubName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*){1,3}$")]
Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.-]*$")]


@dataclass(frozen=True)
class Layout:
    """Files of a folder of weights, by patterns of their names; others in the folder are never read."""

    config: str
    """JSON file that describes the network."""
    weights: tuple[str, ...]
    """Patterns of the weights, of which the first one that names a file counts; several files are parts: *-of-*."""
    needed: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    """Files of which at least one is needed."""
    further: tuple[str, ...] = ()
    """Patterns of files that are read where they are there."""

    def chosen(self, names: Collection[str]) -> list[str]:
        """Choose the files that are read, in alphabetical order; raises `LookupError` saying what is missing."""
        missing = [name for name in self.needed if name not in names]
        matches = (fnmatch.filter(sorted(names), pattern) for pattern in self.weights)
        weights = next((some for some in matches if some), [])
        if self.either and not set(self.either) & set(names):
            missing.append(" or ".join(self.either))
        if not weights:
            missing.append(" or ".join(self.weights))
        if missing:
            raise LookupError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        if len(weights) > 1 and not all("-of-" in name for name in weights):
            raise LookupError(f"{', '.join(weights)} are several weights; leave one of them")
        further = (
            name for pattern in (self.config, *self.either, *self.further) for name in fnmatch.filter(names, pattern)
        )
        return sorted({*self.needed, *weights, *further})


class Weights(StrictModel):
    """Place of some weights, and their hash, which alone is under the fingerprint: copies may lie anywhere."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"hub", "revision"})

    folder: PathSetting | None = None
    """A folder in the layout that the variant reads."""
    hub: HubName | None = None
    """Name on the Hugging Face hub, owner/name or owner/name/subfolder; `hpcddm prefetch` copies it into its cache."""
    revision: Revision | None = None
    """Commit, branch or tag on the hub; by default its main branch as it is when it is fetched."""
    content: Digest | None = None
    """SHA-256 over names and bytes of the files that are read; filled in by submit, or stated to be checked."""

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

    layout: ClassVar[Layout]

    weights: Weights
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of weights and activations; the two short ones need a GPU."""

    @property
    def needs_gpu(self) -> bool:
        """True for what a CPU computes far too slowly."""
        return self.precision != "fp32"

    def check_config(self, config: dict[str, Any]) -> None:
        """Raise ValueError where the JSON of the weights describes another network than these settings do."""


def files(own: SettingsWithWeights) -> list[str]:
    """List the names of the files that are read, after a look at them that takes no time.

    Raises `UserError` naming what is missing, or does not fit the settings, and the next step.
    """
    place, layout = own.weights.place, own.layout
    try:
        names = layout.chosen([path.name for path in place.iterdir() if path.is_file()])
        own.check_config(config(own))
    except OSError as error:
        reason = "there is no such folder" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise UserError(f"{place}: weights of {own.name}: {reason}; {_remedy(own)}") from None
    except LookupError as error:
        raise UserError(f"{place}: weights of {own.name}: {error.args[0]}; {_remedy(own)}") from None
    except ValueError as error:
        raise UserError(f"{place}: weights of {own.name}: {error}") from None
    return names


def config(own: SettingsWithWeights) -> dict[str, Any]:
    """Read the JSON that describes the network; empty where a layout does without. Raises ValueError for no JSON."""
    path = own.weights.place / own.layout.config
    if not path.exists():
        return {}
    try:
        values: dict[str, Any] = reading.need_json(path, follows_links=True)
    except Unreadable as error:
        raise ValueError(f"{path.name} {error.reason}; copy it anew") from None
    return values


def content(own: SettingsWithWeights) -> str:
    """Hash names and bytes of the files that are read, as `sha256sum NAMES | sha256sum` does in their folder.

    Raises `UserError` as `files` does, and for a file that cannot be read.
    """
    place = own.weights.place
    try:
        stats = [(name, (place / name).stat()) for name in files(own)]
        return _hash(place, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))
    except OSError as error:
        raise UserError(f"{error.filename}: weights of {own.name} cannot be read: {error.strerror}") from None


@cache
def _hash(place: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Hash files once in a process: many settings of a sweep have the same gigabytes."""
    lines = (f"{atomic.sha256(place / name)}  {name}\n" for name, _, _ in stamps)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def proven(own: SettingsWithWeights) -> Path:
    """Return the folder of the weights, after a check of their files, and of their hash where it is known.

    Raises `UserError` naming the folder, what is wrong and the next step.
    """
    require_content(own, content(own))
    return own.weights.place


def require_content(own: SettingsWithWeights, computed: str) -> None:
    """Raise `UserError` where the hash of the files is another one than the settings say."""
    stated = own.weights.content
    if stated not in (None, computed):
        raise UserError(
            f"{own.weights.place}: weights of {own.name}: SHA-256 over {', '.join(files(own))} begins {computed[:12]}"
            f" and not {str(stated)[:12]}, as `content` says; put the right files back, or correct `content` and submit"
            " again"
        )


def _remedy(own: SettingsWithWeights) -> str:
    if own.weights.hub is not None:
        return "on a node with network 'hpcddm prefetch' fetches it, with the name of the experiment"
    names = [*own.layout.needed, *own.layout.either[:1], own.layout.weights[0]]
    return f"copy {' and '.join(names)} there, or name another folder in `weights`"
