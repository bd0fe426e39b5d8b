"""How fast the networks of an experiment are on this machine: some steps of the real thing, for a second each."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from hpcddm import plugins
from hpcddm.config import Resources
from hpcddm.stages.costs import ENCODER, Costs, Work

SECONDS = 1.0
FEWEST = 3


class Benchmark:
    """Seconds per image of one process, measured once for every network, kind of work, batch and number of threads."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._known: dict[tuple, float] = {}

    @property
    def where(self) -> str:
        """What it is measured on."""
        return torch.cuda.get_device_name() if self._device.type == "cuda" else f"{_processor()} without GPU"

    def is_like(self, resources: Resources) -> bool:
        """Whether this machine computes as the job will: on a GPU, or without."""
        return bool(resources.gpus_per_node) == (self._device.type == "cuda")

    def seconds(self, work: Work, ranks: int, threads: int) -> float:
        """How long a unit of so many ranks is at one piece of its work."""
        batch = max(work.batch // ranks, 1)
        kind = work.network, work.is_training, batch, threads
        if kind not in self._known:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            self._known[kind] = self._time(self._step(work, batch)) / batch
            torch.set_num_threads(before)
        return self._known[kind] * work.images / ranks

    def _step(self, work: Work, batch: int) -> Callable[[], object]:
        data, encoder = self._costs.settings.data, self._costs.settings.encode.encoder
        if work.network == TAR:
            records = plugins.load("data/sources", data.source.name).open_split(data.source, "train")
            few = range(min(batch, len(records)))
            return lambda: tar.write_tar(self._scratch / "x.tar", map(records.__getitem__, few), data.image_size, data.channels)
        if work.network == ENCODER:
            encode = plugins.load("encoders", encoder.name).build(encoder)
            images = np.zeros((batch, data.image_size, data.image_size, data.channels), dtype=np.uint8)
            return lambda: encode(images)
        training = self._costs.training(work.network)
        is_bf16 = training.precision == "bf16" and (work.is_training or work.network in ("denoiser", "router"))
        network = self._costs.network(work.network).to(self._device, torch.bfloat16 if is_bf16 else torch.float32)
        inputs = [values.to(self._device) for values in self._costs.inputs(work.network, batch)]
        if not work.is_training:
            return torch.no_grad()(lambda: network(*inputs))
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.0, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            network(*inputs).square().mean().backward()
            optimizer.step()

        return step

    def _time(self, step: Callable[[], object]) -> float:
        """The median of some steps, after one that only warms up."""
        seconds, end = [], time.perf_counter() + SECONDS
        while len(seconds) <= FEWEST or time.perf_counter() < end:
            started = time.perf_counter()
            step()
            if self._device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds[1:])


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return "this processor"
