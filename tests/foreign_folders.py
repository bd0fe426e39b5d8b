"""All cases of folders that others wrote, each with every verb in a process of its own, with little memory, as a table.

Usage: python -m tests.foreign_folders RUN SITE WORK [--only TEXT] [--agreed]. RUN is a finished run of the tiny
experiment, SITE the site that it was submitted with, WORK a new folder. A line for every case has exit codes, seconds
and memory of every verb, and what was said. What may not be ends it with 1: a traceback, a hang, something of the
user's that changed, something executed, output that is not printable, or a fault that is not named. With --agreed the
run has a contract by which the unit is of another site: then its files may not be opened either.
"""

import argparse
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcddm.cli import main as command_line
from hpcddm.jobs.entry import run_unit
from hpcddm.runs.manifest import FILE_NAME
from tests.foreign_agreed import AGREED, OTHER, UNSEALED, UNVERIFIED, Watch, agree, vouch
from tests.foreign_cases import UNIT, Beside, copy_of, tree_digest
from tests.foreign_units import CASES, MISREAD, REPORT, Case, misread, one_of_each, reader_of
from tests.whole_runs import TINY

MEMORY, MOST_SECONDS, MOST_JOB_SECONDS = 4 << 30, 60, 600


@dataclass(frozen=True)
class Ended:
    """How a verb ended."""

    code: int | str
    text: str
    seconds: float
    mib: int
    """Largest memory of the process, and of those that it waited for."""

    @property
    def fault(self) -> str | None:
        """What may not be, of a process alone."""
        if self.code == "hang" or (isinstance(self.code, int) and self.code < 0):
            return str(self.code)
        if "Traceback" in self.text:
            return "traceback"
        lines = self.text.splitlines()
        is_printable = all(line.isprintable() and not line.startswith("next: curl") for line in lines)
        return None if is_printable else "not printable"


def in_child(work: Callable[[], object], output: Path, most_seconds: float) -> Ended:
    """Do something in a fork with little memory, and end it with all that it started where it hangs.

    A fork begins where the imports are done, which take longer than most verbs.
    """
    started, child = time.monotonic(), os.fork()
    if child == 0:
        _work(work, output)
    code: int | str = "hang"
    while code == "hang" and time.monotonic() - started < most_seconds:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.05)
    if code == "hang":
        os.killpg(child, signal.SIGKILL)
        *_, used = os.wait4(child, 0)
    seconds = time.monotonic() - started
    return Ended(code, output.read_text(errors="replace"), seconds, used.ru_maxrss >> 10)


def _work(work: Callable[[], object], output: Path) -> None:
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def command(*arguments: object) -> Callable[[], object]:
    """Return what a user's command does."""
    return lambda: command_line.main([str(argument) for argument in arguments], "hpcddm")


def verbs(
    case: Case, beside: Beside, site: Path, settings: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], object], float]]:
    """List the verbs of a case, what each does, and its longest time; `job`: as a job makes the unit that reads it."""
    run, out = beside.run, beside.run.parent
    submit = ["submit", "quickstart", "--site", site, "--run-dir", run, *settings, *case.arguments]
    drawn = ["--num-images", 2, "--steps", 2, "--output", out / "grid.png"]
    yield "status", command("status", run), MOST_SECONDS
    yield "sample", command("sample", run, "--strategy", "full", *drawn), MOST_SECONDS
    yield "export", command("export", run, UNIT, "--output", out / "exported"), MOST_SECONDS
    yield "submit", command(*submit, *([] if case.job is None else ["--dry-run"])), MOST_JOB_SECONDS
    case.before_retry(beside)
    yield "retry", command("retry", run), MOST_JOB_SECONDS
    if case.job is not None:
        key = case.job or "draw"
        if "/" not in key:
            key = f"{key}/{min(path.stem for path in (run / 'specs' / key).iterdir())}"
        (run / key.removesuffix("/all") / "manifest.json").unlink(missing_ok=True)
        yield "job", lambda: run_unit(str(run / f"specs/{key}.json")), MOST_JOB_SECONDS
    yield "clean", command("clean", run, "--yes"), MOST_SECONDS


