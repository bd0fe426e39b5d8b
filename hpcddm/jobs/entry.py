"""Entry point of every job: `run_unit(spec)` makes one unit of one stage complete, or records why it did not."""

import errno
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from hpcddm.config import paths, variant_files
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.config.site import Resources
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import MOST_OF_A_LINE, printable
from hpcddm.files import fresh, inside, private
from hpcddm.jobs import environment
from hpcddm.jobs.attempt import SUPERSEDED, Attempt, Superseded, open_attempt
from hpcddm.jobs.inputs import NotReady, patient_gather
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.spec import Spec, read_map, read_spec
from hpcddm.jobs.stopping import EXIT_CODE, StopFlag, Stopped
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs import manifest as manifests
from hpcddm.runs import provenance, sharing, training_states
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.layout import RunDir, set_aside
from hpcddm.runs.lease import HeldElsewhere, lease
from hpcddm.runs.links import require_no_links
from hpcddm.runs.manifest import Manifest

LEAVING_SECONDS = 90
"""Seconds that a new attempt waits for the one before it, which may still be saving."""

LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG)
"""Errors of a file system that do not pass by themselves."""

CHECK_SECONDS = 10
"""Seconds between two checks, by one rank of each node, for a stop and for a later attempt."""
RARE_CHECK_SECONDS = 60
"""Seconds between two such checks by the other ranks of the node."""

STOP_VARIABLE = "HPCDDM_STOP_FILE"
"""Set by the batch script: the file that it makes at a stop signal, as signals may not reach Python."""


def run_element(map_path: str) -> None:
    """Run this element of an array, whose unit the map names."""
    run_unit(str(read_map(Path(map_path))[int(os.environ["SLURM_ARRAY_TASK_ID"])]))


def run_unit(spec_path: str) -> None:
    """Run one unit in this process and leave; every launcher, and `hpcddm run-stage`, comes through here."""
    stop = StopFlag()
    stop.install()
    try:
        code = _run(Path(spec_path), stop)
    except UserError as error:
        # Before there is an attempt, whose record would say so.
        print(f"error: {printable(error, MOST_OF_A_LINE)}", flush=True)
        code = error.exit_code
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Interpreter shutdown can abort in gloo's threads after the last line of Python has run.
    os._exit(code)


def _run(spec_path: Path, stop: StopFlag) -> int:
    spec, run = read_spec(spec_path)
    ranks = environment.current_ranks()
    if ranks.rank > 0 and not spec.is_collective:
        return 0
    sharing.follow(run.root)
    inside.guard(run.root)
    _prepare_environment(spec)
    allocation = environment.current_allocation(ranks.world_size, spec.threads)
    origin = provenance.origin() if ranks.rank == 0 else {}
    with stop.exit_on_stop():
        attempt = open_attempt(run.logs(spec.key), ranks, allocation.record(), origin)
    attempt.redirect_output(ranks.rank)
    for change in attempt.changes:
        print(f"note: not as in the attempt before: {change}", flush=True)
    stop.deadline = allocation.ends
    stop.reserve_seconds(spec.signal_lead_seconds)
    stop.watch(_conditions(run, ranks, attempt))
    outcome, reason, code = _outcome(spec, run, ranks, attempt, stop)
    # The others are through before the outputs are published, and the first word about the end stands.
    if ranks.rank == 0 or outcome == Outcome.FAILED:
        attempt.close(outcome, reason, code)
    elif reason:
        attempt.speak(outcome, reason, code)
    if reason:
        # The log may lie on a full disk; that must not hide how it ended.
        with suppress(OSError):
            print(f"{outcome}: {reason}{_outlook(spec) if outcome == Outcome.STOPPED else ''}", flush=True)
    return code


def _outcome(
    spec: Spec, run: RunDir, ranks: environment.Ranks, attempt: Attempt, stop: StopFlag
) -> tuple[Outcome, str, int]:
    """Make the unit and return the outcome, its reason, and the exit code.

    A superseded attempt ends with 0 for whatever reason: another code would let srun end the step, whose number is also
    that of its successor's running step.
    """
    outcome, reason, code = _attempted(spec, run, ranks, attempt, stop)
    if code and attempt.is_superseded():
        return Outcome.SUPERSEDED, f"{SUPERSEDED} ({reason})", 0
    return outcome, reason, code


