"""One table of a GPU: DiT-XL/2 for latents of 32 x 32 x 4 trained here and by hand, states, placements of experts.

`python -m tests.benchmarks.gpu_table [--minutes 18] [--folder DIR]`. Every figure comes from a process of its own, on
one GPU; sides alternate in rounds. MFU: FLOPs of the network, counted without what is recomputed, by the GPU's peak as
its maker states it. `--tiny --device cpu` runs the same lines in seconds and measures nothing.
"""

import gc
import importlib
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from hpcddm.jobs import devices
from hpcddm.training import deepspeed_patches
from tests.benchmarks import gpu_sides
from tests.benchmarks.gpu_sides import Setup
from tests.benchmarks.tables import parser_of, print_header, print_row

PEAKS = {
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
}
"""FLOP/s of dense matrices in bf16 and fp16, from the data sheets, by the name that torch gives."""
TRAININGS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "bf16, by hand": (gpu_sides.plain, {"precision": "bf16"}),
    "bf16, here": (gpu_sides.ours, {"precision": "bf16"}),
    "fp16, by hand": (gpu_sides.plain, {"precision": "fp16"}),
    "fp16, here": (gpu_sides.ours, {"precision": "fp16"}),
    "bf16, `compile_blocks: true`": (gpu_sides.ours, {"precision": "bf16", "compiled": True}),
    "bf16, `checkpoint_blocks: 1`": (gpu_sides.ours, {"precision": "bf16", "every": 1}),
}
HEADER = ("what", "images/s", "MFU", "GB at the peak (predicted)", "notes")
Row = tuple[str, ...]


class Unmeasured(Exception):
    """A process gave no figure."""


def left(ends: float) -> float:
    """Return the seconds until all figures have to be there."""
    return max(ends - time.monotonic(), 0.0)


def apart(function: Callable[..., Any], seconds: float, *arguments: Any, **named: Any) -> Any:
    """Call a function in a process of its own; raises `Unmeasured` with its error, or where it takes longer.

    A fork could not use a GPU that this process has asked for anything; one for a CPU spares it the imports.
    """
    context = multiprocessing.get_context("fork" if arguments[0].device == "cpu" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments, named))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise Unmeasured("not measured: no time is left")
        is_answer, said = receiver.recv()
    except EOFError:
        process.join()
        raise Unmeasured(f"failed: the process ended with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if not is_answer:
        raise Unmeasured(f"failed: {said}")
    return said


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], named: Any) -> None:
    try:
        sender.send((True, function(*arguments, **named)))
    except BaseException as error:
        traceback.print_exc()
        sender.send((False, f"{type(error).__name__}: {error}".splitlines()[0]))


def trainings(setup: Setup, peak: float | None, flops: int, rounds: int, ends: float) -> list[Row]:
    """Measure every training in every round; one that fails is not tried again."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in TRAININGS}
    faults: dict[str, str] = {}
    for _ in range(rounds):
        for name, (function, named) in TRAININGS.items():
            try:
                if name not in faults:
                    found[name].append(apart(function, left(ends), setup, **named))
            except Unmeasured as fault:
                faults[name] = str(fault)
    return [_training(name, found[name], faults.get(name), peak, flops) for name in TRAININGS]


def _training(name: str, runs: list[dict[str, float]], fault: str | None, peak: float | None, flops: int) -> Row:
    if not runs:
        return name, "-", "-", "-", fault or ""
    rates, best = ", ".join(f"{run['rate']:.1f}" for run in runs), max(run["rate"] for run in runs)
    mfu = "-" if peak is None else f"{best * flops / peak:.1%}"
    gigabytes = f"{runs[0]['gb']:.1f}" if "gb" in runs[0] else "-"
    if "predicted" in runs[0]:
        gigabytes += f" ({runs[0]['predicted']:.3g})"
    return name, rates, mfu, gigabytes, fault or f"first step {runs[0]['first']:.1f} s"


def of_states(setup: Setup, folder: str | None, ends: float) -> list[Row]:
    """Measure saves beside a training."""
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            saves = apart(gpu_sides.states, left(ends), setup, Path(place))
    except Unmeasured as fault:
        return [("saving a state", "-", "-", "-", str(fault))]
    rows = []
    for name, save in zip(("saving the first state", "saving another state"), saves, strict=True):
        rates = f"{save['beside']:.1f}, without {save['rate']:.1f}"
        note = f"copy {save['copy']:.2f} s, whole {save['whole']:.2f} s, longer by {save['lost']:.2f} s"
        rows.append((name, rates, "-", f"{save['gb']:.1f}" if "gb" in save else "-", note))
    return rows


def of_placements(setup: Setup, ends: float) -> list[Row]:
    """Measure drawing by experts that are placed in turn; other bits than those of `resident` are a failure."""
    try:
        found = apart(gpu_sides.placements, left(ends), setup)
    except Unmeasured as fault:
        return [("drawing", "-", "-", "-", str(fault))]
    notes = {True: "10 steps, top-1 of 4 experts", False: "failed: the images are not those of `resident`"}
    rows = [(name, f"{own['rate']:.2f}", notes[own["equal"]]) for name, own in found.items()]
    return [(f"drawing, placement {name}", rate, "-", "-", note) for name, rate, note in rows]


def main() -> None:
    """Print the table; the exit code is 1 where a row has no figure."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="a tiny network, for a test of these lines")
    parser.add_argument("--minutes", type=float, default=18.0, help="all figures together")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", help="for states, 33 GB; by default that of temporary files")
    given = parser.parse_args()
    if given.device == "cpu":
        # A fork does not have the threads of a pool that has begun. It would import the first of these anew, for ten
        # seconds, and DeepSpeed has it collect garbage again and again.
        torch.set_num_threads(1)
        importlib.import_module("torch._dynamo")
        deepspeed_patches.import_deepspeed(torch.device("cpu"))
        gc.freeze()
    elif not devices.visible_gpus():
        raise SystemExit(f"no GPU is visible to torch here, so nothing was measured: {devices.missing_gpu_advice()}")
    ends = time.monotonic() + 60 * given.minutes
    setup = Setup(given.device, given.tiny, 0.05 if given.tiny else 12.0)
    try:
        known = apart(gpu_sides.about, left(ends), setup)
    except Unmeasured as fault:
        raise SystemExit(f"nothing was measured: {fault}") from None
    setup, peak = replace(setup, batch=known["batch"]), PEAKS.get(known["name"])
    rows = trainings(setup, peak, known["flops"], given.rounds, ends)
    rows += of_states(setup, given.folder, ends)
    rows += of_placements(replace(setup, batch=min(setup.batch, 64)), ends)
    network = "a tiny DiT" if given.tiny else "DiT-XL/2, 32 x 32 x 4"
    print(f"\n{known['name']}, {known['versions']}: {network}, batch {setup.batch}, one GPU, ZeRO-1\n")
    print_header(*HEADER)
    for row in rows:
        print_row(*row)
    missing = [row[0] for row in rows if row[-1].startswith(("failed", "not measured"))]
    if missing:
        raise SystemExit(f"without a figure, or with a wrong one: {'; '.join(missing)}")


if __name__ == "__main__":
    main()
