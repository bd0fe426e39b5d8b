"""Rows of the budget curve: figures of one arm of one finished setting, and the file that holds them.

A row is known by the hash of all that determines it, so that rows of several machines add up and are never mixed with
those of other settings.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hpcddm.commands.job_costs import list_job_costs
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import UserError
from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.kernels import kernel_distance
from hpcddm.files import atomic
from hpcddm.launch.sweep_runs import identity_hashes
from hpcddm.models import build_denoiser, build_router
from hpcddm.models.flops import forward_flops, unallocated
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import MONOLITH, MONOLITH_ARM, REPORT, ROUTER, expert_keys
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import selected_training_costs
from hpcddm.sampling import nfe
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.training import flops_budget
from tests.benchmarks import budget_curve
from tests.benchmarks.budget_curve import Row
from tests.benchmarks.evaluated_run import EvaluatedRun, stored

COLUMNS = (
    *("sweep", "seed", "experts", "budget", "arm", "guidance", "learning_rate", "batch", "images", "samples"),
    *("fd", "kid", "precision", "recall", "agreement", "lite0_kid", "floor_fd", "floor_kid"),
    *("train_flops", "sample_flops", "train_core_seconds", "sample_core_seconds", "wall_seconds", "fd_without"),
    *("processor", "instructions", "hpcddm", "commit", "identity"),
)
"""Columns of a row. experts: 1 for the monolith; images: those of one network, an expert or the monolith, by then;
fd_without: FD without each tenth of samples and held-out images; sample_flops: of one image. Core seconds of trainings
are their share up to the budget, of sampling those of all arms of the setting together; wall_seconds: from the first
start to the last end of the units of settings that were drawn together."""
TENTHS = 10
LITE0_SAMPLES = 1000
"""First samples of an arm that the second ruler sees, and held-out images at their places: it takes 30 ms for each."""
LITE0 = ImageEncoderSettings.model_validate({"name": "efficientnet_lite0", "size": 64})


BUDGETS = {32896: 30720, 65856: 61440, 131712: 122880, 263424: 245760, 526848: 491520}
"""Budgets by the monolith's images, which pay for the router, too."""


def shown_arm(experiment: Experiment, arm: str) -> str:
    """Return an arm's name in the rows: all of an ensemble of one expert is a monolith."""
    return MONOLITH_ARM if experiment.cluster.experts == 1 else arm


def recipe_of(experiment: Experiment, arm: str) -> tuple[int, float, int]:
    """Return the number of experts, 1 for the monolith, and learning rate and batch of their trainings.

    Raises `UserError` where they differ between the experts.
    """
    experts = 1 if arm == MONOLITH_ARM else experiment.cluster.experts
    is_monolith = arm == MONOLITH_ARM
    keys = [MONOLITH] if is_monolith else expert_keys(experiment)
    trainings = [resolve_training(experiment, key).settings for key in keys]
    recipes = {(own.learning_rate, own.batch) for own in trainings}
    if len(recipes) > 1:
        raise UserError(f"K={experts} {arm}: experts have several learning rates or batches, {sorted(recipes)}")
    return experts, *recipes.pop()


def budget_of(experiment: Experiment) -> int:
    """Return the images of all experts together that the evaluated networks have seen, or that cost as much."""
    images = experiment.evaluate.snapshot or experiment.experts.training.images
    return BUDGETS[images] if experiment.cluster.experts == 1 else images