def _attempted(
    spec: Spec, run: RunDir, ranks: environment.Ranks, attempt: Attempt, stop: StopFlag
) -> tuple[Outcome, str, int]:
    """Make the unit and turn whatever is raised into the outcome, its reason, and the exit code."""
    try:
        return _make(spec, run, ranks, attempt, stop), "", 0
    except Superseded as superseded:
        return Outcome.SUPERSEDED, str(superseded), 0
    except Stopped as stopped:
        return Outcome.STOPPED, str(stopped), 0
    except HeldElsewhere as held:
        return Outcome.HELD, str(held), EXIT_CODE
    except NotReady as error:
        return Outcome.WAITING, str(error), error.exit_code
    except UserError as error:
        # To try this again would end the same way, unless it was a hiccup: the user has to mend something first.
        attempt.results["final"] = not isinstance(error.__cause__, OSError) or error.__cause__.errno in LASTING
        return Outcome.FAILED, str(error), error.exit_code
    except BaseException as error:
        with suppress(OSError):
            traceback.print_exc()
        return Outcome.FAILED, printable(f"{type(error).__name__}: {error}".splitlines()[0], MOST_OF_A_LINE), 1


def _outlook(spec: Spec) -> str:
    return f"; the next attempt {'continues where this one was' if spec.is_collective else 'starts over'}"


def _conditions(
    run: RunDir, ranks: environment.Ranks, attempt: Attempt
) -> list[tuple[float, Callable[[], str | None]]]:
    """List the conditions that end a unit early, each with the seconds between two checks of it.

    One rank of each node checks often. The others hear of it at the next step and check seldom, in case that rank is
    gone and they wait for it without end.
    """
    stop_file = Path(os.environ.get(STOP_VARIABLE, run.jobs / "never.stop"))
    by_user = partial(_stopped_by_user, [run, RunDir(stop_file.parent.parent)])
    by_script, superseded = partial(_stopped_by_script, stop_file), partial(_leave_if_superseded, attempt)
    if ranks.local_rank > 0:
        return [(RARE_CHECK_SECONDS, condition) for condition in (by_script, by_user, superseded)]
    return [(0, by_script), (CHECK_SECONDS, by_user), (CHECK_SECONDS, superseded)]


def _stopped_by_script(stop_file: Path) -> str | None:
    """Return the reason to stop where the batch script has made its stop file, else None."""
    return "the job was told to stop" if stop_file.exists() else None


def _stopped_by_user(homes: list[RunDir]) -> str | None:
    """Return the reason to stop where STOP lies in the folder of the run or of its sweep, else None."""
    return next((f"{home.stop} says so" for home in homes if fresh.exists(home.stop)), None)


def _leave_if_superseded(attempt: Attempt) -> None:
    if not attempt.is_superseded():
        return
    try:
        attempt.close(Outcome.SUPERSEDED, SUPERSEDED)
        print(f"{Outcome.SUPERSEDED}: {SUPERSEDED}; leaving at once", flush=True)
    finally:
        os._exit(0)


