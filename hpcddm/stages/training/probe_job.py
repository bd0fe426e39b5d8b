"""Stage probe: the losses of an expert of another site on held-out images of every cluster, and the verdict."""

import math

import numpy as np

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment, ProbeRule
from hpcddm.data import run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import command
from hpcddm.evaluation import expert_probe
from hpcddm.evaluation.expert_probe import ProbeLosses
from hpcddm.exchange.contract import PROBE
from hpcddm.files import atomic, tensors
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.contracts import current_folder, own_sites
from hpcddm.runs.files import PROBE_FILE
from hpcddm.runs.import_records import accepted_reason
from hpcddm.runs.manifest import sizes_and_digests
from hpcddm.runs.ranges import HELDOUT, PROBE_SAMPLES
from hpcddm.runs.unit_keys import expert_key, unit_name
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import selected_weights
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.heldout_loss import LEVELS, HeldoutLoss
from hpcddm.stages.progress import advance
from hpcddm.stages.training.probe import probed_expert
from hpcddm.stages.workload import Work, Workload

MIN_SAMPLES = 8
"""Fewest held-out images of a cluster that count: the best constant prediction is their mean, and n of them flatter it
by a share of 1 / n."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Measure the expert, and fail if it breaks the rule and nobody has accepted that."""
    number = probed_expert(unit.key)
    key = expert_key(number)
    reader = run_samples.open_reader(unit, HELDOUT)
    probe = run_samples.probe_samples(run_samples.open_unit_catalog(unit, HELDOUT), experiment)
    _require_agreed_images(unit, reader, probe)
    losses = _measure(experiment, unit, number, probe)
    faults = expert_probe.faults(losses, number, experiment.experts.probe or ProbeRule())
    accepted = accepted_reason(unit.run, key, sizes_and_digests(unit.inputs[key].outputs)) if faults else None
    if faults and accepted is None:
        values = [loss for row in (*losses.losses, losses.unconditional) for loss in row]
        is_finite = all(loss is not None and math.isfinite(loss) for loss in values)
        raise UserError(_refusal(experiment, unit, key, faults, is_finite))
    atomic.write_json(unit.folder / PROBE_FILE, losses.as_json())
    return Result([PROBE_FILE], {"faults": faults, "accepted": accepted})


def work(workload: Workload, key: str) -> list[Work]:
    """List the passes over the held-out images of all clusters."""
    experiment = workload.experiment
    passes = experiment.cluster.experts + (experiment.experts.condition_dropout > 0)
    images = len(LEVELS) * PROBE_SAMPLES * passes
    return [Work(workload.denoiser(probed_expert(key)), False, images, PROBE_SAMPLES)]


def _require_agreed_images(unit: Unit, reader: CatalogReader, probe: list[np.ndarray]) -> None:
    """Check that the images are those in the contract, if the run has one."""
    folder = current_folder(unit.run)
    if folder is None:
        return
    with tensors.open_weights(folder / PROBE) as file:
        agreed = tensors.read(file, list(file.forms))
    for cluster, numbers in enumerate(probe):
        images = agreed.get(f"images-{cluster:02d}")
        is_same = images is not None and np.array_equal(images.numpy(), reader.images(numbers))
        require(
            is_same,
            f"{folder / PROBE}: holds other images of cluster {cluster} than this run; compare data.source with the"
            " contract's, and ask the coordinator",
        )


def _measure(experiment: Experiment, unit: Unit, number: int, probe: list[np.ndarray]) -> ProbeLosses:
    """Measure the losses of an expert and of constant predictions on the held-out images of every cluster."""
    device = choose_device(unit)
    key, weights = expert_key(number), selected_weights(experiment)
    ensemble = load_ensemble.load_ensemble(experiment, unit.run.unit, [key], device, weights)
    (expert,) = (network for network in ensemble.experts if network is not None)
    loss, total = HeldoutLoss(experiment, unit, resolve_training(experiment, key)), len(probe) * len(LEVELS)
    losses: list[list[float | None]] = []
    constant: list[list[float]] = []
    for cluster, numbers in enumerate(probe):
        advance(unit, cluster * len(LEVELS), total)
        levels = LEVELS if len(numbers) >= MIN_SAMPLES else ()
        losses.append([loss.of_network(expert.model, numbers, level, device) for level in levels])
        constant.append([loss.of_constant(numbers, level) for level in levels])
    unit.heartbeat.beat(total, total)
    is_guided = experiment.data.condition.form is not ConditionForm.NONE and experiment.experts.condition_dropout > 0
    is_asked = is_guided and losses[number]
    null = [loss.of_network(expert.model, probe[number], level, device, False) for level in LEVELS if is_asked]
    return ProbeLosses(list(LEVELS), losses, constant, list(null))


def _refusal(experiment: Experiment, unit: Unit, key: str, faults: list[str], is_finite: bool) -> str:
    """Return the error about an expert that breaks the rule."""
    site, run = experiment.experts.site_of(probed_expert(unit.key)), unit.run
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    reason = f"{key} of site {site} fails the probe: {faults[0]}{more}"
    if current_folder(run) is None:
        return f"{reason}; ask {site} for another, or leave out experts.probe"
    if site in own_sites(run):
        return f"{reason}; {experiment.site} will find the same: train it again, or tell {experiment.site}"
    if not is_finite:
        return f"{reason}; ask {site} for another bundle: whatever it draws is not a picture"
    words = ("hpcddm", "site", "import", run.root, f"{experiment.name}-{unit_name(key)}", "--accept-probe", "REASON")
    return f"{reason}; ask {site} for another bundle, or take it as it is: {command(*words)}"