def rows_of(sweep: str, run: RunDir, wall_seconds: float, with_lite0: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the rows of a finished run, an arm each; raises `UserError` where its report is missing."""
    experiment = stored_experiment(run)
    units = {unit.key: manifest.read(run.unit(unit.key)) for unit in plan_units(experiment)}
    report = units[REPORT]
    if report is None:
        raise UserError(f"{run.root}: its report is not complete; run it first")
    features, evaluate = stored(run, "features"), experiment.evaluate
    images = first_images(run) if with_lite0 else {}
    second = {arm: lite0().encode(own) for arm, own in images.items()}
    floor, origin, classes = report.results["floor"], report.record, experiment.data.num_classes or 1
    common = {
        **{"sweep": sweep, "seed": experiment.seed},
        **{"budget": budget_of(experiment)},
        **{"guidance": evaluate.guidance, "samples": evaluate.images, "wall_seconds": round(wall_seconds)},
        **{"floor_fd": floor["fd"], "floor_kid": floor["kid"]},
        **{"sample_core_seconds": round(sum(core_seconds(run, key) for key in units if key.startswith("draw/")))},
        **{"processor": processor()[0], "instructions": processor()[1]},
        **{"hpcddm": origin.get("hpcddm"), "commit": (origin.get("commit") or "")[:12]},
        "identity": identity_hashes(plan_units(experiment))[REPORT],
    }
    for arm in arm_names(experiment):
        keys = [MONOLITH] if arm == MONOLITH_ARM else [*expert_keys(experiment), ROUTER]
        trained = {key: units[key] for key in keys if "images" in units[key].results}
        reached = {key: selected_training_costs(experiment, key, own)["images"] for key, own in trained.items()}
        seconds = {key: core_seconds(run, key) for key in trained}
        shared = [seconds[key] * reached[key] / own.results["images"] for key, own in trained.items()]
        yield common | {
            **dict(zip(("experts", "learning_rate", "batch"), recipe_of(experiment, arm), strict=True)),
            **{"arm": shown_arm(experiment, arm), "images": reached[keys[0]]},
            **{name: report.results["arms"][arm][name] for name in ("fd", "kid", "precision", "recall", "agreement")},
            "train_flops": report.results["arms"][arm]["train_flops"],
            "sample_flops": round(sampling_flops(experiment, arm)),
            # Trainings that were copied from another sweep left their attempts there.
            "train_core_seconds": round(sum(shared)) if all(seconds.values()) else "",
            "lite0_kid": kernel_distance(second[arm], second[HELDOUT]) if with_lite0 else "",
            "fd_without": " ".join(f"{value:.6g}" for value in fd_without(features[arm], features[HELDOUT], classes)),
        }


def first_images(run: RunDir) -> dict[str, np.ndarray]:
    """Read the first samples of every arm, and the held-out images at their places."""
    evaluated = EvaluatedRun(run.root, images=LITE0_SAMPLES)
    real = evaluated.run.data(HELDOUT).images(evaluated.numbers)
    return {**evaluated.stored("images"), HELDOUT: real}


def fd_without(samples: np.ndarray, real: np.ndarray, classes: int) -> list[float]:
    """Compute FD without each tenth of the samples and of the held-out images at the same places.

    samples, real: (N, D), whose classes come in turn: every tenth holds as many of each.
    """
    tenth = np.arange(len(samples)) // classes % TENTHS
    kept = (tenth != left_out for left_out in range(TENTHS))
    return [frechet_distance(*(FeatureStatistics.from_features(one[own]) for one in (samples, real))) for own in kept]


@cache
def lite0() -> ImageEncoder:
    """Load EfficientNet-Lite0; raises `UserError` where its weights were not fetched."""
    return variants.create(ImageEncoder, LITE0)


def sampling_flops(experiment: Experiment, arm: str) -> float:
    """Count the FLOPs of drawing one image in an arm, at most."""
    count = nfe.of_arm(arm, experiment.evaluate, experiment.cluster.experts)
    own = flops_budget.evaluation_flops(experiment, experiment.expert_config())
    if not count.router:
        return count.experts * own
    routing = forward_flops(unallocated(lambda: build_router.build(experiment)), *build_denoiser.one_image(experiment))
    return count.experts * own + count.router * routing


def core_seconds(run: RunDir, key: str) -> float:
    """Sum the core seconds of all attempts at a unit, wherever the sweep made it."""
    folder = run.unit(key).resolve()
    owner = RunDir(folder.parents[1] if "/" in key and not key.endswith("/all") else folder.parent)
    return sum(cost.cpus * cost.seconds for cost in list_job_costs(owner, []) if cost.unit == key)


def wall_seconds(runs: Iterable[RunDir]) -> float:
    """Return the time from the first start to the last end of units that some runs made."""
    costs = [cost for run in runs for cost in list_job_costs(run, []) if cost.started and cost.ended]
    return max(cost.ended or 0 for cost in costs) - min(cost.started or math.inf for cost in costs) if costs else 0.0


@cache
def processor() -> tuple[str, str]:
    """Return the model of this machine's processor, and the instruction set that PyTorch uses on it."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    matrix = " with AMX" if "amx_bf16" in facts.get("flags", "").split() else ""
    return facts.get("model name", "unknown"), torch.backends.cpu.get_cpu_capability() + matrix


def add(new: Iterable[Mapping[str, Any]], path: Path) -> list[str]:
    """Add rows to the file, sorted, in one step; return remarks on those that it had.

    A row that is known stays as it is: another machine's figures of the same setting are compared with it.
    """
    known, remarks = budget_curve.read(path), []
    for row in new:
        key = row["identity"], row["arm"]
        if key in known:
            there = known[key]
            place = f"seed {row['seed']}, K={row['experts']}, {row['budget']} images, {row['arm']}"
            before = f"{float(there['fd']):.3f} there ({there['instructions']})"
            remarks.append(f"known: {place}: FD {before}, {row['fd']:.3f} now ({row['instructions']})")
            continue
        known[key] = {column: str(row[column]) for column in COLUMNS}
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(known.values(), key=_place))
    atomic.write_text(path, file.getvalue())
    return remarks


def _place(row: Row) -> tuple:
    numbers = (int(row["seed"]), int(row["experts"]), int(row["budget"]))
    return row["sweep"], *numbers, row["arm"], float(row["guidance"]), float(row["learning_rate"]), int(row["batch"])
