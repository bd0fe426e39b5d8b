"""How fast the networks of an experiment are on this machine: some steps of the real thing, for a second each."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from hpcddm import plugins
from hpcddm.data import tar
from hpcddm.stages.costs import DENOISER, ENCODER, ROUTER, TAR, Costs, Work

SECONDS, FEWEST = 1.0, 3


class Benchmark:
    """Seconds per image of one process, measured once for each network, kind of work, batch and number of threads."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple, float] = {}

    def seconds(self, work: Work, ranks: int, threads: int, on_gpu: bool) -> float:
        """How long a unit of so many ranks, of so many threads each, is at one piece of its work."""
        batch = max(work.batch // ranks, 1)
        kind = work.network, work.is_training, batch, threads, on_gpu
        if kind not in self._known:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            with tempfile.TemporaryDirectory() as folder:
                step = self._step(work, batch, torch.device("cuda" if on_gpu else "cpu"), Path(folder))
                self._known[kind] = _median_seconds(step) / batch
            torch.set_num_threads(before)
        return self._known[kind] * work.images / ranks

    def _step(self, work: Work, batch: int, device: torch.device, folder: Path) -> Callable[[], object]:
        data, encoder = self._costs.settings.data, self._costs.settings.encode.encoder
        if work.network == TAR:
            records = plugins.load("data/sources", data.source.name).open_split(data.source, "train")
            numbers = [number % len(records) for number in range(batch)]
            return lambda: tar.write_tar(
                folder / "x.tar", (records[number] for number in numbers), data.image_size, data.channels
            )
        if work.network == ENCODER:
            encode = plugins.load("encoders", encoder.name).build(encoder)
            images = np.zeros((batch, data.image_size, data.image_size, data.channels), dtype=np.uint8)
            return lambda: encode(images)
        return self._network_step(work, batch, device)

    def _network_step(self, work: Work, batch: int, device: torch.device) -> Callable[[], object]:
        precision = self._costs.training(work.network).precision
        # Critics look at samples in fp32, whatever they were trained in.
        is_bf16 = precision == "bf16" and (work.is_training or work.network in (DENOISER, ROUTER))
        network = self._costs.network(work.network).to(device, torch.bfloat16 if is_bf16 else torch.float32)
        inputs = [values.to(device) for values in self._costs.inputs(work.network, batch)]
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.0, fused=True)

        def step() -> None:
            with torch.set_grad_enabled(work.is_training):
                outputs = network(*inputs)
            if work.is_training:
                optimizer.zero_grad()
                outputs.square().mean().backward()
                optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()

        return step


def machine(on_gpu: bool) -> str:
    """What is measured on."""
    if on_gpu:
        return torch.cuda.get_device_name()
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return "this processor"


def _median_seconds(step: Callable[[], object]) -> float:
    """The median of some steps, after one that only warms up."""
    seconds, end = [], time.perf_counter() + SECONDS
    while len(seconds) <= FEWEST or time.perf_counter() < end:
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])
