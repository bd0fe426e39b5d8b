"""Import of a large bundle beside `cp` and `sha256sum` of it: python -m tests.benchmarks.bundle_import [GB] [FOLDER]

One file of weights of 11 GB in tensors of 64 MiB, between the two runs of tests/exchange. Both sides read the same
folder in turn, `ROUNDS` times, and write to the same disk; then seconds, their ratio, and the most anonymous memory of
the import. The same for values that are all denormal, which take no longer. Needs three times the size on the disk,
and says so where it is not free.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hpcddm.exchange import bundle as bundles
from hpcddm.exchange import signed_folder, signing
from hpcddm.exchange.bundle import Bundle, SiteWord
from hpcddm.exchange.contract import AgreedTensor
from hpcddm.files import atomic
from hpcddm.runs.files import WEIGHTS
from tests.exchange.agreed_runs import KEY, Agreed, agreed_runs

SIDE, ROUNDS = 4096, 3
SCALES = {"normal": 1.0, "denormal": 1e-42}
TENSOR_BYTES = 4 * SIDE * SIDE


def write_weights(path: Path, names: list[str], scale: float) -> None:
    """Write tensors of random values; the header is written by hand, as the file need not fit into memory."""
    places = {name: [number * TENSOR_BYTES, (number + 1) * TENSOR_BYTES] for number, name in enumerate(names)}
    forms = (f'"{name}":{{"dtype":"F32","shape":[{SIDE},{SIDE}],"data_offsets":{places[name]}}}' for name in names)
    header = f"{{{','.join(forms)}}}".encode()
    values = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
    values *= np.float32(scale)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in names:
            file.write(values.data)


def agree(runs: Agreed, folder: Path, size: int, scale: float) -> Path:
    """Let the runs agree on an expert of so many bytes, and write its bundle."""
    names = [f"block-{number:04d}" for number in range(size // TENSOR_BYTES)]
    table = {name: AgreedTensor("F32", [SIDE, SIDE]) for name in names}
    digest = atomic.digest({name: asdict(tensor) for name, tensor in table.items()})
    contract = replace(runs.contract, tables=runs.contract.tables | {digest: table})
    runs = replace(runs, contract=contract).change_expert(files=[WEIGHTS], tensors=digest)
    write_weights(folder / WEIGHTS, names, scale)
    own = runs.contract.experts[KEY]
    content = Bundle("hpcddm bundle 1", runs.contract.id, own.digest, KEY, own.site, 1, [], SiteWord(), {})
    bundle = folder / "bundle"
    paths = {WEIGHTS: folder / WEIGHTS}
    signed_folder.write_folder(bundle, bundles.FILE, content, paths, runs.key(own.site), signing.BUNDLE)
    (folder / WEIGHTS).unlink()
    return bundle


def copied(bundle: Path, target: Path) -> float:
    """Seconds of `cp`, and of `sha256sum` of the copy."""
    start = time.perf_counter()
    subprocess.run(["cp", "-r", str(bundle), str(target)], check=True)
    subprocess.run(["sha256sum", "-c", "--quiet", signed_folder.SUMS], cwd=target, check=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def imported(run: Path, bundle: Path) -> tuple[float, int]:
    """Seconds of an import in a process of its own, and its most anonymous memory in bytes."""
    command = [sys.executable, "-m", "hpcddm.cli", "site", "import", str(run), str(bundle)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        most = max([most, *(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
        time.sleep(0.02)
    assert process.returncode == 0
    return time.perf_counter() - start, most


def main() -> None:
    """Print a table."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 11) * 1e9)
    above = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.gettempdir())
    free = shutil.disk_usage(above).free
    if free < 3 * size:
        sys.exit(f"skipped: {above} has {free:,} bytes free, and this needs {3 * size:,}")
    with tempfile.TemporaryDirectory(dir=above) as place:
        folder = Path(place)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        runs = agreed_runs(folder)
        print("| values | round | cp, sha256sum (s) | import (s) | ratio | RssAnon (MiB) |")
        print("| --- | --- | --- | --- | --- | --- |")
        for values, scale in SCALES.items():
            bundle = agree(runs, folder, size, scale)
            for number in range(ROUNDS):
                seconds = copied(bundle, folder / "copy")
                own, memory = imported(runs.home.root, bundle)
                figures = f"{seconds:.1f} | {own:.1f} | {own / seconds:.2f} | {memory >> 20}"
                print(f"| {values} | {number + 1} | {figures} |", flush=True)
                shutil.rmtree(runs.home.unit(KEY))
                shutil.rmtree(runs.home.imports)
            print(f"{sum(path.stat().st_size for path in bundle.iterdir()):,} bytes")
            shutil.rmtree(bundle)


if __name__ == "__main__":
    main()
