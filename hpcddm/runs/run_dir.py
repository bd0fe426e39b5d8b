"""Layout of a run directory: the paths of its files and folders."""

import os
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcddm.files import guarded_writes
from hpcddm.files.guarded_writes import EXPERIMENT_FILE
from hpcddm.runs.training_states import CONTINUED
from hpcddm.runs.unit_keys import unit_name

Locate = Callable[[str, str], Path]
"""Function that maps a unit's key and the name of an output to a path, such as `RunDir.output` or `Unit.input`."""


class InsideRun:
    """Attribute of a run: the path of a file or a folder that has this name in every run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunDir", kind: type) -> Path:
        return run.root / self._name


@dataclass(frozen=True)
class RunDir:
    """Paths of one run: `<stage>/<unit>/` holds the outputs of each unit; all other files are bookkeeping.

    Args:
        root: Folder of the run.

    Examples:
        >>> run = RunDir(Path("/runs/digits"))
        >>> str(run.unit("train/expert-00"))
        '/runs/digits/train/expert-00'
        >>> str(run.unit("catalog/all"))
        '/runs/digits/catalog'
        >>> str(run.output("report/all", "metrics.json"))
        '/runs/digits/report/metrics.json'
    """

    root: Path

    experiment = InsideRun(EXPERIMENT_FILE)
    """File with the experiment as last submitted, all defaults filled in."""
    defaults = InsideRun("defaults.json")
    """File with the default values of all settings that the user omitted."""
    journal = InsideRun("journal.jsonl")
    """Journal of all submissions."""
    command = InsideRun("command.json")
    """File with the command of the last submission, as the user typed it."""
    scripts = InsideRun("scripts")
    """Folder of all submitted batch scripts."""
    template = InsideRun("template")
    """Folder of the user's parts of the batch script's template, as last submitted."""
    jobs = InsideRun("jobs")
    """Folder of the jobs' small files: maps of array elements, stop files, outputs of Slurm."""
    code = InsideRun("code")
    """Folder of the code that jobs run, one subfolder for each submitted version."""
    stop = InsideRun("STOP")
    """File that stops the run: while it exists, every unit exits after its current step and is not requeued."""
    lock = InsideRun(".submit.lock")
    """Lock file that `submit` holds while it reads and changes the run."""
    imports = InsideRun("imports")
    """Folder with the signed lists of the bundles that were imported from other sites."""
    superseded = InsideRun("superseded")
    """Folder that receives the earlier contents of units that are made again, as with `--redo`."""

    def unit(self, key: str) -> Path:
        """Return the folder of a unit.

        Args:
            key: The unit, as `stage/unit`. The unit `all` of a stage uses the folder of the stage itself.
        """
        return self.root / key.removesuffix("/all")

    def output(self, key: str, name: str) -> Path:
        """Return the path of an output of a unit.

        Args:
            key: The unit, as `stage/unit`.
            name: Name of the output, relative to the unit's folder.
        """
        return self.unit(key) / name

    def spec(self, key: str) -> Path:
        """Return the path of the spec that the job of a unit reads."""
        return self.root / "specs" / f"{key}.json"

    def logs(self, key: str) -> Path:
        """Return the folder of a unit's logs, with one subfolder for each attempt."""
        return self.root / "logs" / key

    def site(self, name: str) -> Path:
        """Return the path of the file with a site's settings, as last used for this run."""
        return self.root / "sites" / f"{name}.json"

    def bundles(self, key: str) -> Path:
        """Return the file with the last bundle that this run has sent of a unit."""
        return self.root / "bundles" / f"{unit_name(key)}.json"


def run_in_home(home: RunDir, name: str) -> RunDir:
    """Return the run of a unit from its name in the home's journal, which in a sweep begins with the setting."""
    return RunDir(home.root.joinpath(*name.split("/")[:-2]))


def relative_to_run(path: Path, run: RunDir) -> str:
    """Return a path relative to the run, which stays valid if the run and the data move together."""
    return os.path.relpath(path.resolve(), run.root.resolve())


def set_aside(run: RunDir, key: str, kept: Container[str] = ()) -> None:
    """Move the contents of a unit's folder to a new folder in `superseded/`, except the unit's lease.

    The folder of a unit `all` contains the folders of its stage's other units. These stay in place.

    Args:
        run: The run.
        key: The unit, as `stage/unit`.
        kept: Names of further files and folders that stay in place.

    Raises:
        Unreadable: If a folder on the path to the unit is a link.
    """
    is_all, folder = key.endswith("/all"), run.unit(key)
    with suppress(FileNotFoundError), guarded_writes.open_folder(folder, run.root) as descriptor:
        with os.scandir(descriptor) as entries:
            movable = [entry for entry in entries if entry.name != ".lease" and entry.name not in kept]
        names = [entry.name for entry in movable if not (is_all and entry.is_dir() and entry.name not in CONTINUED)]
        if not names:
            return
        with guarded_writes.open_folder(_place_aside(run, key), run.root, make=True) as aside:
            for name in names:
                os.rename(name, name, src_dir_fd=descriptor, dst_dir_fd=aside)


def replace_folder(run: RunDir, key: str, folder: Path) -> None:
    """Put a folder in the place of a unit's folder, which moves to `superseded/` with all that it holds.

    This is one step where the file system can exchange two names. Elsewhere, as on NFS, the unit is missing between
    two renames.

    Args:
        run: The run.
        key: The unit, as `stage/unit`; not the unit `all` of a stage.
        folder: The new folder, in the run.

    Raises:
        Unreadable: If a folder on the path to the unit is a link.
    """
    target, aside = run.unit(key), _place_aside(run, key)
    guarded_writes.make_folder(aside.parent)
    guarded_writes.move(folder, aside)
    if not guarded_writes.exchange(aside, target):
        other = _place_aside(run, key)
        guarded_writes.make_folder(other.parent)
        guarded_writes.move(target, other)
        guarded_writes.move(aside, target)


def _place_aside(run: RunDir, key: str) -> Path:
    # Nanoseconds, because a unit can be set aside twice within one second.
    return RunDir(run.superseded / str(time.time_ns())).unit(key)
