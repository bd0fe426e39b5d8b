"""Entry point of every job: `run_unit` completes one unit of one stage, or records why it could not."""

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

from hpcddm.config import paths, variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.job_resources import JobResources
from hpcddm.config.schema import validate
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.files import guarded_writes, nfs_reads
from hpcddm.jobs import job_environment
from hpcddm.jobs.attempt import SUPERSEDED, Attempt, Superseded, is_later_attempt
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.persistent_errors import is_final_error
from hpcddm.jobs.spec import Spec, read_element_map, read_spec
from hpcddm.jobs.stopping import EXIT_CODE, StopFlag, Stopped
from hpcddm.jobs.unit import Result, Unit
from hpcddm.jobs.unit_inputs import InputsNotReady, wait_for_inputs
from hpcddm.runs import group_permissions, provenance, training_states
from hpcddm.runs import manifest as manifests
from hpcddm.runs.contracts import require_agreed_inputs, run_contract
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.lease import HeldElsewhere, lease
from hpcddm.runs.links import require_no_links
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.state_seals import output_seal, state_seal

LEAVING_SECONDS = 90
"""Seconds that a new attempt waits for the previous attempt, which may still be saving."""

CHECK_SECONDS = 10
"""Seconds between two checks of one rank per node for a stop request and a later attempt."""
RARE_CHECK_SECONDS = 60
"""Seconds between two such checks by the other ranks of the node."""

STOP_VARIABLE = "HPCDDM_STOP_FILE"
"""Variable set by the batch script: the file that it creates at a stop signal, which may not reach Python."""


def run_element(map_path: str) -> None:
    """Run the unit of this array element.

    Args:
        map_path: Path of the array's element map.
    """
    run_unit(str(read_element_map(Path(map_path))[int(os.environ["SLURM_ARRAY_TASK_ID"])]))


def run_unit(spec_path: str) -> None:
    """Run one unit in this process and exit; every launcher and `hpcddm run-unit` call this function.

    Args:
        spec_path: Path of the unit's spec.
    """
    stop = StopFlag()
    stop.install()
    try:
        code = _run(Path(spec_path), stop)
    except (OSError, UserError) as error:
        # No attempt exists that could record the error, or its record cannot be written.
        print(f"error: {printable(error, MAX_LINE_CHARACTERS)}", flush=True)
        code = error.exit_code if isinstance(error, UserError) else 1
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Interpreter shutdown can abort in gloo's threads after the last line of Python has run.
    os._exit(code)


def _run(spec_path: Path, stop: StopFlag) -> int:
    spec, run = read_spec(spec_path)
    ranks = job_environment.current_ranks()
    if ranks.rank > 0 and not spec.is_collective:
        return 0
    group_permissions.prepare_writes(run.root)
    _prepare_environment(spec)
    allocation = job_environment.current_allocation(ranks.world_size, spec.threads)
    origin = provenance.origin() if ranks.rank == 0 else {}
    with stop.exit_on_stop():
        attempt = open_attempt(run.logs(spec.key), ranks, allocation.record(), origin)
    attempt.redirect_output(ranks.rank)
    for change in attempt.changes:
        print(f"note: not as in the attempt before: {change}", flush=True)
    stop.deadline = allocation.ends
    stop.reserve_seconds(spec.signal_lead_seconds)
    stop.watch(_conditions(run, ranks, attempt))
    outcome, reason, code = _try_to_make(spec, run, ranks, attempt, stop)
    if code and attempt.is_superseded():
        # With another code than 0 srun would end the step, whose number its successor's running step shares.
        outcome, reason, code = Outcome.SUPERSEDED, f"{SUPERSEDED} ({reason})", 0
    # The other ranks end before the outputs are published, and the first record of the end counts.
    if ranks.rank == 0 or outcome == Outcome.FAILED:
        attempt.close(outcome, reason, code)
    elif reason:
        attempt.report(outcome, reason, code)
    if reason:
        # The log may be on a full disk, which must not hide the outcome.
        with suppress(OSError):
            print(f"{outcome}: {reason}{_outlook(spec) if outcome == Outcome.STOPPED else ''}", flush=True)
    return code


