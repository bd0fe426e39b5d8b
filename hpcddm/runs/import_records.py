"""Records of imports: `imports/<expert>/<number>-<digest>/` keeps the signed list of every bundle that a run has taken.

Numbers of bundles are those of a site: one that lost its run, or another site, counts from 1 again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.exchange.bundle import FILE, MAX_BYTES, Bundle
from hpcddm.exchange.contract import flat_name
from hpcddm.exchange.signed_folder import ListedFile, read_document
from hpcddm.exchange.signing import BUNDLE
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.files import atomic, checked_reads
from hpcddm.runs.contracts import accepted_keys, own_sites, run_contract
from hpcddm.runs.files import CURVE
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import trained_unit, unit_name

UNVERIFIED = "unverified"
ACCEPTED = "accepted_probe.json"
"""File of a record: why the expert is taken although it fails the probe."""


@dataclass(frozen=True)
class Acceptance:
    """Content of `ACCEPTED`."""

    reason: str
    day: str
    """In UTC."""


def record_folder(run: RunDir, bundle: Bundle) -> Path:
    """Return the folder of the record of a bundle; bundles that differ in their word alone have one."""
    files = {name: asdict(file) for name, file in sorted(bundle.files.items())}
    digest = atomic.digest([bundle.contract, bundle.recipe, bundle.site, files])
    return run.imports / unit_name(bundle.unit) / f"{bundle.number}-{digest[:12]}"


def read_signed_bundle(folder: Path) -> tuple[Bundle, PublicKey]:
    """Read the signed list of a bundle, and the key that signed it; whether to trust the key is for the caller.

    Raises:
        UserError: A file is missing or malformed, or the signature does not fit. The message names it.
    """
    return read_document(folder, FILE, Bundle, BUNDLE, MAX_BYTES)


def accepted_bundles(run: RunDir, key: str) -> list[Bundle]:
    """List the imported bundles of an expert that an accepted key of its site has signed, the newest first."""
    contract, folder = run_contract(run), run.imports / unit_name(key)
    if contract is None or key not in contract.experts or not folder.is_dir():
        return []
    site, found = contract.experts[key].site, []
    accepted = accepted_keys(run, site)
    for record in folder.iterdir():
        with suppress(UserError):
            bundle, signer = read_signed_bundle(record)
            is_its_own = (bundle.contract, bundle.unit, bundle.site) == (contract.id, key, site)
            if is_its_own and signer.text in accepted:
                found.append(bundle)
    return sorted(found, key=lambda bundle: bundle.number, reverse=True)


def counted_bundle(run: RunDir, key: str, outputs: Mapping[str, ListedFile]) -> Bundle | None:
    """Return the imported bundle that lists just these files of an expert, signed by an accepted key of its site.

    Sizes and SHA-256 are compared, not the bytes of the files, which are hashed when they are loaded.

    Args:
        run: The run; it has a contract.
        key: The expert, as `stage/unit`.
        outputs: Size and SHA-256 of every file of weights in its manifest, by path.
    """
    named = {flat_name(path): file for path, file in outputs.items()}
    return next((bundle for bundle in accepted_bundles(run, key) if bundle.files == named), None)


def accept_probe(run: RunDir, bundle: Bundle, reason: str) -> None:
    """Record that an expert is taken even if it fails the probe.

    Args:
        run: The run, whose lock the caller holds.
        bundle: The bundle; another one must pass the probe itself.
        reason: One line, which the report shows.
    """
    day = datetime.now(UTC).date().isoformat()
    atomic.write_json(record_folder(run, bundle) / ACCEPTED, asdict(Acceptance(reason, day)))


def accepted_reason(run: RunDir, key: str, outputs: Mapping[str, tuple[int, str]]) -> str | None:
    """Return why an expert is taken although it fails the probe; None if nobody has accepted that.

    Args:
        run: The run.
        key: The expert, as `stage/unit`.
        outputs: Size and SHA-256 of every file in its manifest, by path.
    """
    if (bundle := counted_bundle(run, key, _weights(outputs))) is None:
        return None
    path = record_folder(run, bundle) / ACCEPTED
    accepted: Acceptance | None = checked_reads.read_json(path, Acceptance, checked_reads.RECORD_BYTES)
    return accepted.reason if accepted else None


def unverified_reason(folder: Path, outputs: Mapping[str, tuple[int, str]]) -> str | None:
    """Return why a unit does not count: its run has a contract, and another site has not signed it; None otherwise.

    Experts count if this site trains them, or from a signed bundle. Of other networks, those of the contract's
    coordinator count where this site is the coordinator.

    Args:
        folder: Folder of the unit.
        outputs: Size and SHA-256 of every file in its manifest, by path.
    """
    if (unit := trained_unit(folder)) is None:
        return None
    run, key = RunDir(unit[0]), unit[1]
    try:
        contract = run_contract(run)
    except UserError as error:
        return str(error)
    if contract is None:
        return None
    site = contract.experts[key].site if key in contract.experts else contract.coordinator
    if site in own_sites(run) or counted_bundle(run, key, _weights(outputs)) is not None:
        return None
    return f"{UNVERIFIED}: is of site {site}, and no bundle of it was imported that lists these files"


def _weights(outputs: Mapping[str, tuple[int, str]]) -> dict[str, ListedFile]:
    """Return the files of an expert that a bundle lists: all but its loss curve."""
    return {path: ListedFile(*file) for path, file in outputs.items() if path != CURVE}