def _make(spec: Spec, run: RunDir, ranks: environment.Ranks, attempt: Attempt, stop: StopFlag) -> Outcome:
    folder = run.unit(spec.key)
    resources = _resources(spec, run)
    gathered = patient_gather(spec, run)
    inputs = gathered.manifests
    if gathered.missing:
        print(f"without {', '.join(gathered.missing)}", flush=True)
    expected = Manifest.expected(spec.key, spec.fingerprint_settings, inputs, spec.parts, spec.lengths)
    if _fits(folder, expected):
        return Outcome.ALREADY_COMPLETE
    require_no_links(run, spec.key)
    inside.make(folder)
    heartbeat = HeartbeatWriter(attempt.folder, ranks.owner, attempt.number, socket.gethostname())
    unit = Unit(
        *(spec.key, run, ranks, attempt, heartbeat, stop, inputs, expected.trajectory),
        network_interface=spec.network_interface,
        watchdog_minutes=spec.watchdog_minutes,
        gpus=max(resources.gpus_per_node, environment.gpus_on_node()),
        resources=resources,
        data_threads=environment.data_threads(spec.threads),
    )
    if ranks.rank > 0:
        _call_stage(spec, unit)
        return Outcome.COMPLETE
    with _sole_work(folder, attempt, heartbeat):
        # The attempt before this one may have finished while it held the lease.
        if _fits(folder, expected):
            _close_states(spec, unit)
            return Outcome.ALREADY_COMPLETE
        if os.path.lexists(folder / manifests.FILE_NAME):
            is_continued = bool(training_states.of_training(unit.state, unit.trajectory))
            set_aside(run, spec.key, training_states.CONTINUED if is_continued else ())
        heartbeat.beat()
        _publish(_call_stage(spec, unit), unit, expected)
        _close_states(spec, unit)
    print(f"{spec.key} is complete after {time.time() - attempt.started:.1f} s", flush=True)
    return Outcome.COMPLETE


def _resources(spec: Spec, run: RunDir) -> Resources:
    """Return the resources that a spec names; raises `UserError` for what no site can have given."""
    try:
        return validate(Resources, spec.resources, f"{run.spec(spec.key)}: resources")
    except ConfigError as error:
        raise UserError(f"{error}; submit the run again") from None


def _sole_work(folder: Path, attempt: Attempt, heartbeat: HeartbeatWriter) -> ExitStack:
    """Hold the unit's lease; go on without it where an earlier execution of the same job on a lost node has it.

    Raises `HeldElsewhere` when another job is at work on the unit.
    """
    held = ExitStack()
    heartbeat.beat()
    try:
        held.enter_context(lease(folder / ".lease", attempt.owner, LEAVING_SECONDS))
    except HeldElsewhere as error:
        if not attempt.succeeds(error.holder.split()[0]):
            raise
        print(f"{error.holder} lost its node and still holds the lease; going on without it", flush=True)
    return held


def _fits(folder: Path, expected: Manifest) -> bool:
    """Tell if the unit is complete already, undamaged and made of the same settings and inputs."""
    present = manifests.read_if_usable(folder)
    if present is None or present.fingerprint != expected.fingerprint:
        return False
    return not manifests.damage(folder, present)


def _publish(result: Result, unit: Unit, expected: Manifest) -> None:
    outputs = manifests.describe_outputs(unit.folder, result.outputs)
    origin = unit.attempt.origin | ({"changes": unit.attempt.changes} if unit.attempt.changes else {})
    record = manifests.record(unit.attempt.started, unit.ranks.world_size, origin)
    unit.attempt.require_ownership()
    manifests.publish(unit.folder, replace(expected, outputs=outputs, results=result.results, record=record))


def _close_states(spec: Spec, unit: Unit) -> None:
    """Remove the states of a complete training but the last, with which more images would go on."""
    finished = manifests.read(unit.folder)
    if spec.is_collective and finished:
        images = finished.results.get("images", unit.attempt.results.get("images", 0))
        training_states.close(unit.state, unit.trajectory, images, spec.keep_states)


def _call_stage(spec: Spec, unit: Unit) -> Result:
    stage = variant_files.module_below("stages", f"{spec.stage}_job")
    return stage.run(paths.located(Experiment.model_validate(spec.experiment), unit.run.root), unit)


def _prepare_environment(spec: Spec) -> None:
    """Set the variables that libraries read at import: threads, and caches on a disk of this node."""
    threads = str(spec.threads)
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    cache = _own_cache()
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        os.environ.setdefault(variable, str(cache / variable.lower()))


def _own_cache() -> Path:
    """Return a folder on a disk of this node that only this user can write, as files in it are executed."""
    folder = Path(tempfile.gettempdir()) / f"hpcddm-cache-{os.getuid()}"
    return folder if private.make(folder) else Path(tempfile.mkdtemp(prefix="hpcddm-cache-"))


if __name__ == "__main__":
    run_unit(sys.argv[1])