def _try_to_make(spec: Spec, run: RunDir, ranks: Ranks, attempt: Attempt, stop: StopFlag) -> tuple[Outcome, str, int]:
    """Run the unit and convert any exception to an outcome, its reason, and the exit code."""
    try:
        return _make(spec, run, ranks, attempt, stop), "", 0
    except Superseded as superseded:
        return Outcome.SUPERSEDED, str(superseded), 0
    except Stopped as stopped:
        return Outcome.STOPPED, str(stopped), 0
    except HeldElsewhere as held:
        return Outcome.HELD, str(held), EXIT_CODE
    except InputsNotReady as error:
        return Outcome.WAITING, str(error), error.exit_code
    except UserError as error:
        attempt.results["final"] = is_final_error(error, run.root)
        return Outcome.FAILED, str(error), error.exit_code
    except BaseException as error:
        with suppress(OSError):
            traceback.print_exc()
        attempt.results["final"] = is_final_error(error, run.root)
        return Outcome.FAILED, printable(f"{type(error).__name__}: {error}".splitlines()[0], MAX_LINE_CHARACTERS), 1


def _outlook(spec: Spec) -> str:
    return f"; the next attempt {'continues where this one was' if spec.is_collective else 'starts over'}"


def _conditions(run: RunDir, ranks: Ranks, attempt: Attempt) -> list[tuple[float, Callable[[], str | None]]]:
    """List the conditions that stop a unit early, each with the seconds between two checks.

    One rank per node checks often. The other ranks learn of a stop at the next step; they check rarely, in case they
    wait forever for a rank that has died.
    """
    stop_file = Path(os.environ.get(STOP_VARIABLE, run.jobs / "never.stop"))
    by_user = partial(_stopped_by_user, [run, RunDir(stop_file.parent.parent)])
    by_script, superseded = partial(_stopped_by_script, stop_file), partial(_leave_if_superseded, attempt)
    if ranks.local_rank > 0:
        return [(RARE_CHECK_SECONDS, condition) for condition in (by_script, by_user, superseded)]
    return [(0, by_script), (CHECK_SECONDS, by_user), (CHECK_SECONDS, superseded)]


def _stopped_by_script(stop_file: Path) -> str | None:
    """Return the reason to stop if the batch script has created its stop file, else None."""
    return "the job was told to stop" if stop_file.exists() else None


def _stopped_by_user(homes: list[RunDir]) -> str | None:
    """Return the reason to stop if the folder of the run or of its sweep has a file STOP, else None."""
    return next((f"{home.stop} says so" for home in homes if nfs_reads.exists(home.stop)), None)


def _leave_if_superseded(attempt: Attempt) -> None:
    if not attempt.is_superseded():
        return
    try:
        attempt.close(Outcome.SUPERSEDED, SUPERSEDED)
        print(f"{Outcome.SUPERSEDED}: {SUPERSEDED}; leaving at once", flush=True)
    finally:
        os._exit(0)


def _make(spec: Spec, run: RunDir, ranks: Ranks, attempt: Attempt, stop: StopFlag) -> Outcome:
    folder = run.unit(spec.key)
    resources = _resources(spec, run)
    gathered = wait_for_inputs(spec, run)
    inputs = gathered.manifests
    if gathered.missing:
        print(f"without {', '.join(gathered.missing)}", flush=True)
    expected = spec.expected(inputs)
    if _is_already_complete(folder, expected):
        return Outcome.ALREADY_COMPLETE
    require_agreed_inputs(run_contract(run), spec.key, expected.inputs)
    require_no_links(run, spec.key)
    guarded_writes.make_folder(folder)
    heartbeat = HeartbeatWriter(attempt.folder, ranks.owner, attempt.number, socket.gethostname())
    unit = Unit(
        *(spec.key, run, ranks, attempt, heartbeat, stop, inputs, expected.trajectory),
        network_interface=spec.network_interface,
        watchdog_minutes=spec.watchdog_minutes,
        gpus=max(resources.gpus_per_node, job_environment.gpus_on_node()),
        resources=resources,
        data_threads=job_environment.data_threads(spec.threads),
        seal=partial(state_seal, run, spec.key),
    )
    if ranks.rank > 0:
        _call_stage(spec, unit)
        return Outcome.COMPLETE
    with _hold_lease(folder, attempt, heartbeat):
        # The previous attempt may have completed the unit while it held the lease.
        if _is_already_complete(folder, expected):
            _close_states(spec, unit)
            return Outcome.ALREADY_COMPLETE
        if os.path.lexists(folder / manifests.FILE_NAME):
            is_continued = bool(training_states.list_states(unit.state, unit.trajectory))
            set_aside(run, spec.key, training_states.CONTINUED if is_continued else ())
        heartbeat.beat()
        _publish(_call_stage(spec, unit), unit, expected)
        _close_states(spec, unit)
    print(f"{spec.key} is complete after {time.time() - attempt.started:.1f} s", flush=True)
    return Outcome.COMPLETE


