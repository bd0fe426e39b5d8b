"""The bundle of an expert: what a site hands over of a training, listed and signed in `bundle.json`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from hpcddm.exchange.contract import MAX_PARTIES, Count, Line, UnitKey
from hpcddm.exchange.signed_folder import FileName, ListedFile, Sha256, require_size
from hpcddm.exchange.site_identity import SiteName

FILE = "bundle.json"
MAX_BYTES = 1 << 20
"""Largest size of `bundle.json`."""
MAX_FILE_BYTES = 1 << 40
"""Largest size of all files of a bundle; what an expert's files may have, the contract says."""
MAX_LEVELS = 16
"""Most noise levels of a probe."""
MAX_CURVE = 2000
"""Most points of a loss curve; a longer one is thinned."""
Quantity = Annotated[float, Field(ge=0, lt=1e15)]
Losses = Annotated[list[Quantity], Field(max_length=MAX_LEVELS)]


@dataclass(frozen=True)
class SiteWord:
    """Statements of the site about a training, which are shown and never computed with; None for each that it omits."""

    gpu_hours: Quantity | None = None
    gpu: Line | None = None
    """Kind of the GPUs."""
    gpus: Count | None = None
    ranks: Count | None = None
    skipped_steps: Count | None = None
    code: Line | None = None
    """Digest of the code."""
    versions: dict[FileName, Line] | None = None
    """Versions of Python and of the packages."""
    probe_losses: Annotated[list[Losses], Field(max_length=MAX_PARTIES)] | None = None
    """Its own probe of the expert: the loss on held-out images of every cluster, by noise level."""


@dataclass(frozen=True)
class Bundle:
    """Content of `bundle.json`."""

    format: Literal["hpcddm bundle 1"]
    contract: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """The contract's id."""
    recipe: Sha256
    """Digest of the expert's own entry in the contract."""
    unit: UnitKey
    site: SiteName
    number: Annotated[int, Field(ge=1, lt=1_000_000)]
    """Counted up by the site with every bundle of this expert."""
    curve: Annotated[list[tuple[Count, Annotated[float, Field(gt=-1e15, lt=1e15)]]], Field(max_length=MAX_CURVE)]
    """Images and mean loss, in ascending order."""
    word: SiteWord
    files: dict[FileName, ListedFile]

    def __post_init__(self) -> None:
        """Raise `ValueError` for more bytes than any expert has."""
        require_size(self.files, MAX_FILE_BYTES)
