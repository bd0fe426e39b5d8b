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
    tests: tuple[str, ...]
    """Files or folders below tests/."""
    alone: bool = False
    """True if only tests that need the machine for themselves can find it."""

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


FAULTS: list[Fault] = [
    # Diffusion.
    Fault(
        "factor of the cosine path's derivative",
        "diffusion/objectives/schedules/cosine.py",
        "-QUARTER * sigma, QUARTER * alpha)",
        "-QUARTER * sigma, alpha)",
        ("diffusion/objectives/test_schedules.py", "diffusion/objectives/test_flow_matching.py"),
    ),
    Fault(
        "a network is asked at the linear path's time",
        "sampling/conversions/snr_matched.py",
        "x), tau.to(t.dtype)",
        "x), t",
        ("sampling/test_conversions.py", "sampling/test_identity.py"),
    ),
    # Sampling.
    Fault(
        "Heun's second velocity at the first time",
        "sampling/solvers/heun.py",
        "velocity(there, t_next)",
        "velocity(there, t)",
        ("sampling/test_sampler.py",),
    ),
    Fault(
        "guidance counted from zero",
        "sampling/velocity.py",
        "torch.lerp(unconditional, conditional, scale)",
        "torch.lerp(unconditional, conditional, scale - 1)",
        ("sampling/test_velocity.py", "sampling/test_identity.py"),
    ),
    Fault(
        "weights of some experts are not renormalised",
        "sampling/strategies/base.py",
        "chosen / chosen.sum(1, keepdim=True)",
        "chosen / chosen.sum(1, keepdim=True).clamp(min=1)",
        ("sampling/test_strategies.py", "sampling/test_velocity.py"),
    ),
    Fault(
        "an expert's velocities get weights of other samples",
        "sampling/dispatch.py",
        "(group, share[group], expert(",
        "(group, share[: len(group)], expert(",
        ("sampling/test_dispatch.py", "sampling/test_velocity.py"),
    ),
    # Training.
    Fault(
        "half-life of the average early in a training",
        "training/ema.py",
        "RAMP * images_seen",
        "RAMP * training.images",
        ("training/test_ema.py", "training/test_loop.py"),
    ),
    Fault(
        "the loss is divided twice by the micro batches",
        "training/engine.py",
        "self._engine.backward(loss)",
        "self._engine.backward(loss / self.micro_batches)",
        ("training/test_step_results.py", "training/test_pair.py"),
    ),
    Fault(
        "a resumed optimizer counts its steps from zero",
        "training/engine.py",
        "number, moments, max(filter(None, steps), default=None))",
        "number, moments, 0.0)",
        ("training/test_loop.py", "training/test_pair.py"),
    ),
    Fault(
        "all ranks train on the images of the first",
        "training/loop.py",
        "range(first + share * ranks.rank, first + share * (ranks.rank + 1))",
        "range(first, first + share)",
        ("training/test_pair.py", "commands/test_run_unit.py"),
    ),
    # Data.
    Fault(
        "a validation image has the class of the next",
        "data/sources/imagenet_files.py",
        "text = lines[number - 1] if number else None",
        "text = lines[number % len(lines)] if number else None",
        ("data/sources/test_imagenet.py",),
    ),
    Fault(
        "held-out images are trained on, too",
        "data/sources/picture_files.py",
        'is_heldout(self.key_of(name), share) == (split == "heldout")',
        'is_heldout(self.key_of(name), share) >= (split == "heldout")',
        ("data/sources/test_image_folder.py", "data/sources/test_imagenet.py", "data/sources/test_listing.py"),
    ),
    Fault(
        "images come in the order of their tars",
        "data/images.py",
        "return [results[row] for row, _ in places]",
        "return list(results.values())",
        ("data/test_images.py", "data/test_reader.py"),
    ),
    Fault(
        "channels are mixed with rows",
        "data/sources/arrays.py",
        "np.moveaxis(pixels, 0, -1)",
        "pixels.reshape(*pixels.shape[1:], pixels.shape[0])",
        ("data/sources/test_arrays.py",),
    ),
    Fault(
        "every epoch has the same order",
        "data/orders/base.py",
        "EPOCH.format(epoch=epoch)",
        "EPOCH.format(epoch=0)",
        ("data/orders/test_orders.py", "data/test_batch.py"),
    ),
    # Clustering.
    Fault(
        "samples are assigned as if clusters had no largest size",
        "clustering/nearest_centroid.py",
        "Centroids(self.centroids, self.penalties)",
        "Centroids(self.centroids)",
        ("clustering/test_kmeans.py", "clustering/test_hierarchical.py"),
    ),
    # Evaluation.
    Fault(
        "variance of one side twice in the Frechet distance",
        "evaluation/metrics/gaussians.py",
        "shift + first.variance + second.variance",
        "shift + first.variance + first.variance",
        ("evaluation/metrics/test_fd.py", "evaluation/metrics/test_metrics.py"),
    ),
    Fault(
        "density per real image instead of per sample",
        "evaluation/metrics/overlap.py",
        "(DENSITY_NEIGHBOURS * fakes.sum(1))",
        "(DENSITY_NEIGHBOURS * reals.sum(1))",
        ("evaluation/metrics/test_precision_recall.py", "evaluation/metrics/test_neighbours.py"),
    ),
    Fault(
        "factor of the jackknife's variance",
        "evaluation/statistics/jackknife.py",
        "float((len(left_out) - 1) * np.mean(",
        "float(len(left_out) * np.mean(",
        ("evaluation/statistics/test_jackknife.py", "evaluation/statistics/test_tenths.py"),
    ),
    Fault(
        "home of a concept by share instead of count",
        "evaluation/concepts/counting.py",
        "(own + 0.5 * shares).argmax(1)",
        "shares.argmax(1)",
        ("evaluation/concepts/test_scores.py", "evaluation/concepts/test_counting.py"),
    ),
    # Files.
    Fault(
        "a file's content is not synced before it is renamed",
        "files/atomic.py",
        "sync(staged)",
        "sync(staged.parent)",
        ("files/test_atomic.py", "training/test_killed.py"),
    ),
    Fault(
        "a file is overwritten instead of replaced",
        "files/atomic.py",
        "os.replace(staged, staged.with_name(path.name))",
        "staged.with_name(path.name).write_bytes(staged.read_bytes()), staged.unlink()",
        ("files/test_atomic.py", "files/test_guarded_writes.py"),
    ),
    Fault(
        "a path may lead upwards",
        "files/checked_reads.py",
        'part in ("", ".", "..")',
        'part in ("", ".")',
        ("files/test_checked_reads.py", "runs/test_manifest.py"),
    ),
    Fault(
        "the group cannot read logs and journal",
        "files/guarded_writes.py",
        "os.O_CLOEXEC, 0o666, dir_fd=folder",
        "os.O_CLOEXEC, 0o600, dir_fd=folder",
        ("real/test_embedded.py",),
        alone=True,
    ),
    # Runs.
    Fault(
        "a setting that is new makes no unit stale",
        "pipeline/unit_states.py",
        "sorted(before.keys() | now.keys())",
        "sorted(before.keys())",
        ("pipeline/test_unit_states.py", "launch/test_submission.py"),
    ),
    Fault(
        "a training goes on from a state of other images",
        "runs/manifest.py",
        'digest({"settings": settings, "inputs": self.inputs})',
        'digest({"settings": settings})',
        ("runs/test_manifest.py", "runs/test_state_seals.py"),
    ),
    Fault(
        "others may write what is trusted",
        "config/trusted_submissions.py",
        "guarded_writes.is_private_folder(folder) and _is_usable(folder) and (folder",
        "_is_usable(folder) and (folder",
        ("config/test_trusted_submissions.py", "commands/test_trusted_settings.py"),
    ),
    # Jobs.
    Fault(
        "one fruitless attempt too many",
        "jobs/requeue_policy.py",
        "if own >= FRUITLESS:",
        "if own > FRUITLESS:",
        ("jobs/test_requeue_policy.py",),
    ),
    Fault(
        "a replaced execution ends the step of its successor",
        "jobs/entry.py",
        'f"{SUPERSEDED} ({reason})", 0',
        'f"{SUPERSEDED} ({reason})", code',
        ("jobs/test_entry.py",),
    ),
    # Launch.
    Fault(
        "an array does not wait for inputs that are being made",
        "launch/queue.py",
        "for name, job in active.items()}",
        'for name, job in active.items() if job.state == "pending"}',
        ("launch/test_queue.py", "launch/test_continuation.py"),
    ),
    Fault(
        "chunks of an array together run more than allowed",
        "launch/queue.py",
        "max_parallel // lanes + (lane < max_parallel % lanes)",
        "-(-max_parallel // lanes)",
        ("launch/test_chunks.py", "launch/test_queue.py"),
    ),
    Fault(
        "code that was changed in a run is taken for the user's",
        "launch/code_copy.py",
        "provenance.code_digest(provenance.folder_digests(self.folder)) == self.folder.name,",
        "provenance.code_digest(self._hashes) == self.folder.name,",
        ("launch/test_code_copy.py",),
    ),
    # Exchange.
    Fault(
        "a signature for another purpose is accepted",
        "exchange/signing.py",
        "signature = sshsig.parse(armoured)",
        "namespace = (signature := sshsig.parse(armoured)).namespace",
        ("exchange/test_signing.py",),
    ),
    Fault(
        "a key of small order is accepted",
        "exchange/ssh_keys.py",
        "(0, 1, FIELD - 1, ORDER_EIGHT, FIELD - ORDER_EIGHT)",
        "(0, 1, FIELD - 1, ORDER_EIGHT)",
        ("exchange/test_signing.py",),
    ),
    Fault(
        "the contract before the newest is accepted again",
        "commands/agreed_submission.py",
        "if kept.revision > self.contract.revision:",
        "if kept.revision > self.contract.revision + 1:",
        ("exchange/test_contract.py",),
    ),
    # Commands.
    Fault(
        "a run is complete though a later unit failed",
        "commands/run_status.py",
        "row.unit not in self.requested and row.state in NOT_BEGUN",
        "row.unit not in self.requested",
        ("commands/test_advice.py", "commands/test_status.py"),
    ),
    Fault(
        "clean removes states of a suspended training",
        "pipeline/state.py",
        "frozenset({State.STARTING, State.RUNNING, State.SUSPENDED, State.STOPPING})",
        "frozenset({State.STARTING, State.RUNNING, State.STOPPING})",
        ("commands/test_clean.py",),
    ),
    Fault(
        "of two kinds of GPUs one is charged",
        "launch/slurm/sacct.py",
        "sum(typed) if typed else None",
        "typed[0] if typed else None",
        ("commands/test_cost.py",),
    ),
    # Config.
    Fault(
        "a key that is twice in a file",
        "config/strict_yaml.py",
        "if name.value in keys:",
        "if keys.get(name.value) == name.start_mark.line + 1:",
        ("config/test_strict_yaml.py", "launch/test_load_experiment.py"),
    ),
    Fault(
        "the beginning of a refused flag of sbatch",
        "config/sbatch_flags.py",
        "next((flag for flag in refused if flag.startswith(name)), None)",
        "None",
        ("config/test_sbatch_flags.py",),
    ),
]


def copy_tree(folder: Path) -> None:
    """Copy what tests need of this tree."""
    copy_folder = partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__"))
    for name in COPIED:
        (copy_folder if (CHECKOUT / name).is_dir() else shutil.copy)(CHECKOUT / name, folder / name)


def run_tests(folder: Path, tests: tuple[str, ...]) -> str:
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
        what = f"{fault.name}{' (alone)' * fault.alone}"
        print(f"{number:2}  {what}: {found}  {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
