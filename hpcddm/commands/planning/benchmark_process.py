"""Times some real steps of an experiment's networks, in a separate process because DeepSpeed changes its process.

Reads the experiment, then one question per line from `benchmark`, and answers each with the `seconds` per image, or
with the user's `error` that prevents a measurement.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from hpcddm.commands.planning import read_speed
from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data.image_decoding import fit_to_shape
from hpcddm.data.tars import tar_writing
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError
from hpcddm.jobs.devices import DTYPES, current_device
from hpcddm.jobs.job_environment import Ranks, data_threads
from hpcddm.sources.base import Source
from hpcddm.stages.workload import (
    DECODE_LATENTS,
    DENOISER,
    ENCODE_LATENTS,
    ENCODER,
    EVALUATOR,
    READING,
    ROUTER,
    SAMPLE_WORK,
    SINGLE_READING,
    TAR,
    TEXT_ENCODER,
)
from hpcddm.training.engine import Engine

MIN_STEPS = 3


def serve() -> None:
    """Answer questions until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Output of libraries must not mix with the answers.
    os.dup2(2, 1)
    experiment = Experiment.model_validate_json(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(_answer(experiment, Path(folder), **json.loads(line))), file=answers, flush=True)


def _answer(
    experiment: Experiment, folder: Path, at_least_seconds: float, threads: int, network: str, batch: int, **work: bool
) -> dict[str, float | str]:
    torch.set_num_threads(threads)
    try:
        step = _step(UnitCosts(experiment, {}), folder, threads, network, batch, **work)
        return {"seconds": _least_seconds(step, at_least_seconds) / batch}
    except UserError as error:
        some = "a few of its tars" if experiment.data.source.uses_existing_tars else "some of its images"
        advice = f"; with {some} there this is measured" if network in SAMPLE_WORK else ""
        return {"error": f"{error}{advice}"}


def _step(
    costs: UnitCosts, folder: Path, threads: int, network: str, batch: int, is_training: bool, on_gpu: bool
) -> Callable[[], object]:
    data = costs.experiment.data
    if network in (READING, SINGLE_READING):
        readers = max(data_threads(threads), 1) if network == READING else 1
        return read_speed.make_read_step(costs.experiment, folder, batch, readers)
    if network == TAR:
        records = variants.create(Source, data.source).open_split("train")
        numbers = [number % len(records) for number in range(batch)]
        size, channels, transform = data.image_size, data.channels, variants.create(Transform, data.transform)
        if data.source.reads_in_place:
            return lambda: [fit_to_shape(records[number].image, channels, size, transform) for number in numbers]
        path = folder / "x.tar"
        return lambda: tar_writing.write_tar(path, (records[number] for number in numbers), size, channels, transform)
    if network == ENCODER or network.startswith(EVALUATOR):
        return costs.encoding(network, batch)
    device = current_device() if on_gpu else torch.device("cpu")
    if network == TEXT_ENCODER:
        step = costs.encoding_captions(batch, device)
    elif network in (ENCODE_LATENTS, DECODE_LATENTS):
        step = costs.through_autoencoder(network, batch, device)
    else:
        step = (_training_step if is_training else _inference_step)(costs, network, batch, device)
    if device.type == "cpu":
        return step

    def synchronised() -> None:
        step()
        torch.cuda.synchronize()

    return synchronised


def _inference_step(costs: UnitCosts, network: str, batch: int, device: torch.device) -> Callable[[], object]:
    # Evaluators see samples in fp32, whatever they were trained in.
    is_evaluator = not network.startswith((DENOISER, ROUTER))
    dtype = torch.float32 if is_evaluator else DTYPES[costs.training(network).precision]
    model = costs.network(network).to(device, dtype)
    inputs = [values.to(device) for values in costs.inputs(network, batch)]
    return torch.no_grad()(lambda: model(*inputs))


def _training_step(costs: UnitCosts, network: str, batch: int, device: torch.device) -> Callable[[], object]:
    if not dist.is_initialized():
        os.environ["LOCAL_RANK"] = "0"
        backend = "gloo" if device.type == "cpu" else "nccl"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    training = costs.training(network).model_copy(update={"batch": batch})
    engine = Engine(costs.network(network), training, Ranks(0, 0, 1, 1, "plan"), device)
    inputs = [values.to(device) for values in costs.inputs(network, batch)]

    def step() -> None:
        engine.backward(engine.model(*inputs).square().mean())
        engine.step(batch)

    return step


def _least_seconds(step: Callable[[], object], at_least: float) -> float:
    """Return the seconds of the fastest of some steps after a warm-up; other load on the machine can only add."""
    seconds: list[float] = []
    end = time.perf_counter() + at_least
    while len(seconds) <= MIN_STEPS or time.perf_counter() < end:
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


if __name__ == "__main__":
    serve()
    sys.stdout.flush()
    # Interpreter shutdown can abort in gloo's threads.
    os._exit(0)
