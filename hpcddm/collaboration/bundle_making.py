"""Makes the bundle of an expert: checks what the contract wants of it, then copies, lists and signs it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from hpcddm.collaboration.contract_checks import (
    agreed_expert,
    agreed_paths,
    require_contract,
    require_key,
    require_planned,
    require_recipe,
)
from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.exchange import ssh_keys
from hpcddm.exchange.bundle import FILE, MAX_CURVE, Bundle, SiteWord
from hpcddm.exchange.contract import AgreedExpert, Contract
from hpcddm.exchange.signed_folder import write_folder
from hpcddm.exchange.signing import BUNDLE
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_complete, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.state_seals import is_own_result

Curve = Sequence[tuple[int, float]]
"""Images and mean loss."""


@dataclass(frozen=True)
class LastBundle:
    """The last bundle that was made of an expert, as the run keeps it."""

    number: int
    recipe: str
    files: dict[str, str]
    """SHA-256 of each file by its name in the bundle."""


def make_bundle(
    run: RunDir, experiment: Experiment, key: str, signer: Path, output: Path, word: SiteWord
) -> tuple[Bundle, PublicKey]:
    """Write the bundle of an expert to a new folder.

    Args:
        run: The run; it has a contract.
        experiment: Its experiment.
        key: The expert, as `stage/unit`.
        signer: Private key of the site.
        output: New folder.
        word: What the site says of the training; the bundle gets what the contract asks for.

    Returns:
        The bundle, as another site reads it, and the key that signed it.

    Raises:
        UserError: The expert is not complete or not what the contract wants, its files are damaged, or the key may not
            sign.
    """
    contract = require_contract(run)
    entry = agreed_expert(contract, key)
    require_key(contract, entry.site, ssh_keys.read_public(signer), f"--sign {signer}")
    made = _complete(run, experiment, key)
    require_recipe(entry, made.settings, made.inputs, f"{run.unit(key)}: is not what the contract wants of it")
    paths = agreed_paths(experiment, key, entry)
    digests = {name: _checked(run, contract, key, made, path) for name, path in paths.items()}
    curve = thinned(manifest.read_verified_json(run.unit(key), CURVE, list[tuple[int, float]]))
    number = _count(run, key, entry, digests)
    said = replace(word, **dict.fromkeys(one.name for one in fields(SiteWord) if one.name not in contract.provenance))
    bundle = Bundle("hpcddm bundle 1", contract.id, entry.digest, key, entry.site, number, curve, said, {})
    _require_new(output)
    write_folder(output, FILE, bundle, {name: run.output(key, path) for name, path in paths.items()}, signer, BUNDLE)
    written, public = read_signed_bundle(output)
    if {name: file.sha256 for name, file in written.files.items()} != digests or public != ssh_keys.read_public(signer):
        raise UserError(f"{output}: files or key changed while they were copied; remove it, and repeat this")
    return written, public


def thinned(curve: Curve) -> list[tuple[int, float]]:
    """Return at most `MAX_CURVE` points of a loss curve, the last one among them.

    Fifteen digits of a loss remain: a longer number is refused where the bundle is read.
    """
    step = max(1, math.ceil(len(curve) / MAX_CURVE))
    kept = list(reversed(curve))[::step]
    return [(images, float(f"{loss:.15g}")) for images, loss in reversed(kept)]


def _complete(run: RunDir, experiment: Experiment, key: str) -> Manifest:
    states = survey_units(plan_units(experiment), run)
    require_planned(run, states, key)
    require_complete(states, run, key)
    made = manifest.read(run.unit(key))
    if made is None:
        raise UserError(f"{key}: its manifest has gone meanwhile; repeat this")
    if not is_own_result(run, key, made):
        raise UserError(
            f"{run.unit(key)}: jobs of your account have not trained it under this contract, so it may be another"
            " site's; pack it with the account that trained it, or move this folder away and submit again"
        )
    return made


def _checked(run: RunDir, contract: Contract, key: str, made: Manifest, path: str) -> str:
    """Return the SHA-256 of a file of weights that is as its manifest and the contract say."""
    # numpy, which no other verb of the login node waits for.
    from hpcddm.exchange import tensor_check

    file = run.output(key, path)
    recorded = {output.path: output.sha256 for output in made.outputs}
    try:
        if path not in recorded or atomic.sha256(file) != recorded[path]:
            raise UserError(f"{file}: its bytes are not those of its manifest; make the unit again")
        tensor_check.check_weights(file, contract.table(key), lambda size: None)
    except FileNotFoundError:
        raise UserError(f"{file}: is missing; make the unit again") from None
    except Unreadable as error:
        raise UserError(f"{file}: {error.reason}, and the contract wants other tensors; make the unit again") from None
    return recorded[path]


def _count(run: RunDir, key: str, entry: AgreedExpert, digests: dict[str, str]) -> int:
    """Return the number of the bundle: that of the last one if it held the same, else the next."""
    place = run.bundles(key)
    last: LastBundle | None = checked_reads.read_json(place, LastBundle, checked_reads.RECORD_BYTES)
    if last and (last.recipe, last.files) == (entry.digest, digests):
        return last.number
    number = last.number + 1 if last else 1
    # Before the bundle: a number never means two bundles.
    atomic.write_json(place, asdict(LastBundle(number, entry.digest, digests)))
    return number


def _require_new(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output}: is not empty; name a new folder")
