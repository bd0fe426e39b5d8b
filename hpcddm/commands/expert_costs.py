"""Costs, numbers and times of the experts, and what is known of their clusters: a part of `hpcddm plan`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.config.training import ExpertOverride
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import EXPERT_LISTS, all_experts, expert_key
from hpcddm.runs.unit_training import resolve_training

if TYPE_CHECKING:
    from hpcddm.commands.planning.timing import CostEstimate

UNSHIFTED_VALUES = 4096
"""Number of values of x, 4 x 32 x 32, for which training times need no shift (arXiv 2510.11690)."""


@dataclass(frozen=True)
class ExpertCost:
    """Cost of one expert's training; None where it is unknown."""

    expert: int
    images: int
    """Images of its cluster."""
    passes: float
    """Times that it will see each of the samples that it is trained on."""
    flops: int | None
    gpu_hours: float | None


def expert_costs(
    experiment: Experiment, run: RunDir, site: Site, estimates: Mapping[str, "CostEstimate"]
) -> list[ExpertCost]:
    """List the costs of the experts that are trained at a site; empty before images are clustered."""
    lists = manifest.read_if_usable(run.unit(EXPERT_LISTS))
    if lists is None or len(lists.results.get("sizes", [])) != experiment.cluster.experts:
        return []
    costs = []
    for expert in range(experiment.cluster.experts):
        if (key := expert_key(expert)) not in estimates:
            continue
        described, resources = list_results({EXPERT_LISTS: lists}, expert), site.resources_for(*key.split("/"))
        trained_on = described["samples"] + described.get("other_clusters", 0)
        flops, seconds = estimates[key].flops, estimates[key].seconds
        gpus = resources.nodes * resources.gpus_per_node
        passes = resolve_training(experiment, key).settings.images / trained_on
        hours = None if seconds is None else gpus * seconds / 3600
        costs.append(ExpertCost(expert, described["samples"], passes, flops, hours))
    return costs


def override_lines(experiment: Experiment) -> list[str]:
    """Describe every expert of a cluster whose override has a rate, a batch or a number of images of its own."""
    lines = []
    for expert in range(experiment.cluster.experts):
        own = experiment.experts.variation(expert)
        if isinstance(own, ExpertOverride) and (own.images or own.batch or own.learning_rate):
            training = resolve_training(experiment, expert_key(expert)).settings
            rate = f"learning rate {training.learning_rate:g}"
            lines.append(f"expert {expert} sees {training.images:,} images in batches of {training.batch}, {rate}")
    return lines


def shift_of_space(experiment: Experiment) -> float:
    """Compute the shift of training times that fits the number of values of x (arXiv 2403.03206, 2510.11690)."""
    return math.sqrt(math.prod(experiment.data.x_shape) / UNSHIFTED_VALUES)


def shift_line(experiment: Experiment) -> str:
    """State the shifts of the experts' objectives beside that of the space, which is never set by itself."""
    chosen = {experiment.expert_config(expert).objective.shift for expert in all_experts(experiment)}
    values = " x ".join(map(str, experiment.data.x_shape))
    fits = f"sqrt({values} / {UNSHIFTED_VALUES}) = {shift_of_space(experiment):.3g}"
    return f"objective.shift {', '.join(f'{shift:g}' for shift in sorted(chosen))}; the size of x suggests {fits}"


def cost_line(costs: Sequence[ExpertCost]) -> str:
    """Say of the largest and the smallest cluster how often its expert sees each image, and what experts cost."""
    largest, smallest = max(costs, key=lambda cost: cost.images), min(costs, key=lambda cost: cost.images)
    ends = [
        f"expert {cost.expert} sees each of its {cost.images:,} images {cost.passes:.3g} times"
        for cost in dict.fromkeys((largest, smallest))
    ]
    flops = [cost.flops for cost in costs if cost.flops is not None]
    hours = [cost.gpu_hours for cost in costs if cost.gpu_hours]
    each = f"; {max(flops):.3g} FLOPs" if flops else ""
    if hours:
        each += f", {max(hours):.3g} GPU-hours"
    return ", ".join(ends) + (f"{each} at most for one" if each else "")
