"""Where everything lies in a run directory."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunDir:
    """One run: `<stage>/<unit>/` holds each unit; the rest is bookkeeping."""

    root: Path

    def unit(self, key: str) -> Path:
        """The folder of a unit, named by `stage/unit`; the one unit `all` of a stage has the stage's folder itself."""
        return self.root / key.removesuffix("/all")

    def spec(self, key: str) -> Path:
        """What the job of a unit is told."""
        return self.root / "specs" / f"{key}.json"

    def logs(self, key: str) -> Path:
        """The logs of a unit, one subfolder for each attempt."""
        return self.root / "logs" / key

    @property
    def experiment(self) -> Path:
        """The experiment as it was last submitted, all defaults filled in."""
        return self.root / "experiment.json"

    @property
    def journal(self) -> Path:
        """Everything that was submitted."""
        return self.root / "journal.jsonl"

    @property
    def scripts(self) -> Path:
        """Every batch script as it was submitted."""
        return self.root / "scripts"

    @property
    def template(self) -> Path:
        """Copies of the user's own parts of the batch script's template, as they were last submitted."""
        return self.root / "template"

    @property
    def jobs(self) -> Path:
        """The scheduler's own small files."""
        return self.root / "jobs"

    @property
    def code(self) -> Path:
        """The code that jobs run, one folder for each version of it that something was submitted with."""
        return self.root / "code"

    @property
    def stop(self) -> Path:
        """Where this file exists, every unit leaves after its current step and none comes back."""
        return self.root / "STOP"

    def site(self, name: str) -> Path:
        """A site as it was last used here, with all its keys."""
        return self.root / "sites" / f"{name}.json"

    @property
    def lock(self) -> Path:
        """Held while a submit looks at the run and changes it."""
        return self.root / ".submit.lock"

    @property
    def superseded(self) -> Path:
        """What `--redo` moved out of the way."""
        return self.root / "superseded"


def relative_to_run(path: Path, run: RunDir) -> str:
    """A path as a run stores it, so that moving the run together with the data keeps it true."""
    return os.path.relpath(path.resolve(), run.root.resolve())


def set_aside(run: RunDir, key: str) -> None:
    """Move what is in a unit's folder to `superseded/`, but for its lease: nothing is overwritten."""
    found = [path for path in run.unit(key).glob("*") if path.name != ".lease"]
    if not found:
        return
    # Nanoseconds, because a unit can be set aside twice within one second.
    target = RunDir(run.superseded / str(time.time_ns())).unit(key)
    target.mkdir(parents=True)
    for path in found:
        shutil.move(path, target / path.name)
