"""What grouping by expert costs: python -m tests.benchmarks.dispatch

One look of an ensemble at a batch, against one look of one expert at the same batch. The sides take turns and the
fastest of several rounds counts, so that a machine with other work slows all of them alike. The floor is what the
counted operations (multiply-add = 2) say. The router, whose logits are given here, is timed apart.
"""

import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.config import variants
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.models.base import Network
from hpcddm.sampling.conversions.base import Conversion
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.step_context import SampleStream, StepContext
from tests.benchmarks.tables import least_in_turns, parser_of, print_header, print_row
from tests.diffusion.spaces.examples import network_data

EXPERTS, CLASSES, CHANNELS = 8, 10, 4
ARMS = ("expert-0", "top-1", "sample-1", "top-2", "full")
TARGETS = {"top-1": 1.10, "sample-1": 1.10, "top-2": 2.1}


def network(name: str, data: NetworkData, size: str, patch: int, outputs: int | None = None) -> torch.nn.Module:
    """A network of random weights in the precision of its device."""
    settings = variants.settings_class("models", name).model_validate({"name": name, "size": size, "patch": patch})
    arguments = () if outputs is None else (outputs,)
    built = variants.create(Network, settings, data, *arguments).eval().requires_grad_(False)
    return built.to("cuda", torch.bfloat16) if torch.cuda.is_available() else built


def sides(size: str, patch: int, side: int, batch: int) -> dict[str, Callable[[], object]]:
    """What is timed: one look of each arm, and of a router."""
    data, device = network_data(CHANNELS, side, CLASSES), "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, CHANNELS, side, side, generator=generator).to(device)
    t, classes = torch.full((batch,), 0.5, device=device), torch.arange(batch, device=device) % CLASSES
    logits = torch.randn(batch, EXPERTS, generator=generator).to(device)
    objective = variants.create(Objective, ObjectiveSettings.model_validate({"name": "flow_matching"}))
    evaluate = EvaluateSettings()
    conversion = variants.create(Conversion, evaluate.conversion)
    experts = [DenoiserVelocity(network("dit", data, size, patch), objective, conversion) for _ in range(EXPERTS)]
    ensemble = Ensemble(experts, lambda *inputs: logits, None, None, CLASSES)
    context = StepContext(SampleStream(0, range(batch)), 0, 0.5)
    fields = {arm: ensemble.field(arm, evaluate) for arm in ARMS}
    router = network("router_dit", data, size, patch, EXPERTS)
    evaluations = {arm: lambda field=field: field(x, t, classes, context) for arm, field in fields.items()}
    return evaluations | {"router": lambda: router(x, t, classes)}


def seconds(evaluate: Callable[[], object]) -> float:
    """How long one look takes."""
    started = time.perf_counter()
    evaluate()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def flops(evaluate: Callable[[], object]) -> int:
    """How many operations one look takes."""
    with FlopCounterMode(display=False) as counter:
        evaluate()
    return counter.get_total_flops()


@torch.no_grad()
def main() -> None:
    """Print the table; the exit code is 1 when a target is missed."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", default="S", help="of the experts and the router: S, B, L, XL")
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    evaluations = sides(options.size, options.patch, options.side, options.batch)
    counted = {name: flops(evaluate) for name, evaluate in evaluations.items()}
    times = least_in_turns(evaluations, options.rounds, seconds)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{EXPERTS} experts DiT-{options.size}/{options.patch}, {options.side} px, {options.batch} images, {where}\n")
    print_header("one look", "ms", "ratio", "floor", "target")
    for name in evaluations:
        ratio, floor = times[name] / times[ARMS[0]], counted[name] / counted[ARMS[0]]
        target = f"{TARGETS[name]:.2f}" if name in TARGETS else ""
        print_row(name, f"{1000 * times[name]:.1f}", f"{ratio:.3f}", f"{floor:.3f}", target)
    raise SystemExit(any(times[name] > most * times[ARMS[0]] for name, most in TARGETS.items()))


if __name__ == "__main__":
    main()
