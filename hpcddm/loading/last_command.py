"""The command with which a run or a sweep was last submitted, kept there, so that others can advise to repeat it."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.config.package_data import find_data_folder, is_file_path
from hpcddm.errors import UserError
from hpcddm.errors.next_step import NextStep
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.pipeline.unit_graph import STAGE_NAMES
from hpcddm.runs import group_permissions
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep

SITES = "slurm/sites"


@dataclass(frozen=True)
class SubmitCommand:
    """A command as a user typed it."""

    words: list[str]
    """Its words after 'hpcddm', without the folder of the run and without --until."""
    folder: str
    """Folder in which it was typed: names of files are relative to it."""
    until: str | None = None
    """Last requested stage; None for all."""


def submit_command(
    name: str, overrides: Collection[str], site: str, until: str | None, contract: Path | None = None
) -> SubmitCommand:
    """Describe a call of `hpcddm submit`."""
    agreed = [] if contract is None else ["--contract", str(contract)]
    words = [*([name] if contract is None or "=" in name else []), *overrides, *agreed, *_site_option(site)]
    return SubmitCommand(["submit", *words], str(Path.cwd()), until)


def sweep_command(name: str, site: str, only: Collection[str]) -> SubmitCommand:
    """Describe a call of `hpcddm sweep`."""
    chosen = [word for text in only for word in ("--only", text)]
    return SubmitCommand(["sweep", name, *chosen, *_site_option(site)], str(Path.cwd()))


def _site_option(site: str) -> list[str]:
    return ["--site", site] if site != "auto" else []


def store_command(typed: SubmitCommand | None, home: RunDir) -> None:
    """Keep a command with the run or the sweep that it submits; the user vouches for it. None changes nothing."""
    if typed is None:
        return
    if typed != stored_command(home):
        atomic.write_json(home.command, asdict(typed), durable=False)
    trusted_submissions.remember(home.root, asdict(typed))


def keep_command(typed: SubmitCommand | None, run: RunDir) -> None:
    """Keep a command that found nothing to submit, where there is a run that this user may write."""
    if not run.experiment.exists():
        return
    group_permissions.prepare_writes(run.root)
    with suppress(OSError, UserError):
        store_command(typed, run)


def stored_command(home: RunDir) -> SubmitCommand | None:
    """Read the command that is kept there; None where there is none, or none that can be."""
    with suppress(Unreadable):
        typed: SubmitCommand | None = checked_reads.read_json(home.command, SubmitCommand, checked_reads.RECORD_BYTES)
        if typed is not None and typed.until in (None, *STAGE_NAMES):
            return typed
    return None


def last_site(run: RunDir) -> str | None:
    """Return the site that the user's own last command for a run names; None where it names none."""
    typed = stored_command(run)
    if typed is None or "--site" not in typed.words or not trusted_submissions.is_known(run.root, asdict(typed)):
        return None
    name = typed.words[typed.words.index("--site") + 1]
    return str(Path(typed.folder, name)) if is_file_path(name) else name


def repaired_site_file(run: RunDir, name: str) -> Path | None:
    """Return the site file of the user's own last command for a run if it was written since the last submission.

    Args:
        run: The run.
        name: Name of the site, for a command that names none.

    Returns:
        The file, where the command would find it; None without one.
    """
    typed = stored_command(run)
    if typed is None or not trusted_submissions.is_known(run.root, asdict(typed)):
        return None
    given = last_site(run) or name
    folders = (Path(typed.folder), Path(typed.folder, SITES), find_data_folder() / SITES)
    places = [Path(given)] if is_file_path(given) else [folder / f"{given}.yaml" for folder in folders]
    path = next((place for place in places if place.is_file() and trusted_submissions.belongs_to_user(place)), None)
    submitted = max((submission.time for submission in Journal(run.journal).submissions()), default=0.0)
    return path if path and path.stat().st_mtime > submitted else None


def submitted_folder(run: RunDir) -> RunDir:
    """Return the folder that is submitted: that of the sweep for one of its settings, else the run itself."""
    home = RunDir(run.root.resolve().parent)
    return home if is_sweep(home) else run


def repeat_commands(run: RunDir, redo: Collection[str] = (), is_whole: bool = False) -> tuple[tuple[object, ...], ...]:
    """Return the commands that submit a run, or its sweep, again; empty if they are unknown.

    Args:
        run: The run, a setting of a sweep, or the sweep itself.
        redo: Stages that are made again.
        is_whole: True for all stages, also where fewer were submitted last.
    """
    home = submitted_folder(run)
    typed = stored_command(home)
    more = [word for stage in redo for word in ("--redo", stage)]
    if typed is None or not trusted_submissions.is_known(home.root, asdict(typed)):
        # Another user's command may name that user's files; so name the run's stored experiment and this user's site.
        return (
            ()
            if is_sweep(home)
            else (("hpcddm", "submit", home.experiment, "--run-dir", home.root, *_site(home), *more),)
        )
    more += ["--until", typed.until] if typed.until and not is_whole else []
    words = ("hpcddm", *typed.words)
    if Path.cwd() == Path(typed.folder):
        return ((*words, "--run-dir", home.root, *more),)
    return (("cd", typed.folder), (*words, "--run-dir", home.root.resolve(), *more))


def _site(home: RunDir) -> tuple[str, ...]:
    """Name the site from which a run was last submitted."""
    names = [submission.site for submission in Journal(home.journal).submissions()]
    return ("--site", names[-1]) if names else ()


def retry_commands(run: RunDir) -> tuple[tuple[object, ...], ...]:
    """Return the commands that resubmit cancelled units; a sweep is submitted as a whole."""
    if is_sweep(submitted_folder(run)):
        return repeat_commands(run)
    site = _site(run) if len({submission.site for submission in Journal(run.journal).submissions()}) > 1 else ()
    return (("hpcddm", "retry", run.root, *site),)


def resubmit_step(run: RunDir, reason: str = "") -> NextStep:
    """Return the step that submits a run or its sweep once more, for a reason."""
    commands = repeat_commands(run)
    return NextStep(commands, reason or ("" if commands else "submit the sweep again with the command that began it"))
