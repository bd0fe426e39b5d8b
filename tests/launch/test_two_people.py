"""Two real users, one with umask 022, submit one run in a shared folder on a real Slurm."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from tests.helpers import REPOSITORY, write_experiment, write_source
from tests.launch.slurm.test_on_slurm import ALL, slurm_says, units_in_queue

pytestmark = pytest.mark.slurm
MASKS = {"a": 0o022, "b": 0o002}


@dataclass(frozen=True)
class Shared:
    """A folder that two users may write, and another place where they find Python, its packages and the checkout.

    What they run may lie below folders that only root may enter, such as root's home.
    """

    place: Path
    names: dict[str, str]
    group: str
    conf: str

    @property
    def run(self) -> RunDir:
        return RunDir(self.place / "project/run")

    def mount(self) -> None:
        """Show the trees of this interpreter to everybody."""
        for number, tree in enumerate([sys.base_prefix, str(REPOSITORY), *self._packages()]):
            target = self.place / f"tree-{number}"
            target.mkdir()
            subprocess.run(["mount", "--bind", "-o", "ro", tree, target], check=True)

    def _packages(self) -> list[str]:
        return [path for path in sys.path if Path(path).name == "site-packages"]

    @property
    def python(self) -> Path:
        real = Path(sys._base_executable).resolve()
        return self.place / "tree-0" / real.relative_to(Path(sys.base_prefix).resolve())

    @property
    def python_path(self) -> str:
        return ":".join(str(self.place / f"tree-{number + 1}") for number in range(1 + len(self._packages())))

    def start(self, who: str, *arguments: object) -> subprocess.Popen[str]:
        """Start the command line as one of the two."""
        command = [str(self.python), "-P", "-m", "hpcddm.cli", *map(str, arguments)]
        home = str(self.place / who)
        environment = {"PATH": os.environ["PATH"], "HOME": home, "SLURM_CONF": self.conf, "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": self.python_path, "PYTHONDONTWRITEBYTECODE": "1"}
        user = {"user": self.names[who], "group": self.names[who], "extra_groups": [self.group], "umask": MASKS[who]}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment, cwd=self.place / who, **user, **pipes)

    def hpcddm(self, who: str, *arguments: object) -> tuple[int, str]:
        """The exit code and the words of a command of one of the two."""
        return self.ended(self.start(who, *arguments))

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        said = process.communicate(timeout=200)
        return process.returncode, "".join(said)

    def submit(self, who: str, *arguments: str) -> subprocess.Popen[str]:
        """Start to submit the tiny experiment; all jobs are held."""
        where = ("--site", self.place / "held.yaml", "--run-dir", self.run.root)
        return self.start(who, "submit", self.place / "tiny.yaml", *where, *arguments)

    def units_in_queue(self) -> list[str]:
        return units_in_queue(self.run, self.conf)

    def clean(self) -> None:
        """Take everything down again, the users last."""
        jobs = {one.job for one in Journal(self.run.journal).submissions() if one.job}
        if jobs:
            slurm_says(self.conf, "scancel", *jobs)
        for target in self.place.glob("tree-*"):
            subprocess.run(["umount", target], check=False)
            target.rmdir()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[dict[str, str], str]]:
    """Two users and the group that they share, for as long as the tests run."""
    names = {who: f"hpcddm-{who}{os.getpid()}" for who in MASKS}
    group = f"hpcddm-{os.getpid()}"
    subprocess.run(["groupadd", group], check=True)
    try:
        for name in names.values():
            subprocess.run(["useradd", "--no-create-home", "--user-group", "--groups", group, name], check=True)
        yield names, group
    finally:
        for name in names.values():
            subprocess.run(["userdel", name], check=False)
        subprocess.run(["groupdel", group], check=False)


@pytest.fixture
def shared(people, home) -> Iterator[Shared]:
    names, group = people
    place = Path(tempfile.mkdtemp(prefix="hpcddm-shared-"))
    place.chmod(0o755)
    found = Shared(place, names, group, home)
    try:
        found.mount()
        write_source(place / "images")
        write_experiment(place)
        site = {"name": "held", "scheduler": "slurm", "extra_sbatch": ["--hold"], "python": str(found.python)}
        site |= {"setup": [f"export PYTHONPATH={found.python_path}"], "resources": {"memory_gb": 1}}
        (place / "held.yaml").write_text(json.dumps(site))
        for who, name in names.items():
            (place / who).mkdir()
            shutil.chown(place / who, name, name)
        (place / "project").mkdir()
        shutil.chown(place / "project", group=group)
        (place / "project").chmod(0o2775)
        yield found
    finally:
        found.clean()


ROUNDS = int(os.environ.get("HPCDDM_ROUNDS", "2"))


@pytest.mark.parametrize("number", range(ROUNDS))
def test_two_people_submit_one_run_at_once_and_every_unit_is_submitted_once(shared, number):
    both = [shared.submit(who) for who in MASKS]
    said = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "ermission" not in str(said)
    assert shared.units_in_queue() == ALL
    assert sorted("nothing new to submit" in output for output, _ in said) == [False, True], said


def test_what_one_wrote_the_other_may_change_and_what_he_may_not_cancel_is_explained(shared):
    a, b = shared.names["a"], shared.names["b"]
    run = shared.run
    assert shared.ended(shared.submit("a"))[0] == 0
    journal = Journal(run.journal).submissions()
    assert {one.user for one in journal} == {a}
    shards = next(one.job for one in journal if one.units[0].startswith("shard/"))
    slurm_says(shared.conf, "scontrol", "release", shards.number)
    deadline = time.time() + 120
    while len(list(run.root.glob("shard/*/manifest.json"))) < 3:
        assert time.time() < deadline, slurm_says(shared.conf, "squeue")
        time.sleep(0.3)
    while slurm_says(shared.conf, "squeue", "-h", f"--job={shards.number}", "--states=R,CG"):
        time.sleep(0.3)
    assert not [path for path in run.root.rglob("*") if not _is_shared(path, run)]

    for who, is_named in (("b", True), ("a", False)):
        code, said = shared.hpcddm(who, "status", run.root)
        assert code == 0 and (a in said) == is_named, said
    code, said = shared.ended(shared.submit("b", "--redo", "shard"))
    assert code == 1 and f"belongs to {a}" in said and "ask them, or an operator" in said, said
    assert not run.superseded.exists() and len(list(run.root.glob("shard/*/manifest.json"))) == 3
    code, said = shared.hpcddm("b", "cancel", run.root)
    assert code == 1 and f"belongs to {a}" in said, said
    rest = [key for key in ALL if not key.startswith("shard/")]
    assert shared.units_in_queue() == rest
    code, said = shared.hpcddm("a", "cancel", run.root)
    assert code == 0 and shared.units_in_queue() == [], said
    assert shared.ended(shared.submit("b"))[0] == 0
    assert {one.user for one in Journal(run.journal).submissions()} == {a, b}
    assert shared.units_in_queue() == rest


def _is_shared(path: Path, run: RunDir) -> bool:
    """Whether the group may change what lies at a path; files of a snapshot are for nobody to edit."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode) or (run.code in path.parents and path.is_file()):
        return True
    wanted = stat.S_IWGRP | (stat.S_ISGID if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted
