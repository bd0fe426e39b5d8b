"""Memory of the ranks of an experiment's trainings, as a plan shows it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache, partial

from torch import nn

from hpcddm.commands.planning import memory
from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.commands.planning.memory import RankDivision, TensorMemory
from hpcddm.config.site import Resources, Site
from hpcddm.models.base import Network
from hpcddm.models.flops import unallocated
from hpcddm.pipeline.unit_graph import is_collective
from hpcddm.runs.unit_keys import MONOLITH, stage_of
from hpcddm.training import compile_choice
from hpcddm.training.loop import count_micro_batches

PROCESS_BYTES = 700_000_000
"""Bytes of a process with all libraries, before its first tensor."""


@dataclass(frozen=True)
class RankMemory:
    """Memory of a rank in the trainings of one stage and one shape: the largest of them."""

    stage: str
    ranks: int
    ranks_per_node: int
    zero_stage: int
    images_at_once: int
    on_gpu: bool
    peak: int
    """Bytes of tensors on the device that trains, at most."""
    parts: TensorMemory
    memory_gb: int
    blocks: str = ""
    """What happens to the network's blocks, and why; '' if they run as they are."""

    @property
    def host_bytes(self) -> int:
        """Bytes of a node's memory that all its ranks take, while a state is saved."""
        own = PROCESS_BYTES + self.parts.state_copy + (0 if self.on_gpu else self.parts.resident)
        return self.ranks_per_node * own


def predict_for_units(keys: Iterable[str], costs: UnitCosts, site: Site) -> list[RankMemory]:
    """Predict the memory of all trainings, one for each stage and shape, the monolith apart."""
    largest: dict[tuple[str, Resources], RankMemory] = {}

    @cache
    def passed(network: str, images: int, every: int, keeps: bool, on_gpu: bool) -> int:
        inputs = costs.inputs(network, images)
        precision = costs.training(network).precision
        return memory.peak_of_pass(lambda: costs.network(network), inputs, precision, every, keeps, on_gpu)

    for key in (key for key in keys if is_collective(key)):
        resources = site.resources_for(*key.split("/"))
        name = key if key == MONOLITH else stage_of(key)
        for work in (work for work in costs.work(key) if work.is_training):
            share, on_gpu = max(work.batch // resources.ranks, 1), resources.gpus_per_node > 0
            parts = count_micro_batches(share, resources.micro_batch)
            sharing = RankDivision(resources.ranks, resources.zero_stage, parts)
            once = share // parts, resources.checkpoint_blocks, sharing.keeps_gradients, on_gpu
            training = costs.training(work.network)
            model = unallocated(partial(costs.network, work.network))
            in_pass = passed(work.network, *once)
            predicted = memory.predict_memory(model, in_pass, training.precision, sharing, training.num_averages)
            found = RankMemory(
                *(name, resources.ranks, resources.ranks_per_node, resources.zero_stage, share // parts, on_gpu),
                *(predicted.peak, predicted, resources.memory_gb),
                blocks=_describe_blocks(model, resources, costs.flops(work)),
            )
            before = largest.get((name, resources))
            largest[name, resources] = found if before is None or found.peak > before.peak else before
    return list(largest.values())


def _describe_blocks(model: nn.Module, resources: Resources, flops: int) -> str:
    blocks = model.stacked_blocks() if isinstance(model, Network) else ()
    device = "cuda" if resources.gpus_per_node else "cpu"
    return compile_choice.choose(resources, device, flops).describe(len(blocks)) if blocks else ""


def memory_line(own: RankMemory) -> str:
    """Describe a rank's memory in a line, with the site's key where its nodes have too little."""
    shares = {name: size for name, size in asdict(own.parts).items() if name != "state_copy" and size}
    text = ", ".join(f"{name} {size / 1e9:.2g}" for name, size in shares.items())
    place, gigabytes = "GPU" if own.on_gpu else "host", own.host_bytes / 1e9
    short = f"; memory_gb: {own.memory_gb} is less than these {gigabytes:.2g}" if gigabytes > own.memory_gb else ""
    return (
        f"{own.stage}: {own.peak / 1e9:.2g} GB of tensors per rank on the {place} ({text}),"
        f" {own.parts.state_copy / 1e9:.2g} GB more on the host for a state that is saved;"
        f" {own.ranks} ranks, zero_stage {own.zero_stage}, {own.images_at_once} images at once{short}"
        + (f"; {own.blocks}" if own.blocks else "")
    )
