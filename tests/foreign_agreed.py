"""A finished run under a contract by which the unit that others wrote is of another site, and hostile runs over it."""

import os
import sys
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import ssh_keys
from hpcddm.exchange.contract import Contract
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs.run_dir import RunDir
from tests.foreign_cases import UNIT
from tests.helpers import hpcddm
from tests.whole_runs import TINY

SITE, OTHER = "two-ranks", "elsewhere"
AGREED = (*TINY, f"site={SITE}", f"experts.sites=[{SITE}, {SITE}, {OTHER}, {SITE}]")
"""Settings of the finished run whose third expert is of another site."""
UNVERIFIED, UNSEALED = f"unverified: is of site {OTHER}", "under this contract (before the contract, or in another run)"
READ_BEFORE_REFUSAL = ("manifest.json", ".lease", "state.json")
"""Files of a unit that may be read to know that it is refused."""


def agree(run: Path, site: Path, folder: Path) -> Contract:
    """Put a finished run under a contract, with the keys of both sites in a folder."""
    for name in (SITE, OTHER):
        ssh_keys.make_key(folder / f"{name}.key")
    done = hpcddm("submit", "quickstart", "--site", site, "--run-dir", run, *AGREED)
    assert done.exit_code == 0 and "nothing to submit" in done.output, done.output
    done = hpcddm("site", "key", OTHER, "--key", folder / f"{OTHER}.key", "--output", folder / "sent-key")
    assert done.exit_code == 0, done.output
    trusted = ("--site", folder / "sent-key", "--trust", ssh_keys.read_public(folder / f"{OTHER}.key").fingerprint)
    sent = ("--output", folder / "sent", "--sign", folder / f"{SITE}.key")
    done = hpcddm("site", "contract", run, *sent, *trusted)
    assert done.exit_code == 0, done.output
    return contracts.read_contract(folder / "sent")[0]


def vouch(run: Path) -> None:
    """Let the user be known to have submitted this copy of the run, as the one who did is."""
    contract = run_contracts.run_contract(RunDir(run))
    assert contract is not None
    trusted_submissions.remember(run, run_contracts.vouched(contract, SITE))
    trusted_submissions.make_secret()


class Watch:
    """Notes which files of the unit of others this process, or a fork of it, opens; one hook serves all."""

    def __init__(self) -> None:
        self.noted: Path | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.noted is None or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path, mode = os.fsdecode(arguments[0]), arguments[1]
        is_read = mode is None or "r" in str(mode)
        if (
            f"/{UNIT}/" in path
            and f"/logs/{UNIT}/" not in path
            and is_read
            and Path(path).name not in READ_BEFORE_REFUSAL
            and not os.path.isdir(path)
        ):
            noted, self.noted = self.noted, None
            with open(noted, "a") as file:
                file.write(f"{path}\n")
            self.noted = noted
