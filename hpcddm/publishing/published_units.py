"""Selection of the parts of a run to publish, with every reason that forbids a publication."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.schema import variants_of
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import quoted
from hpcddm.exchange.contract import NOT_STATED
from hpcddm.loading.ensemble_document import LINE_LENGTH, is_harmless
from hpcddm.pipeline.required_units import single_models, units_of_strategy
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, describe, require_complete, survey_units
from hpcddm.publishing.published_settings import encoder_files
from hpcddm.runs import manifest
from hpcddm.runs.contracts import run_contract
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.links import require_own
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG, CLUSTER, EXPERT_LISTS, LATENT_SCALE, REPORT, ROUTER, expert_keys, probe_key
from hpcddm.runs.unit_training import autoencoder_keys, latent_space


@dataclass(frozen=True)
class Publication:
    """Selected parts of a run: strategies, the networks that they need, license and terms."""

    strategies: Sequence[str]
    units: Sequence[str]
    """Units of the networks."""
    without: Sequence[str]
    """Experts that are left out."""
    lists: Manifest
    """Manifest of the expert lists."""
    license: str = ""
    terms: str = ""
    is_bf16: bool = False
    has_encoders: bool = False
    signer: Path | None = None


def default_strategies(experiment: Experiment) -> list[str]:
    """List the strategies that the run evaluates, without those that read clusters of images, which nobody else has."""
    labels = [parse_strategy(name).label for name in experiment.evaluate.strategies]
    return [label for label in labels if EXPERT_LISTS not in units_of_strategy(experiment, label)]


def select_units(
    run: RunDir, experiment: Experiment, strategies: Sequence[str], without: Collection[str]
) -> tuple[list[str], Manifest]:
    """Return the units of the networks that strategies need, and the manifest of the expert lists.

    Args:
        run: The run.
        experiment: Its settings.
        strategies: Strategies, or names of single models.
        without: Experts to leave out.

    Raises:
        ConfigError: A strategy or an expert is unknown, or a variant is the user's own.
        UserError: A unit is not complete, or an expert has failed its probe. The message says how to leave it out.
    """
    for place, variant in variants_of(experiment):
        if f"{variant.package}/{variant.name}.py" in variants.user_files():
            raise ConfigError(f"{place}: '{variant.name}' is a variant of yours, which others do not have")
    experts = expert_keys(experiment)
    if unknown := next((key for key in without if key not in experts), None):
        raise ConfigError(f"--without {unknown}: not an expert of this run; valid names: {', '.join(experts)}")
    needed: dict[str, None] = {}
    for strategy in strategies:
        units = units_of_strategy(experiment, strategy, "--strategies")
        if EXPERT_LISTS in units and strategy not in single_models(experiment):
            raise ConfigError(f"--strategies {strategy}: reads clusters of images, which only the run has")
        if strategy in single_models(experiment) and units[0] in without:
            raise ConfigError(f"--strategies {strategy}: is left out by --without; name it in one of the two")
        needed |= dict.fromkeys(units)
    networks = [key for key in sorted(needed, key=lambda key: key == ROUTER) if key not in (*without, EXPERT_LISTS)]
    networks += autoencoder_keys(experiment)
    if not set(networks) & set(experts) and without:
        raise ConfigError(f"--without {', '.join(without)}: leaves no expert")
    others = [CATALOG, CLUSTER, EXPERT_LISTS, REPORT, *([LATENT_SCALE] if latent_space(experiment) else [])]
    states = survey_units(plan_units(experiment), run)
    for key in networks:
        require_own(run, key)
        if key in experts:
            _require_publishable(states, run, key)
    require_complete(states, run, *networks, *others)
    lists = manifest.read(run.unit(EXPERT_LISTS))
    if lists is None:
        raise UserError(f"{EXPERT_LISTS}: its manifest has gone meanwhile; repeat this")
    return networks, lists


def _require_publishable(states: dict[str, UnitStatus], run: RunDir, key: str) -> None:
    """Raise `UserError` for an expert that is not complete, not verified, or has failed its probe."""
    for own in (key, probe_key(key)):
        if own in states and states[own].state is not State.COMPLETE:
            reason = f"{own} is {describe(states[own], run)}; to publish the others add --without {key}"
            raise UserError(str(step("hpcddm", "status", run.root, reason=reason)))


def agreed_terms(run: RunDir, license_id: str | None, terms: str | None) -> tuple[str, str]:
    """Return license and terms; those of a contract hold for what is made of its images.

    Raises:
        ConfigError: A text is longer than a line, or has characters that nobody sees.
        UserError: The run has a contract with terms, and they are not repeated: nobody else can say whether they allow
            a publication.
    """
    for option, text in (("--license", license_id), ("--terms", terms)):
        if text is not None and (len(text) > LINE_LENGTH or not is_harmless(text)):
            raise ConfigError(f"{option}: needs one line of at most {LINE_LENGTH} printable characters")
    contract = run_contract(run)
    stated = contract.data.license if contract else ""
    if license_id is not None and stated not in ("", NOT_STATED, license_id):
        raise ConfigError(f"--license {license_id}: the contract states {stated}; leave this out")
    license_id = license_id or stated
    agreed = contract.data.terms if contract else NOT_STATED
    if agreed not in ("", NOT_STATED, terms):
        raise UserError(
            f"{run.root}: its contract has terms, which may forbid a publication. Where they allow it, add --terms"
            f" {quoted(agreed)}; where they forbid it for the experts of another site, also --without UNIT"
        )
    return "" if license_id == NOT_STATED else license_id, terms or ""


def size_of(run: RunDir, experiment: Experiment, publication: Publication) -> int:
    """Estimate the bytes of the folder: weights, their copies for diffusers, and public weights."""
    weights = sum((run.unit(key) / WEIGHTS).stat().st_size for key in publication.units)
    copied = sum(path.stat().st_size for path in encoder_files(experiment).values()) if publication.has_encoders else 0
    return weights * (3 if publication.is_bf16 else 4) // 2 + copied
