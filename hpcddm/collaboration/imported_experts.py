"""Experts that cross between sites in a run with a contract: the commands for them, and from which bundle each came."""

from collections.abc import Iterable

from hpcddm.collaboration.bundle_checks import imported_bundle
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.exchange.bundle import SiteWord
from hpcddm.exchange.contract import Contract
from hpcddm.runs import manifest
from hpcddm.runs.contracts import own_sites, run_contract
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import probe_key, unit_name


def expert_origins(run: RunDir, keys: Iterable[str]) -> dict[str, str]:
    """Return from which bundle experts of other sites came, by key, as text; empty in a run without a contract.

    Args:
        run: The run.
        keys: Units; those that were not imported are left out.
    """
    contract = run_contract(run)
    if contract is None:
        return {}
    own, origins = own_sites(run), {}
    for key in (key for key in keys if key in contract.experts and contract.experts[key].site not in own):
        bundle = imported_bundle(run, key)
        if bundle is not None:
            origin = f"imported from {bundle.site} (bundle {bundle.number}){_said(bundle.word, contract)}"
            origins[key] = f"{origin}{_verdict(run, key)}"
    return origins


def _verdict(run: RunDir, key: str) -> str:
    """Return the verdict of the probe of an expert, as the end of a sentence; empty before it."""
    probe = manifest.read_if_usable(run.unit(probe_key(key)))
    if probe is None:
        return ""
    faults = probe.results.get("faults", [])
    accepted = printable(probe.results.get("accepted"), MAX_LINE_CHARACTERS)
    return f"; fails the probe ({printable(faults[0])}), taken because: {accepted}" if faults else "; passed the probe"


def agreed_versions(word: SiteWord, contract: Contract) -> list[str]:
    """List the site's word on the versions of the packages that the contract names."""
    return [f"{name} {version}" for name, version in (word.versions or {}).items() if name in contract.packages]


def _said(word: SiteWord, contract: Contract) -> str:
    """Return the site's word on its code and its packages; empty for none."""
    said = [*([f"code {word.code}"] if word.code else []), *agreed_versions(word, contract)]
    return f", by its word with {', '.join(said)}" if said else ""


def bundle_commands(run: RunDir, keys: Iterable[str]) -> tuple[tuple[object, ...], ...]:
    """Return the commands that pack experts for other sites; empty in a run without a contract."""
    names = _bundle_names(run, keys)
    return tuple(("hpcddm", "site", "bundle", run.root, key, "--output", name) for key, name in names.items())


def import_commands(run: RunDir, keys: Iterable[str]) -> tuple[tuple[object, ...], ...]:
    """Return the commands that take experts of other sites; empty in a run without a contract."""
    return tuple(("hpcddm", "site", "import", run.root, name) for name in _bundle_names(run, keys).values())


def _bundle_names(run: RunDir, keys: Iterable[str]) -> dict[str, str]:
    contract = run_contract(run)
    return {key: f"{contract.experiment.get('name')}-{unit_name(key)}" for key in keys} if contract else {}
