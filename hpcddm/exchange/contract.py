"""The contract of a collaboration: what every site trains, with which keys it signs, and what may differ.

`contract.json` is signed by the coordinator and is next to its signature and the files that it lists. A run keeps each
revision in a folder of `contract/`. Whoever receives one trusts nothing in it: `agreed_experiment` checks what it makes
a site do.
"""

from dataclasses import asdict, dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from hpcddm.errors import UserError, require
from hpcddm.exchange import signed_folder, ssh_keys
from hpcddm.exchange.signed_folder import FileName, ListedFile, Sha256
from hpcddm.exchange.signing import CONTRACT
from hpcddm.exchange.site_identity import SiteName
from hpcddm.exchange.ssh_keys import Malformed, PublicKey
from hpcddm.files import checked_reads
from hpcddm.files.atomic import digest
from hpcddm.files.tensor_file import TensorSpec

FILE = "contract.json"
PARTITION, PROBE = "partition.safetensors", "probe.safetensors"
MAX_BYTES = checked_reads.MANIFEST_BYTES
"""Largest size of `contract.json`."""
MAX_FILE_BYTES = 64 << 30
"""Largest size of all other files of a contract."""
NOT_STATED = "not stated"
"""License or terms of data about which the coordinator says nothing."""
MAX_PARTIES = 1000
"""Most sites, and most experts, of a contract."""
UnitKey = Annotated[str, StringConstraints(pattern=r"^train/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Day = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
"""A day, as 2026-11-30."""
Line = Annotated[str, StringConstraints(max_length=400)]


@dataclass(frozen=True)
class AgreedTensor:
    """Type and shape of a tensor of the weights."""

    dtype: Literal["F32", "F16", "BF16"]
    shape: Annotated[list[Count], Field(max_length=8)]

    @property
    def spec(self) -> TensorSpec:
        """The same as other modules have it."""
        return TensorSpec(self.dtype, tuple(self.shape))


@dataclass(frozen=True)
class AgreedSite:
    """Key of a site, and the days on which it may sign, in UTC; both days are included."""

    key: Annotated[str, StringConstraints(max_length=100)]
    valid_from: Day
    valid_until: Day
    is_revoked: bool = False


@dataclass(frozen=True)
class AgreedExpert:
    """Recipe of one expert; a bundle names its digest, so that a change of another expert makes none stale."""

    site: SiteName
    settings: dict[str, Any]
    """Settings in the fingerprint of its training, by dotted key."""
    inputs: dict[str, Sha256]
    """Digests of what it is trained on, as in the fingerprint: its list, and latents or captions if there are any."""
    samples: Count
    images: Count
    batch: Count
    flops_per_image: Count
    """FLOPs of one training image, forward and backward."""
    files: Annotated[list[FileName], Field(min_length=1, max_length=1000)]
    """Files of weights in its bundle: those at the end, and those of the snapshots."""
    tensors: Sha256
    """Digest of the table of tensors that each of these files has."""
    parameters: Count

    @property
    def digest(self) -> str:
        """Hash of the whole recipe."""
        return digest(asdict(self))


@dataclass(frozen=True)
class AgreedData:
    """Identity of the images, and the terms on which sites may use them."""

    content_hash: Sha256
    train: Count
    heldout: Count
    license: Line
    terms: Line


@dataclass(frozen=True)
class Contract:
    """Content of `contract.json`."""

    format: Literal["hpcddm contract 1"]
    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """Name of the collaboration's contract in all its revisions."""
    revision: Annotated[int, Field(ge=1, lt=1_000_000)]
    previous: Sha256 | None
    """SHA-256 of the revision before."""
    coordinator: SiteName
    sites: Annotated[dict[SiteName, AgreedSite], Field(max_length=MAX_PARTIES)]
    experiment: dict[str, Any]
    """Settings that experts depend on, nested as in the YAML file, without any path."""
    experts: Annotated[dict[UnitKey, AgreedExpert], Field(max_length=MAX_PARTIES)]
    tables: dict[Sha256, dict[str, AgreedTensor]]
    """Tables of tensors, by their digests."""
    data: AgreedData
    packages: dict[FileName, Line]
    """Versions of packages that are accepted, such as '>=2.13,<2.14'."""
    provenance: list[FileName]
    """What a site says of a training in its bundle, by the names of `SiteWord`."""
    files: dict[FileName, ListedFile]

    def __post_init__(self) -> None:
        """Raise `ValueError` for parts that do not fit each other, or larger files than any contract has."""
        signed_folder.require_size(self.files, MAX_FILE_BYTES)
        for site in self.sites.values():
            _require_key(site)
        for key, expert in self.experts.items():
            require(expert.site in self.sites, f"{key}: its site is not among the sites", ValueError)
            require(expert.tensors in self.tables, f"{key}: its table of tensors is missing", ValueError)
        for name, table in self.tables.items():
            if digest({own: asdict(tensor) for own, tensor in table.items()}) != name:
                raise ValueError("tables: a table has another digest")
        if self.coordinator not in self.sites or self.sites[self.coordinator].is_revoked:
            raise ValueError("coordinator: has no valid key among the sites")

    def table(self, key: str) -> dict[str, TensorSpec]:
        """Return type and shape of each tensor of an expert's weights by name."""
        return {name: tensor.spec for name, tensor in self.tables[self.experts[key].tensors].items()}

    def units_of(self, site: str) -> list[str]:
        """List the experts that a site trains, as `stage/unit`."""
        return [key for key, expert in self.experts.items() if expert.site == site]


def _require_key(site: AgreedSite) -> None:
    try:
        ssh_keys.parse_text(site.key)
        first, last = date.fromisoformat(site.valid_from), date.fromisoformat(site.valid_until)
    except (Malformed, ValueError) as error:
        raise ValueError(f"sites: {error}") from None
    require(first <= last, "sites: a key is valid until a day before its first", ValueError)


def read_contract(folder: Path) -> tuple[Contract, PublicKey]:
    """Read a contract that somebody sent, and the key that signed it; whether to trust the key is for the caller.

    Raises:
        UserError: A file is missing or malformed, or the coordinator's key did not sign it. The message names it.
    """
    return parse_contract(folder, *signed_folder.read_signed(folder, FILE, MAX_BYTES))


@lru_cache(maxsize=16)
def parse_contract(folder: Path, content: bytes, armoured: bytes) -> tuple[Contract, PublicKey]:
    """Return a contract, and the key that signed it, from the bytes of `read_signed`; errors as for `read_contract`.

    A run's contract is looked up for every unit, and its tables of tensors may have megabytes: the same bytes are
    parsed once.
    """
    contract, key = signed_folder.parse_signed(folder / FILE, content, armoured, Contract, CONTRACT)
    if ssh_keys.parse_text(contract.sites[contract.coordinator].key) != key:
        raise UserError(f"{folder / FILE}: is not signed by the coordinator's key; refused")
    return contract, key


def flat_name(path: str) -> str:
    """Return the name in a bundle of a file of weights in a unit's folder.

    Examples:
        >>> flat_name("weights.safetensors"), flat_name("snapshots/images-000000004096.safetensors")
        ('weights.safetensors', 'images-000000004096.safetensors')
    """
    return path.rpartition("/")[2]
