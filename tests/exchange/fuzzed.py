"""Fuzzing of the commands that read what another site sends, in a process of little memory: see `run_fuzzing`.

One process takes many cases, as the start of a Python for each would take most of the time. Its address space is
limited as by `ulimit -v`, and an alarm ends a case that takes too long.
"""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, signing
from hpcddm.exchange.bundle import FILE
from hpcddm.launch.collaboration.bundle_checks import imported_bundle
from hpcddm.runs.contracts import revision_folder, run_contract
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.run_dir import RunDir
from tests.exchange import agreed_runs
from tests.exchange.agreed_runs import Agreed
from tests.exchange.collaboration import Collaboration
from tests.exchange.hostile import sign_bytes, sign_file, tree
from tests.exchange.mutations import mutated
from tests.helpers import REPOSITORY

MEMORY, SECONDS = 4 << 30, 60
"""Bytes of address space, and seconds for a case."""
HONEST_EVERY = 50
"""Cases between two honest bundles, which must be taken."""


def run_fuzzing(kind: str, folder: Path, count: int, seed: int) -> dict[str, float]:
    """Fuzz in a process of its own, and return its figures: cases, accepted, seconds of the longest, MiB at most.

    Args:
        kind: 'bundles' or 'contracts'.
        folder: Folder of the runs or of the collaboration; what is made in it is removed.
        count: Number of cases.
        seed: The same seed gives the same cases.
    """
    command = [sys.executable, "-m", "tests.exchange.fuzzed", kind, str(folder), str(count), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


class Fuzzing:
    """Cases one after the other, and their figures."""

    def __init__(self, seed: int) -> None:
        self.generator, self.figures = random.Random(seed), Counter[str]()
        self.longest = 0.0

    def call(self, command: Callable):
        """Call a command within its time; assert that it ends as commands do, and return what it did."""
        started = time.monotonic()
        signal.alarm(SECONDS)
        done = command()
        signal.alarm(0)
        self.longest = max(self.longest, time.monotonic() - started)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        self.figures["cases"] += 1
        self.figures["accepted"] += done.exit_code == 0
        if done.exit_code:
            lines = [line for line in done.stderr.splitlines() if line]
            assert len(lines) == 1 and lines[0].startswith("error: "), lines
            assert lines[0].isascii() and lines[0].isprintable() and len(lines[0]) < 2000, lines
        return done


def fuzz_bundles(folder: Path, count: int, fuzzing: Fuzzing) -> None:
    """Import mutated bundles; half of them are signed again, so that what is behind the signature is reached."""
    runs, generator = _agreed(folder), fuzzing.generator
    honest, sent = runs.pack("fuzzed-honest"), folder / "fuzzed-sent"
    kept = revision_folder(runs.home, 1)
    contents = {path.name: path.read_bytes() for path in honest.iterdir()}
    agreed = {path: path.read_bytes() for path in kept.iterdir()}
    names = [FILE] * 4 + sorted(contents)
    for number in range(count):
        shutil.rmtree(sent, ignore_errors=True)
        shutil.copytree(honest, sent)
        name, is_signed = generator.choice(names), generator.random() < 0.5
        if generator.random() < 0.1:
            content = mutated(agreed[kept / contracts.FILE], generator)
            (kept / contracts.FILE).write_bytes(content)
            if is_signed:
                signature = signing.sign_here(content, runs.key("uni-a"), signing.CONTRACT)
                (kept / f"{contracts.FILE}.sig").write_bytes(signature)
        else:
            (sent / name).write_bytes(mutated(contents[name], generator))
            if is_signed and name == FILE:
                sign_bytes(sent, runs, (sent / name).read_bytes())
            elif is_signed and name.endswith(".safetensors"):
                sign_file(sent, runs, name)
        _import(runs, sent, fuzzing)
        for path, content in agreed.items():
            path.write_bytes(content)
        if number % HONEST_EVERY == 0:
            assert _import(runs, honest, fuzzing), "an honest bundle was refused"


def _import(runs: Agreed, sent: Path, fuzzing: Fuzzing) -> bool:
    """Import a bundle; what is taken is what was signed, and what is refused leaves the run as it was."""
    before = tree(runs.home)
    done = fuzzing.call(lambda: runs.take(sent))
    if done.exit_code:
        assert tree(runs.home) == before, done.output
        return False
    signed, _ = read_signed_bundle(sent)
    assert imported_bundle(runs.home, signed.unit) == signed
    found = {path.name: path for path in runs.home.unit(signed.unit).rglob("*.safetensors")}
    assert found.keys() == signed.files.keys()
    for name, path in found.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == signed.files[name].sha256
    shutil.rmtree(runs.home.unit(signed.unit))
    shutil.rmtree(runs.home.imports)
    if before.keys() != tree(runs.home).keys():
        (runs.home.root / "train").rmdir()
    return True


def _agreed(folder: Path) -> Agreed:
    home = RunDir(folder / "home")
    experiment = agreed_runs.tiny(folder, **agreed_runs.CHANGES)
    return Agreed(experiment, home, RunDir(folder / "partner"), run_contract(home))


def fuzz_contracts(folder: Path, count: int, fuzzing: Fuzzing) -> None:
    """Submit mutated contracts, without a start; half of them are signed again by the coordinator."""
    shared, generator = Collaboration(folder), fuzzing.generator
    sent, run = folder / "fuzzed", folder / "fuzzed-run"
    contents = {path.name: path.read_bytes() for path in shared.contract.iterdir()}
    names = [contracts.FILE] * 4 + sorted(contents)
    options = ("--trust", shared.fingerprint("north"), "--dry-run")
    for _ in range(count):
        shutil.rmtree(sent, ignore_errors=True)
        shutil.copytree(shared.contract, sent)
        name, is_signed = generator.choice(names), generator.random() < 0.5
        content = mutated(contents[name], generator)
        (sent / name).write_bytes(content)
        if is_signed and name.endswith(".safetensors"):
            entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            values = json.loads(contents[contracts.FILE])
            values["files"][name] = entry
            name, content = contracts.FILE, json.dumps(values).encode()
        if is_signed and name == contracts.FILE:
            shared.sign(sent, content)
        done = fuzzing.call(lambda: shared.submit(sent, run, *options))
        if not done.exit_code:
            agreed, _ = contracts.read_contract(sent)
            signed_folder.receive(sent, contracts.FILE, agreed.files, None, lambda size: None)
        written = {path.name for path in run.rglob("*") if path.is_file()}
        assert written <= {".submit.lock"}, (written, done.output)
        shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(sent)


def main(kind: str, folder: str, count: str, seed: str) -> None:
    """Fuzz within the limits, and print the figures."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    fuzzing = Fuzzing(int(seed))
    {"bundles": fuzz_bundles, "contracts": fuzz_contracts}[kind](Path(folder), int(count), fuzzing)
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(json.dumps({**fuzzing.figures, "longest": round(fuzzing.longest, 2), "mebibytes": int(peak) // 1024}))


if __name__ == "__main__":
    main(*sys.argv[1:])
