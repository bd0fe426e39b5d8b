"""Layout of a run directory: the paths of its files and folders."""

import os
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config.vouching import EXPERIMENT_FILE
from hpcddm.files import inside
from hpcddm.runs.training_states import CONTINUED

Locate = Callable[[str, str], Path]
"""Function from a unit's key and the name of one of its outputs to the path: `RunDir.output`, or a unit's `input`."""


@dataclass(frozen=True)
class RunDir:
    """One run: `<stage>/<unit>/` holds each unit; the rest is bookkeeping."""

    root: Path

    def unit(self, key: str) -> Path:
        """Return the folder of the unit `stage/unit`; the unit `all` of a stage has the stage's folder itself."""
        return self.root / key.removesuffix("/all")

    def output(self, key: str, name: str) -> Path:
        """Return the path of an output of a unit."""
        return self.unit(key) / name

    def spec(self, key: str) -> Path:
        """Return the path of the spec that the job of a unit reads."""
        return self.root / "specs" / f"{key}.json"

    def logs(self, key: str) -> Path:
        """Return the folder of a unit's logs, with one subfolder for each attempt."""
        return self.root / "logs" / key

    @property
    def experiment(self) -> Path:
        """The experiment as it was last submitted, all defaults filled in."""
        return self.root / EXPERIMENT_FILE

    @property
    def defaults(self) -> Path:
        """Settings that the user left out, as they were filled in."""
        return self.root / "defaults.json"

    @property
    def journal(self) -> Path:
        """Journal of everything that was submitted."""
        return self.root / "journal.jsonl"

    @property
    def command(self) -> Path:
        """The command with which it was last submitted, as the user typed it."""
        return self.root / "command.json"

    @property
    def scripts(self) -> Path:
        """Folder of every batch script as it was submitted."""
        return self.root / "scripts"

    @property
    def template(self) -> Path:
        """Folder of the user's own parts of the batch script's template, as they were last submitted."""
        return self.root / "template"

    @property
    def jobs(self) -> Path:
        """Folder of the job scripts' small files: maps, stop files, outputs of Slurm."""
        return self.root / "jobs"

    @property
    def code(self) -> Path:
        """Folder of the code that jobs run, one subfolder for each submitted version."""
        return self.root / "code"

    @property
    def stop(self) -> Path:
        """File that stops the run: while it exists, every unit leaves after its current step and none comes back."""
        return self.root / "STOP"

    def site(self, name: str) -> Path:
        """Return the path of a site as it was last used here, with all its keys."""
        return self.root / "sites" / f"{name}.json"

    @property
    def lock(self) -> Path:
        """Lock that a submit holds while it reads and changes the run."""
        return self.root / ".submit.lock"

    @property
    def superseded(self) -> Path:
        """Folder to which earlier contents of units are moved, as by `--redo`."""
        return self.root / "superseded"


def relative_to_run(path: Path, run: RunDir) -> str:
    """Return a path relative to the run, so that it stays true when the run moves together with the data."""
    return os.path.relpath(path.resolve(), run.root.resolve())


def set_aside(run: RunDir, key: str, kept: Container[str] = ()) -> None:
    """Move what is in a unit's folder to `superseded/`, but for its lease and `kept`: nothing is overwritten.

    Folders in that of a unit `all` are other units of its stage, and stay, but for those of its training. Raises
    `Unreadable` where the way to its folder holds a link.
    """
    is_all, folder = key.endswith("/all"), run.unit(key)
    with suppress(FileNotFoundError), inside.opened(folder, run.root) as descriptor:
        with os.scandir(descriptor) as entries:
            movable = [entry for entry in entries if entry.name != ".lease" and entry.name not in kept]
        names = [entry.name for entry in movable if not (is_all and entry.is_dir() and entry.name not in CONTINUED)]
        if not names:
            return
        # Nanoseconds, because a unit can be set aside twice within one second.
        target = RunDir(run.superseded / str(time.time_ns())).unit(key)
        with inside.opened(target, run.root, make=True) as aside:
            for name in names:
                os.rename(name, name, src_dir_fd=descriptor, dst_dir_fd=aside)
