"""Checks against the contract that bundles pass twice: before a site signs one, and before another site imports it."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.exchange.contract import AgreedExpert, Contract, flat_name
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.runs.contracts import require_vouched, run_contract
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import weights_names


def require_contract(run: RunDir) -> Contract:
    """Return the contract of a run.

    Raises:
        UserError: The run has none, it is damaged, or this user has not vouched for it.
    """
    require_vouched(run)
    contract = run_contract(run)
    if contract is None:
        raise UserError(
            f"{run.root}: this run has no contract, so nothing says what a bundle must hold; copy the folder of the"
            " unit as docs/copying-runs.md says"
        )
    return contract


def agreed_expert(contract: Contract, key: str) -> AgreedExpert:
    """Return what a contract says of an expert.

    Raises:
        UserError: It does not have the expert; the message names those that it has.
    """
    if key not in contract.experts:
        raise UserError(f"{key}: not an expert of the contract; its experts: {', '.join(contract.experts)}")
    return contract.experts[key]


def require_planned(run: RunDir, keys: Collection[str], key: str) -> None:
    """Check that a run plans an expert of its contract.

    Raises:
        UserError: It does not.
    """
    if key not in keys:
        raise UserError(
            f"{run.root}: this run has changed since the contract: it has no {key}; put the experiment back"
        )


def require_key(contract: Contract, site: str, key: PublicKey, place: object) -> None:
    """Check that a key may sign for a site today.

    Args:
        contract: The contract.
        site: The site.
        key: The key.
        place: What the key has signed, or shall sign, for the error.

    Raises:
        UserError: The key is not the site's in the contract, was revoked, or is not valid today.
    """
    agreed, today = contract.sites[site], datetime.now(UTC).date().isoformat()
    if agreed.key != key.text:
        reason = f"the key {key.fingerprint} is not that of {site} in the contract"
    elif agreed.is_revoked:
        reason = f"the key of {site} was revoked"
    elif today < agreed.valid_from:
        reason = f"the key of {site} is valid from {agreed.valid_from}, and today is {today}"
    elif today > agreed.valid_until:
        reason = f"the key of {site} was valid until {agreed.valid_until}"
    else:
        return
    raise UserError(
        f"{place}: {reason}; refused, sign with the right key, or ask {contract.coordinator} for a contract with a new"
        " one"
    )


def require_recipe(entry: AgreedExpert, settings: Mapping[str, Any], inputs: Mapping[str, str], context: str) -> None:
    """Check that an expert has the settings and inputs of its entry in the contract.

    Args:
        entry: The expert's entry.
        settings: Settings of the expert, by dotted key.
        inputs: Digests of its inputs.
        context: Beginning of the error.

    Raises:
        UserError: One differs; the message names the first key.
    """
    for here, agreed in ((settings, entry.settings), (inputs, entry.inputs)):
        for key in sorted(here.keys() | agreed.keys()):
            own, theirs = here.get(key), agreed.get(key)
            if own != theirs:
                raise UserError(
                    f"{context}: {printable(key)} is {printable(repr(own), 80)} instead of"
                    f" {printable(repr(theirs), 80)}; put the experiment and its data back as they were agreed on, or"
                    " agree on a new contract"
                )


def agreed_paths(experiment: Experiment, key: str, entry: AgreedExpert) -> dict[str, str]:
    """Return the paths in the unit's folder of the files that a contract wants of an expert, by their names there.

    Raises:
        UserError: The contract wants a file that the training does not write, or lacks the weights of the end.
    """
    written = {flat_name(path): path for path in weights_names(resolve_training(experiment, key).settings)}
    for name in entry.files:
        if name not in written:
            raise UserError(f"{key}: the contract wants {name}, which this training does not write; agree on a new one")
    require(WEIGHTS in entry.files, f"{key}: the contract does not want {WEIGHTS}, without which no expert is complete")
    return {name: written[name] for name in entry.files}


def require_same_files(names: Mapping[str, Any], entry: AgreedExpert, place: Path) -> None:
    """Check that a bundle has exactly the files of an expert's entry.

    Raises:
        UserError: A file is missing or was not agreed on; the message names it.
    """
    for name in entry.files:
        if name not in names:
            raise UserError(f"{place}: does not list {name}, which the contract wants; refused, ask for a whole bundle")
    for name in names:
        require(name in entry.files, f"{place}: lists {name}, which the contract does not want; refused")
