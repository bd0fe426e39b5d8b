"""Submission of a contract: asks whom to trust, prints costs, and makes the experiment of this site."""

import hashlib
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from hpcddm.collaboration.agreed_experiment import check_recipes, load_agreed
from hpcddm.collaboration.agreed_packages import check_packages
from hpcddm.collaboration.contract_checks import require_key
from hpcddm.commands.plan import print_plan
from hpcddm.config import paths, trusted_submissions
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import variants_of
from hpcddm.config.site import Site
from hpcddm.config.weights import Weights
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import echo, printable
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, ssh_keys
from hpcddm.exchange.contract import FILE, PARTITION, Contract
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.launch.run_folder import make_folder
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs.contracts import vouched
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment

PLAN_SECONDS = 40
"""Seconds for which what an unknown coordinator asks for is planned, with the measurement of its networks."""


@dataclass(frozen=True)
class AgreedSubmission:
    """A contract that somebody sent, and what of it this site does."""

    folder: Path
    contract: Contract
    key: PublicKey
    """Key that signed it."""
    run: RunDir
    site: Site
    overrides: tuple[str, ...]
    """Settings of this site."""

    def experiment(self, trusted: str | None, redo: Collection[str], is_dry_run: bool) -> Experiment:
        """Return the experiment of this site, once the user has trusted the coordinator.

        Args:
            trusted: Fingerprint that the user names.
            redo: Stages that are made again.
            is_dry_run: True to write nothing.

        Raises:
            UserError: The coordinator is not trusted yet, or this site does not have what was agreed on.
        """
        if trusted not in (None, self.key.fingerprint):
            reason = f"{self.folder / FILE} is signed by the key {self.key.fingerprint}"
            raise UserError(f"--trust {trusted}: {reason}; do not trust it, and ask the coordinator")
        check_packages(self.contract)
        self._check_revision()
        experiment = load_agreed(self.contract, self.folder, self.overrides)
        signed_folder.receive(self.folder, FILE, self.contract.files, None, lambda size: None)
        value = vouched(self.contract, self.site.name)
        if trusted is None and not any(trusted_submissions.is_known(place, value) for place in (self.run.root, None)):
            self._print_terms(experiment)
            ask = f"compare the fingerprint with the one that {self.contract.coordinator} tells you by another channel"
            raise UserError(f"{ask}, then add: --trust {self.key.fingerprint}")
        folder = self.folder
        if not is_dry_run:
            make_folder(self.run)
            folder = run_contracts.keep_contract(folder, self.contract, self.run)
            run_contracts.vouch(self.run, self.contract, self.site.name)
        experiment = with_content_hashes(load_agreed(self.contract, folder, self.overrides), self.run, redo=redo)
        check_recipes(self.contract, experiment, self.site.name)
        return experiment

    def _check_revision(self) -> None:
        if (current := run_contracts.current_folder(self.run)) is None:
            # Else its contract was lost, and is put back.
            if self.run.experiment.exists() and not self._is_followed():
                raise ConfigError(f"--run-dir {self.run.root}: a run without a contract; name another folder")
            return
        kept, _ = contracts.read_contract(current)
        if kept.id != self.contract.id:
            raise ConfigError(f"--run-dir {self.run.root}: has another contract; name another folder")
        if kept.revision > self.contract.revision:
            raise ConfigError(f"--contract {self.folder}: revision {kept.revision} is here already; name {current}")
        digest = hashlib.sha256((current / FILE).read_bytes()).hexdigest()
        if kept.revision + 1 == self.contract.revision and self.contract.previous != digest:
            raise UserError(f"{self.folder / FILE}: does not follow the revision that is here; ask the coordinator")

    def _is_followed(self) -> bool:
        """Return True if the run's clusters are the partition of this contract."""
        clustering = stored_experiment(self.run).cluster.clustering
        return getattr(clustering, "content_hash", None) == self.contract.files[PARTITION].sha256

    def _print_terms(self, experiment: Experiment) -> None:
        """Print who asks for what, what it costs here, and what it reads."""
        contract = self.contract
        echo(f"contract {contract.id}, revision {contract.revision}, of {contract.coordinator}")
        echo(f"signed by {self.key.fingerprint}")
        echo(f"data      licence: {contract.data.license}; terms: {contract.data.terms}")
        echo(f"trains    {', '.join(contract.units_of(self.site.name))}")
        values = experiment.model_dump()
        del values["cluster"]["clustering"]
        for holder, key in paths.find_paths(values, Experiment):
            echo(f"reads     {holder[key]}")
        echo(*(f"loads     {line}" for line in _networks(experiment)))
        try:
            with _limited_time():
                print_plan(experiment, self.run, self.site, speed=None, assume=None, as_json=False)
        except _TooLong:
            echo(f"costs     not told: to plan it takes more than {PLAN_SECONDS} seconds here")
        except (RuntimeError, ArithmeticError, MemoryError, ValueError) as error:
            # Sizes that are valid one by one, and too large together for the tensors that are counted.
            raise UserError(
                f"{self.folder / FILE}: its networks cannot be built ({printable(error)}); refused"
            ) from None


def _networks(experiment: Experiment) -> Iterator[str]:
    """Describe every network that somebody has published and that an experiment loads, with its key."""
    for key, variant in variants_of(experiment):
        own = getattr(variant, "weights", None)
        if isinstance(own, Weights):
            place = f"the hub's {own.hub}, revision {own.revision or 'main'}" if own.hub else f"your {own.folder}"
            yield f"{key}: {variant.name} from {place}; SHA-256 {own.content_hash or 'not stated'}"
        elif variant.pretrained:
            yield f"{key}: {variant.name} from {', '.join(dict.fromkeys(file.package for file in variant.pretrained))}"


class _TooLong(Exception):
    """A block has taken more than its time."""


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raise `_TooLong` in a block that takes more than `PLAN_SECONDS`: nobody vouches yet for what is planned."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PLAN_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def own_settings(name: str, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return this site's KEY=VALUE for a contract: without EXPERIMENT, the first of them takes its place."""
    if "=" in name:
        return (name, *overrides)
    if click.get_current_context().get_parameter_source("name") is not ParameterSource.DEFAULT:
        raise ConfigError(f"--contract: has its experiment; leave {name} out")
    return overrides


def open_submission(folder: Path, overrides: tuple[str, ...], site: Site, run_dir: Path | None) -> AgreedSubmission:
    """Read a contract that this site is to follow.

    Args:
        folder: Folder of the contract.
        overrides: Settings of this site as `key.key=value`.
        site: This site.
        run_dir: Folder of the run; None for runs/<the experiment's name>.

    Raises:
        UserError: The contract is malformed, or a key is not valid today.
        ConfigError: The contract has no expert for this site.
    """
    contract, key = contracts.read_contract(folder)
    if (agreed := contract.sites.get(site.name)) is None or not contract.units_of(site.name):
        names = ", ".join(name for name in contract.sites if contract.units_of(name))
        raise ConfigError(f"--site {site.name}: trains no expert of this contract; its sites: {names}")
    for owner, signer in ((contract.coordinator, key), (site.name, ssh_keys.parse_text(agreed.key))):
        require_key(contract, owner, signer, folder)
    name = contract.experiment.get("name")
    if run_dir is None and not (isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum()):
        raise ConfigError("--run-dir: name the folder of the run")
    return AgreedSubmission(folder, contract, key, RunDir(run_dir or Path("runs") / str(name)), site, overrides)
