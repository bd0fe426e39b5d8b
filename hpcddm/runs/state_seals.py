"""Seals: in a run with a contract, training goes on only from states that this user's jobs saved.

Nothing inside a run vouches for itself, and a run of others that was copied over this one may bring states of experts
that are trained here. A seal is an HMAC of a state's description, which has the SHA-256 of all its files and snapshots.
A manifest has one, too, of its outputs: a site signs only experts that its own jobs have finished.
Its key comes from a secret of the user and the contract's id, and is kept in no file of the run. A job, which may not
see the secret, has the key in its environment from its submission.
"""

import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from typing import Any

from hpcddm.config import trusted_submissions
from hpcddm.runs.contracts import run_contract
from hpcddm.runs.manifest import Manifest, Output
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.training_states import SEAL, SEAL_VARIABLE, StateSeal

KEY_TEXT = re.compile("[0-9a-f]{64}")


def state_seal(run: RunDir, unit: str) -> StateSeal | None:
    """Return the seal of a unit's states; None in a run without a contract.

    Raises:
        UserError: The contract is damaged.
    """
    contract = run_contract(run)
    return None if contract is None else StateSeal(unit, _key(contract.id))


def output_seal(run: RunDir, unit: str, outputs: Sequence[Output]) -> dict[str, str]:
    """Return the seal of a unit's outputs for the record in its manifest; nothing in a run without a contract."""
    seal = state_seal(run, unit)
    sealed = {} if seal is None else seal.sealed(_digests(outputs))
    return {SEAL: sealed[SEAL]} if SEAL in sealed else {}


def is_own_result(run: RunDir, unit: str, made: Manifest) -> bool:
    """Tell if jobs of this user have made a unit's outputs under the contract of the run, which has one."""
    seal = state_seal(run, unit)
    return seal is not None and seal.holds({**_digests(made.outputs), SEAL: made.record.get(SEAL)})


def _digests(outputs: Sequence[Output]) -> dict[str, Any]:
    return {"outputs": {output.path: output.sha256 for output in outputs}}


def job_variables(run: RunDir) -> dict[str, str]:
    """Return what the environment of a run's jobs needs to seal; nothing for a run without a contract.

    Raises:
        UserError: The contract is damaged, or no secret can be stored.
    """
    if (contract := run_contract(run)) is None:
        return {}
    key = _key(contract.id) or _derived(trusted_submissions.make_secret(), contract.id)
    return {SEAL_VARIABLE: f"{contract.id}:{key.hex()}"}


def _key(contract: str) -> bytes | None:
    known, _, key = os.environ.get(SEAL_VARIABLE, "").partition(":")
    if known == contract and KEY_TEXT.fullmatch(key):
        return bytes.fromhex(key)
    secret = trusted_submissions.secret()
    return None if secret is None else _derived(secret, contract)


def _derived(secret: bytes, contract: str) -> bytes:
    return hmac.new(secret, f"training states under contract {contract}".encode(), hashlib.sha256).digest()
