"""The verb site contract: writes what all sites of a collaboration agree on, signed by the coordinator."""

import hashlib
import shutil
import tempfile
from pathlib import Path

import click

from hpcddm.commands.options import PATH, RUN
from hpcddm.commands.sites.site_key import SIGN, own_key
from hpcddm.commands.terminal import make_table, print_table
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.next_step import command
from hpcddm.errors.printing import echo
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, signing, site_identity, ssh_keys
from hpcddm.exchange.contract import FILE, NOT_STATED, PARTITION, PROBE, Contract
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs import group_permissions
from hpcddm.runs.lease import PATIENCE_SECONDS, lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths


@click.command("contract")
@RUN
@click.option("--output", type=PATH, required=True, help="New folder, which goes to every site.")
@SIGN
@click.option("--site", "folders", type=PATH, multiple=True, help="Folder that 'hpcddm site key' wrote at a site.")
@click.option("--trust", "trusted", multiple=True, metavar="FINGERPRINT", help="That of a --site, told by its people.")
@click.option("--revoke", multiple=True, metavar="SITE", help="Accept nothing more that this site's key signs.")
@click.option("--license", default=None, help="Licence of the data, for every site to read.")
@click.option("--terms", default=None, help="Terms on which sites may use the data.")
def site_contract(
    run: RunDir,
    output: Path,
    key: Path | None,
    folders: tuple[Path, ...],
    trusted: tuple[str, ...],
    revoke: tuple[str, ...],
    license: str | None,
    terms: str | None,
) -> None:
    """Write the contract of RUN, for sites that train some of its experts.

    RUN has its lists: 'hpcddm submit EXPERIMENT --until expert_lists' makes them. The experiment names the coordinator
    as `site`, and the site of every expert in `experts.sites`. The contract holds each expert's recipe, the partition,
    hashes of images and encoders, and the keys of all sites, but no path. Called again, the command writes the next
    revision, which names the one before: with a new key of a site, or without one that was stolen.

    \b
    Example: hpcddm site contract runs/cells --output cells-contract --site uni-b-key --trust SHA256:kmYc...
    Next:    send the folder cells-contract/ to all sites, and tell them your fingerprint
    """
    path = own_key(key)
    experiment = with_absolute_paths(stored_experiment(run), run)
    require(not output.exists(), f"--output {output}: exists; name a new folder", ConfigError)
    own, keys = ssh_keys.read_public(path), _trusted_keys(folders, trusted)
    group_permissions.prepare_writes(run.root)
    with lease(run.lock, "hpcddm site contract", PATIENCE_SECONDS):
        before, previous = _revision_before(run)
        if before is not None:
            _require_coordinator(before, experiment, own, keys)
        elif experiment.site is not None:
            keys = {experiment.site: own} | keys
        said = before.data if before else None
        license = license or (said.license if said else NOT_STATED)
        terms = terms or (said.terms if said else NOT_STATED)
        # torch takes seconds to import, and only this verb of the group needs the networks.
        from hpcddm.collaboration.contract_making import Terms, make_contract

        draft = make_contract(run, experiment, Terms(license, terms, keys, revoke), before, previous)
        written = _write(run, experiment, draft, path, output)
    _print(written, own, output)


def _write(run: RunDir, experiment: Experiment, draft: Contract, key: Path, output: Path) -> Contract:
    """Put the next revision into the run, then to where it is sent from."""
    from hpcddm.collaboration.contract_making import write_partition, write_probe

    with tempfile.TemporaryDirectory() as scratch:
        files = {name: Path(scratch) / name for name in (PARTITION, PROBE)}
        write_partition(run, files[PARTITION])
        write_probe(run, experiment, files[PROBE])
        sent = Path(scratch) / "contract"
        written = signed_folder.write_folder(sent, FILE, draft, files, key, signing.CONTRACT)
        contracts.read_contract(sent)
        # First in the run: two contracts never have one revision.
        kept = run_contracts.keep_contract(sent, written, run)
        run_contracts.vouch(run, written, written.coordinator)
        _hand_out(sent, output, kept)
    return written


def _hand_out(sent: Path, output: Path, kept: Path) -> None:
    try:
        shutil.copytree(sent, output)
    except OSError as error:
        shutil.rmtree(output, ignore_errors=True)
        why = error.strerror or f"{error.args[0][0][2]}"
        raise UserError(f"--output {output}: cannot be written ({why}); the contract is in {kept}, send that") from None


def _revision_before(run: RunDir) -> tuple[Contract | None, str | None]:
    if (folder := run_contracts.current_folder(run)) is None:
        return None, None
    return contracts.read_contract(folder)[0], hashlib.sha256((folder / FILE).read_bytes()).hexdigest()


def _trusted_keys(folders: tuple[Path, ...], trusted: tuple[str, ...]) -> dict[str, PublicKey]:
    """Read the keys of sites; the user has compared the fingerprint of each."""
    keys: dict[str, PublicKey] = {}
    for folder in folders:
        name, key = site_identity.read_identity(folder)
        if key.fingerprint not in trusted:
            raise UserError(
                f"--site {folder}: the key of {name} has the fingerprint {key.fingerprint}; compare it with the one"
                f" that {name} tells you by another channel, then add: --trust {key.fingerprint}"
            )
        require(name not in keys, f"--site {folder}: {name} is named twice", ConfigError)
        keys[name] = key
    if surplus := set(trusted) - {key.fingerprint for key in keys.values()}:
        raise ConfigError(f"--trust {min(surplus)}: no --site has this key; name the folder that the site sent")
    return keys


def _require_coordinator(before: Contract, experiment: Experiment, own: PublicKey, keys: dict[str, PublicKey]) -> None:
    """Raise an error where somebody other than the coordinator would write the next revision."""
    name = before.coordinator
    if experiment.site != name:
        raise ConfigError(f"site: is {experiment.site}, and the contract is of {name}, which writes every revision")
    agreed = keys.get(name) or ssh_keys.parse_text(before.sites[name].key)
    if own != agreed:
        raise UserError(
            f"the contract is of {name}, whose key is {agreed.fingerprint}, and --sign is {own.fingerprint}; only"
            f" {name} writes revisions. If this is its new key, name the folder of"
            f" '{command('hpcddm', 'site', 'key', name)}' with --site and --trust, too"
        )


def _print(contract: Contract, own: PublicKey, output: Path) -> None:
    rows = []
    for name, site in contract.sites.items():
        key = ssh_keys.parse_text(site.key).fingerprint
        until = "revoked" if site.is_revoked else site.valid_until
        experts = [unit.removeprefix("train/") for unit in contract.units_of(name)]
        role = " (coordinator)" if name == contract.coordinator else ""
        rows.append((name + role, key, until, ", ".join(experts) or "-"))
    columns = ("site", "fingerprint", "valid until", "experts")
    print_table(make_table(columns, rows, left=columns))
    echo(f"contract {contract.id}, revision {contract.revision}, in {output}/")
    echo(f"send {output}/ to all sites, and tell them your fingerprint by another channel: {own.fingerprint}")
