"""Tell which planted faults the tests find: python -m tests.planted_faults [--check] [--sound] [NUMBER ...]

A fault is one line of the package, changed as somebody may change it by mistake. Each is planted alone in a copy of the
tree, and the tests run there that one would run for its module; the first that fails has found it. --check only says
which fault or path of tests no longer fits the tree; --sound plants nothing: then no test may fail.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import yaml

CHECKOUT = Path(__file__).parents[1]
COPIED = "hpcddm slurm experiments tests docs .gitignore setup.cfg pyproject.toml README.md Makefile".split()
NOT_INHERITED = ("HPCDDM_TEST_RUNS", "HPCDDM_OPENED")
"""Variables of `make test`: a finished run of the sound package would be taken for one of the copy."""
MAX_SECONDS = 1800
"""Seconds that the tests of one fault may take; a fault that makes them hang is found, too."""
NOT_PASSED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Fault(NamedTuple):
    """A fault: a fragment that is once in a file of the package, what takes its place, and tests that may find it."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]
    """Files or folders below tests/."""

    def planted(self) -> str:
        """Return the file with the fault; raises an error where this or a path of tests no longer fits the tree."""
        for path in self.tests:
            (CHECKOUT / "tests" / path).stat()
        text = (CHECKOUT / "hpcddm" / self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {count} times")
        changed = text.replace(self.old, self.new)
        ast.parse(changed)
        return changed


FAULTS = [Fault(**row) for row in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())]


def copy_tree(folder: Path) -> None:
    """Copy what tests need of this tree."""
    copy_folder = partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__"))
    for name in COPIED:
        (copy_folder if (CHECKOUT / name).is_dir() else shutil.copy)(CHECKOUT / name, folder / name)


def run_tests(folder: Path, tests: list[str]) -> str:
    """Run tests of a copy until one fails, and return what pytest says."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    # Bits are compared, and those of a GPU are other ones.
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    # An installed package may lead to another checkout.
    where = "import hpcddm, sys; sys.exit(not hpcddm.__file__.startswith(sys.argv[1]))"
    subprocess.run([sys.executable, "-P", "-c", where, str(folder)], env=environment, check=True)
    command = [sys.executable, *"-m pytest -x -q -p no:cacheprovider".split(), *(f"tests/{path}" for path in tests)]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            run.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            return f"FAILED tests/ without an end in {MAX_SECONDS} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        said.seek(0)
        return said.read()


def verdict(said: str) -> str:
    """Return if the tests found a fault, and the first that did."""
    if match := NOT_PASSED.search(said):
        return f"found  {match[1]}"
    last = said.strip().rpartition("\n")[2]
    return "MISSED" if " passed" in last else f"no verdict  {last}"


def main() -> None:
    """Plant the faults with these numbers, or all, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="by default all, from 1")
    parser.add_argument("--check", action="store_true", help="only check that all faults fit the tree")
    parser.add_argument("--sound", action="store_true", help="plant nothing")
    given = parser.parse_args()
    for number in given.numbers or range(1, len(FAULTS) + 1):
        fault = FAULTS[number - 1]
        changed = fault.planted()
        if given.check:
            continue
        with tempfile.TemporaryDirectory(prefix="hpcddm-fault-") as name:
            folder, started = Path(name).resolve(), time.monotonic()
            copy_tree(folder)
            if not given.sound:
                (folder / "hpcddm" / fault.file).write_text(changed)
            found = verdict(run_tests(folder, fault.tests))
        print(f"{number:2}  {fault.name}: {found}  {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