def examined(
    case: Case, template: Path, site: Path, work: Path, watch: Watch | None = None
) -> tuple[Mapping[str, Ended], list[str]]:
    """Run all verbs of a case; return how they ended, and what may not be; `watch` for a run with a contract."""
    beside, faults, opened = copy_of(template, work), [], work / "opened.txt"
    if watch is not None:
        vouch(beside.run)
    case.make(beside)
    refusal = UNVERIFIED
    if not os.path.lexists(beside.run / UNIT / FILE_NAME):
        refusal = UNSEALED if case.job == UNIT else f"belongs to site {OTHER}"
    before, ended = tree_digest(beside.victim), dict[str, Ended]()
    for verb, work_of, longest in verbs(case, beside, site, TINY if watch is None else AGREED):
        if watch is not None:
            # A job that trains the unit itself reads what it has written.
            watch.noted = None if verb == "job" and case.job == UNIT else opened
        ended[verb] = in_child(work_of, work / f"{verb}.txt", longest)
        if watch is not None:
            watch.noted = None
        if opened.exists():
            faults.append(f"{verb}: opened {opened.read_text().splitlines()[0]}")
        if ended[verb].fault:
            faults.append(f"{verb}: {ended[verb].fault}")
        if tree_digest(beside.victim) != before:
            faults.append(f"{verb}: changed something of the user's")
        if beside.canary.exists():
            faults.append(f"{verb}: executed something")
    logs = {
        str(path.relative_to(beside.run)): path.read_text(errors="replace") for path in new_logs(beside.run, template)
    }
    faults += [f"{path}: traceback" for path, text in logs.items() if "Traceback" in text]
    said = [own.text for own in ended.values()] + list(logs.values())
    if case.job == REPORT and (metrics := beside.run / "report/metrics.json").is_file():
        said.append(metrics.read_text())
    wanted = [case.text] if watch is None else [case.text or UNVERIFIED, refusal]
    if not any(text in " ".join(own.split()) for own in said for text in wanted):
        faults.append(f"nobody says '{wanted[0]}'")
    return ended, faults


def new_logs(run: Path, template: Path) -> list[Path]:
    """List the logs of ranks that the template of the run does not have."""
    logs = [path for path in (run / "logs").rglob("*.log") if path.is_file() and not path.is_symlink()]
    return [path for path in logs if not (template / path.relative_to(run)).exists()]


def line_of(name: str, ended: Mapping[str, Ended], faults: list[str]) -> str:
    """Make the line of a case: by verb the exit code, seconds and MiB."""
    cells = " ".join(f"{verb} {own.code} {own.seconds:.1f}s {own.mib}M" for verb, own in ended.items())
    told = [line.strip() for own in ended.values() for line in own.text.splitlines() if UNIT in line or "error" in line]
    return f"{name} | {cells} | {told[0][:160] if told else ''} | {'; '.join(faults) or 'ok'}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("run", "site", "work"):
        parser.add_argument(name, type=lambda text: Path(text).resolve())
    parser.add_argument("--only", default="", help="part of the names of the cases")
    parser.add_argument("--agreed", action="store_true", help="under a contract")
    asked = parser.parse_args()
    # What a verb would import, so that its fork does not.
    import deepspeed  # noqa: F401

    import hpcddm.api
    import hpcddm.commands.export
    import hpcddm.models.checkpoints.diffusers_dit
    import hpcddm.stages.evaluation.draw_job
    import hpcddm.stages.report.report_job
    import hpcddm.stages.training.train_job  # noqa: F401

    asked.work.mkdir(parents=True)
    os.chdir(asked.work)
    os.environ |= {"XDG_STATE_HOME": str(asked.work / "state"), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    template = copy_of(asked.run, asked.work / "template").run
    watch = Watch() if asked.agreed else None
    if watch is not None:
        agree(template, asked.site, asked.work)
    refused = {f"{UNIT}/{FILE_NAME}": f"{UNIT}/{FILE_NAME}: "} if asked.agreed else {}
    files = {
        f"file: {plain}: {kind}": Case(misread(file, kind), refused.get(file, ""), job=reader_of(file))
        for plain, file in one_of_each(template).items()
        for kind in MISREAD
    }
    failed = 0
    for name, case in (CASES | files).items():
        if asked.only in name:
            ended, faults = examined(case, template, asked.site, asked.work / "case", watch)
            print(line_of(name, ended, faults), flush=True)
            failed += bool(faults)
            if not faults:
                shutil.rmtree(asked.work / "case")
            else:
                (asked.work / "case").rename(asked.work / f"failed-{failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
