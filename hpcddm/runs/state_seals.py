"""Seals: in a run with a contract, training goes on only from states that this user's jobs saved.

Nothing inside a run vouches for itself, and a run of others that was copied over this one may bring states of experts
that are trained here. A seal is an HMAC of a state's description, which has the SHA-256 of all its files and snapshots.
A manifest has one, too, of its outputs: a site signs only experts that its own jobs have finished.
Its key comes from a secret of the user and the contract's id, and is kept in no file of the run. A job, which may not
see the secret, has the key in its environment from its submission.
"""

import hashlib
import hmac
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.config import trusted_submissions
from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.runs.contracts import run_contract
from hpcddm.runs.manifest import Manifest, Output
from hpcddm.runs.run_dir import RunDir

VARIABLE = "HPCDDM_STATE_KEY"
"""Environment variable of a job: id of the contract and key of its seals."""
KEY_TEXT = re.compile("[0-9a-f]{64}")
SEAL = "seal"
"""Key of the seal in a state's description."""


@dataclass(frozen=True)
class StateSeal:
    """Seal of the states of one unit in a run with a contract; `key` is None where this user has none here."""

    unit: str
    key: bytes | None = field(repr=False)

    def sealed(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state's description with its seal."""
        return state if self.key is None else state | {SEAL: self._code(self.key, state)}

    def holds(self, state: dict[str, Any]) -> bool:
        """Tell if jobs of this user saved a state of this unit under this contract."""
        seal = state.get(SEAL)
        if self.key is None or not isinstance(seal, str):
            return False
        return hmac.compare_digest(seal.encode(errors="replace"), self._code(self.key, state).encode())

    def require_own(self, states: Sequence[tuple[Path, dict[str, Any]]]) -> None:
        """Raise `UserError` with folder and next step if this user's jobs have not saved one of some states."""
        foreign = [(folder, state) for folder, state in states if not self.holds(state)]
        if not foreign:
            return
        folder, state = foreign[-1]
        # States of one's own, if there are any, stay in place.
        place = printable(folder if len(foreign) < len(states) else folder.parent, 4096)
        known = "another account, contract or expert" if SEAL in state else "before the contract, or in another run"
        raise UserError(
            f"{self.unit}: your jobs have not saved the training state {printable(folder.name)} under this contract"
            f" ({known}), so it is not loaded: go on with the account that began it, or move {place} away to train"
            " without it"
        )

    def require_key(self) -> None:
        """Raise `UserError` if a job could not seal its states."""
        require(
            self.key is not None,
            f"{self.unit}: this job has no key for its training states ({VARIABLE} is not set, and your secret is not"
            " seen here): submit again, and leave --export out of the site's extra_sbatch",
        )

    def _code(self, key: bytes, state: dict[str, Any]) -> str:
        content = {"unit": self.unit, "state": {name: value for name, value in state.items() if name != SEAL}}
        return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


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
    contract = run_contract(run)
    if contract is None:
        return {}
    key = _key(contract.id) or _derived(trusted_submissions.make_secret(), contract.id)
    return {VARIABLE: f"{contract.id}:{key.hex()}"}


def _key(contract: str) -> bytes | None:
    known, _, key = os.environ.get(VARIABLE, "").partition(":")
    if known == contract and KEY_TEXT.fullmatch(key):
        return bytes.fromhex(key)
    secret = trusted_submissions.secret()
    return None if secret is None else _derived(secret, contract)


def _derived(secret: bytes, contract: str) -> bytes:
    return hmac.new(secret, f"training states under contract {contract}".encode(), hashlib.sha256).digest()
