"""Where every job starts: `run_unit(spec)` makes one unit of one stage complete, or says why not."""

import importlib
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

from hpcddm.config import Experiment
from hpcddm.errors import UserError
from hpcddm.rundir import manifest as manifests
from hpcddm.rundir.heartbeat import Pulse
from hpcddm.rundir.layout import RunDir, set_aside
from hpcddm.rundir.lease import lease
from hpcddm.rundir.manifest import Manifest
from hpcddm.runtime import ranks as ranks_module
from hpcddm.runtime.attempt import Attempt, open_attempt
from hpcddm.runtime.spec import Spec, read_spec
from hpcddm.runtime.stopping import StopFlag, Stopped
from hpcddm.runtime.unit import Result, Unit

COLLECTIVE_STAGES = ("train", "route", "critics")
"""Stages whose units may have more than one rank; elsewhere the other ranks have nothing to do."""

LEAVING_SECONDS = 90
"""How long a new attempt waits for the one before it, which may still be saving."""


def run_unit(spec_path: str) -> None:
    """Run one unit in this process and leave; every launcher, and `hpcddm run-stage`, comes through here."""
    stop = StopFlag()
    stop.install()
    code = _run(Path(spec_path), stop)
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown can abort in gloo's threads after the last line of Python has run.
    os._exit(code)


def _run(spec_path: Path, stop: StopFlag) -> int:
    spec, run = read_spec(spec_path)
    ranks = ranks_module.from_environment()
    if ranks.rank > 0 and spec.stage not in COLLECTIVE_STAGES:
        return 0
    _prepare_environment(spec)
    with stop.cut_short():
        attempt = open_attempt(run.logs(spec.key), ranks)
    attempt.redirect_output(ranks.rank)
    try:
        outcome, reason = _make(spec, run, ranks, attempt, stop), ""
    except Stopped as stopped:
        outcome, reason = "stopped", str(stopped)
        next_time = "continues where this one was" if spec.stage in COLLECTIVE_STAGES else "starts over"
        print(f"stopped: {reason}; the next attempt {next_time}", flush=True)
    except UserError as error:
        attempt.close("failed", str(error))
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except BaseException as error:
        attempt.close("failed", f"{type(error).__name__}: {error}".splitlines()[0])
        traceback.print_exc()
        return 1
    # The others are through before the outputs are published, and the first word about the end stands.
    if ranks.rank == 0:
        attempt.close(outcome, reason)
    return 0


def _make(spec: Spec, run: RunDir, ranks: ranks_module.Ranks, attempt: Attempt, stop: StopFlag) -> str:
    folder = run.unit(spec.key)
    inputs = _inputs(spec, run)
    expected = Manifest(*spec.key.split("/"), spec.covers, {key: found.digest for key, found in inputs.items()}, [])
    if _fits(folder, expected):
        return "already complete"
    folder.mkdir(parents=True, exist_ok=True)
    pulse = Pulse(folder, ranks.owner, attempt.number, socket.gethostname())
    interface = spec.network_interface
    unit = Unit(spec.key, run, ranks, attempt, pulse, stop, inputs, expected.fingerprint, interface)
    if ranks.rank > 0:
        _call_stage(spec, unit)
        return "complete"
    with lease(folder / ".lease", spec.key, LEAVING_SECONDS):
        # The attempt before this one may have finished while it held the lease.
        if _fits(folder, expected):
            return "already complete"
        if (folder / manifests.FILE_NAME).exists():
            set_aside(run, spec.key)
        pulse.beat()
        _publish(_call_stage(spec, unit), unit, expected)
    print(f"{spec.key} is complete after {time.time() - attempt.started:.1f} s", flush=True)
    return "complete"


def _fits(folder: Path, expected: Manifest) -> bool:
    """Whether the unit is there already, made of the same settings and inputs."""
    present = manifests.read(folder)
    return bool(present) and present.fingerprint == expected.fingerprint and not manifests.damage(folder, present)


def _publish(result: Result, unit: Unit, expected: Manifest) -> None:
    outputs = manifests.describe_outputs(unit.folder, result.outputs)
    record = manifests.record(unit.attempt.started, unit.ranks.world_size)
    parts = (expected.stage, expected.unit, expected.settings, expected.inputs)
    manifests.publish(unit.folder, Manifest(*parts, outputs, result.facts, record))
    # Nothing will be continued; and a folder that is copied to another site must hold no pickles.
    shutil.rmtree(unit.state, ignore_errors=True)


def _call_stage(spec: Spec, unit: Unit) -> Result:
    stage = importlib.import_module(f"hpcddm.stages.{spec.stage}")
    return stage.run(Experiment.model_validate(spec.experiment), unit, spec.num_units)


def _inputs(spec: Spec, run: RunDir) -> dict[str, Manifest]:
    """The manifests of everything that the unit reads: no unit starts on something unfinished."""
    inputs = {}
    for key in spec.needs:
        found = manifests.read(run.unit(key))
        if found is None:
            raise UserError(f"{spec.key} cannot start: {key} is not complete; see 'hpcddm status {run.root}'")
        broken = manifests.damage(run.unit(key), found)
        if broken:
            raise UserError(
                f"{spec.key} cannot start: {broken}; delete {run.unit(key) / manifests.FILE_NAME} and submit again"
            )
        inputs[key] = found
    return inputs


def _prepare_environment(spec: Spec) -> None:
    """Set what libraries read at import: threads, and caches on a disk of this node."""
    threads = str(spec.threads)
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    cache = _own_cache()
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        os.environ.setdefault(variable, str(cache / variable.lower()))


def _own_cache() -> Path:
    """A folder on a disk of this node to which nobody else can write: what lies in it is executed."""
    folder = Path(tempfile.gettempdir()) / f"hpcddm-cache-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    with suppress(OSError):
        found = folder.lstat()
        mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    return Path(tempfile.mkdtemp(prefix="hpcddm-cache-"))