def _resources(spec: Spec, run: RunDir) -> JobResources:
    """Return the resources in a spec; raises `UserError` if they are invalid."""
    try:
        return validate(JobResources, spec.resources, f"{run.spec(spec.key)}: resources")
    except ConfigError as error:
        raise UserError(f"{error}; submit the run again") from None


def _hold_lease(folder: Path, attempt: Attempt, heartbeat: HeartbeatWriter) -> ExitStack:
    """Hold the unit's lease; continue without it if an earlier execution of this job on a lost node holds it.

    Raises `HeldElsewhere` if another job works on the unit.
    """
    held = ExitStack()
    heartbeat.beat()
    try:
        held.enter_context(lease(folder / ".lease", attempt.owner, LEAVING_SECONDS))
    except HeldElsewhere as error:
        if not is_later_attempt(attempt.owner, error.holder.split()[0]):
            raise
        print(f"{error.holder} lost its node and still holds the lease; going on without it", flush=True)
    return held


def _is_already_complete(folder: Path, expected: Manifest) -> bool:
    """Return True if the unit is complete and undamaged, with the same settings and inputs."""
    if (present := manifests.read_if_usable(folder)) is None or present.fingerprint != expected.fingerprint:
        return False
    return not manifests.find_damage(folder, present)


def _publish(result: Result, unit: Unit, expected: Manifest) -> None:
    outputs = manifests.describe_outputs(unit.folder, result.outputs)
    for output in outputs:
        is_own = result.digests.get(output.path, output.sha256) == output.sha256
        require(is_own, f"{unit.folder / output.path}: is not what this unit wrote; remove it, then submit again")
    origin = unit.attempt.origin | ({"changes": unit.attempt.changes} if unit.attempt.changes else {})
    record = manifests.provenance_record(unit.attempt.started, unit.ranks.world_size, origin)
    record |= output_seal(unit.run, unit.key, outputs)
    unit.attempt.require_ownership()
    manifests.publish(unit.folder, replace(expected, outputs=outputs, results=result.results, record=record))


def _close_states(spec: Spec, unit: Unit) -> None:
    """Remove the states of a complete training except the last, from which a longer training could continue."""
    finished = manifests.read(unit.folder)
    if spec.is_collective and finished:
        images = finished.results.get("images", unit.attempt.results.get("images", 0))
        training_states.remove_earlier(unit.state, unit.trajectory, images, spec.keep_states)


def _call_stage(spec: Spec, unit: Unit) -> Result:
    stage = variants.import_from_subpackages("stages", f"{spec.stage}_job")
    return stage.run(paths.make_absolute(Experiment.model_validate(spec.experiment), unit.run.root), unit)


def _prepare_environment(spec: Spec) -> None:
    """Set the variables that libraries read at import: numbers of threads, and caches on a disk of this node."""
    threads = str(spec.threads)
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    cache = _own_cache()
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        os.environ.setdefault(variable, str(cache / variable.lower()))


def _own_cache() -> Path:
    """Return a folder on a disk of this node that only this user can write, because its files are executed."""
    folder = Path(tempfile.gettempdir()) / f"hpcddm-cache-{os.getuid()}"
    return folder if guarded_writes.make_private_folder(folder) else Path(tempfile.mkdtemp(prefix="hpcddm-cache-"))


if __name__ == "__main__":
    run_unit(sys.argv[1])
