"""A finished run under a contract by which the unit that others wrote is of another site, and hostile runs over it."""

import json
import os
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, signing, ssh_keys
from hpcddm.exchange.bundle import Bundle, SiteWord
from hpcddm.exchange.contract import AgreedSite, Contract, flat_name
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs import import_records, manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.run_dir import RunDir
from tests.foreign_cases import UNIT, Beside, edited
from tests.foreign_units import CASES, scaled, weights
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


def hostile_run(beside: Beside, agreed: Contract, folder: Path) -> Path:
    """A run of others, made of this one: contract, bundle, journal, code, hook, template and units of their own."""
    run = RunDir(Path(shutil.copytree(beside.run, folder / "hostile", symlinks=True)))
    ssh_keys.make_key(folder / "hostile.key")
    theirs = Beside(run.root, beside.victim, beside.canary)
    weights(scaled)(theirs)
    key = ssh_keys.read_public(folder / "hostile.key").text
    site = AgreedSite(key, "2020-01-01", "2999-12-31")
    sites = dict.fromkeys(agreed.sites, site)
    # One with every key replaced, which follows ours, and one of which the sender is the coordinator.
    for revision, coordinator in ((2, SITE), (3, OTHER)):
        changed = replace(agreed, revision=revision, coordinator=coordinator, sites=sites)
        place = run_contracts.revision_folder(run, revision)
        signed_folder.write_folder(place, contracts.FILE, changed, {}, folder / "hostile.key", signing.CONTRACT)
    made = json.loads((run.unit(UNIT) / "manifest.json").read_text())
    files = {flat_name(own["path"]): ListedFile(own["size"], own["sha256"]) for own in made["outputs"]}
    files.pop(flat_name(CURVE), None)
    recipe = agreed.experts[UNIT].digest
    bundle = Bundle("hpcddm bundle 1", agreed.id, recipe, UNIT, OTHER, 1, [], SiteWord(), files)
    record, content = import_records.record_folder(run, bundle), json.dumps(asdict(bundle)).encode()
    record.mkdir(parents=True)
    (record / import_records.FILE).write_bytes(content)
    signature = signing.sign_here(content, folder / "hostile.key", signing.BUNDLE)
    (record / f"{import_records.FILE}.sig").write_bytes(signature)
    lines = run.journal.read_text().replace(f'"site": "{SITE}"', f'"site": "{OTHER}"')
    run.journal.write_text(lines)
    for name in ("code of this digest", "hook", "template"):
        CASES[name].make(theirs)
    CASES["hook"].before_retry(theirs)
    for script in run.scripts.glob("*") if run.scripts.is_dir() else ():
        script.write_text(f"touch {beside.canary}\n")
    edited(run.experiment, lambda values: values.update(site=OTHER))
    return run.root


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


def is_own(run: Path) -> bool:
    """Tell if the run's contract and sites are still those that the user vouched for."""
    contract = run_contracts.run_contract(RunDir(run))
    return contract is not None and contract.coordinator == SITE and run_contracts.own_sites(RunDir(run)) == {SITE}


def is_complete(run: Path, key: str = UNIT) -> bool:
    return manifest.read_if_usable(RunDir(run).unit(key)) is not None
