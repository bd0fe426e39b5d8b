"""Seals of training states: what this user's jobs saved under a contract holds, and nothing else does."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpcddm.config import trusted_submissions
from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.checks.preflight import check_state, newest_state
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.launch.slurm import sbatch
from hpcddm.launch.slurm.client import call_slurm
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import state_seals
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.state_seals import state_seal
from hpcddm.runs.training_states import FORMAT, SEAL, SEAL_VARIABLE, StateSeal, folder_name
from tests.exchange.agreed_runs import KEY, Agreed, agreed_runs, expected
from tests.helpers import hpcddm

STATE = {"format": FORMAT, "images": 16, "trajectory": "f", "files": [], "loop": {"curve": [[8, 0.1]], "skipped": 0}}


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Agreed:
    """Two runs of one contract."""
    return agreed_runs(tmp_path_factory.mktemp("agreed"))


@pytest.fixture
def runs(template, tmp_path, monkeypatch) -> Agreed:
    """An own copy of both, of a user without a secret."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = shutil.copytree(template.home.root.parent, tmp_path / "agreed")
    return replace(template, home=RunDir(folder / "home"), partner=RunDir(folder / "partner"))


def secret_file(home: Path) -> Path:
    return home / "hpcddm/submitted" / trusted_submissions.SECRET


def seal(run: RunDir, unit: str = KEY) -> StateSeal:
    own = state_seal(run, unit)
    assert own is not None
    return own


def unfinished(runs: Agreed, *images: int) -> list[Path]:
    """Let the partner's expert be in training, with states that this user's jobs have saved."""
    (runs.partner.unit(KEY) / "manifest.json").unlink()
    trajectory = expected(runs.experiment, runs.partner, KEY).trajectory
    folders = [runs.partner.unit(KEY) / "state" / folder_name(number) for number in images]
    for folder, number in zip(folders, images, strict=True):
        state = STATE | {"images": number, "trajectory": trajectory}
        atomic.write_json(folder / "state.json", seal(runs.partner).sealed(state))
    return folders


def changed(folder: Path, **values: object) -> None:
    """Change the state in a folder; a seal that is None is removed."""
    state = json.loads((folder / "state.json").read_text()) | values
    atomic.write_json(folder / "state.json", {name: value for name, value in state.items() if value is not None})


def done(runs: Agreed) -> int:
    """The images of the expert in `status --json`."""
    units = json.loads(hpcddm("status", runs.partner.root, "--json").output)["units"]
    return next(unit["done"] for unit in units if unit["unit"] == KEY)


def check(runs: Agreed) -> Path | None:
    """Check as a submission does, and return the state that is continued."""
    (unit,) = (unit for unit in plan_units(runs.experiment) if unit.key == KEY)
    check_state(unit, runs.partner)
    newest = newest_state(unit, runs.partner)
    return newest and newest[0]


MAKE = "from hpcddm.config import trusted_submissions as own; print('ready', flush=True); input()\n"
MAKE += "print(own.secret() is None or 'there', own.make_secret().hex())"


def test_the_secret_is_made_once_by_whoever_comes_first_and_for_its_user_alone(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", MAKE], env=environment, **pipes) for _ in range(4)]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 4
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    (text,) = {process.communicate()[0].split()[1] for process in started}
    file = secret_file(tmp_path)
    assert file.read_bytes().hex() == text and len(text) == 64 and file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name] and file.stat().st_nlink == 1


SPOILT = {
    "readable": lambda file: file.chmod(0o640),
    "short": lambda file: file.write_bytes(bytes(31)),
    "long": lambda file: file.write_bytes(bytes(33)),
    "link": lambda file: file.symlink_to(file.rename(file.parents[2] / "elsewhere")),
    "pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "folder others write": lambda file: file.parent.chmod(0o770),
    "in a run": lambda file: (file.parents[2] / "experiment.json").touch(),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_secret_that_others_may_know_or_have_made_is_none(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    trusted_submissions.make_secret()
    SPOILT[kind](secret_file(tmp_path))
    assert trusted_submissions.secret() is None
    with pytest.raises(UserError, match="no secret of yours can be kept in .*: set XDG_STATE_HOME"):
        trusted_submissions.make_secret()


def test_a_run_without_a_contract_has_no_seals_and_makes_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_seal(RunDir(tmp_path), KEY) is None and state_seals.job_variables(RunDir(tmp_path)) == {}
    assert not (tmp_path / "state").exists()


CHANGES = [
    *({"images": 32}, {"trajectory": "g"}, {"more": 1}, {"loop": {"curve": [[8, 0.10000000000000002]], "skipped": 0}}),
    {"files": [{"name": "rank0.safetensors", "rank": 0, "size": 1, "sha256": "0" * 64}]},
    {"loop": {"curve": [[8, 0.1]], "skipped": 0, "snapshots": {"16": {"images": 16, "files": {}}}}},
    *({SEAL: None}, {SEAL: 7}, {SEAL: "\u00e9" * 64}, {SEAL: "\udc80"}),
]
"""Of a state; the last seals are none, a number, and of others."""


def test_a_seal_holds_for_every_byte_of_a_state_and_no_other(runs):
    state_seals.job_variables(runs.partner)
    own = seal(runs.partner)
    stored = json.loads(json.dumps(own.sealed(STATE)))
    assert own.holds(stored)
    without = [stored | change for change in CHANGES] + [{key: stored[key] for key in stored if key != SEAL}]
    assert [state for state in without if own.holds(state)] == []


def test_a_seal_holds_for_its_unit_contract_and_user_wherever_the_run_is(runs, tmp_path, monkeypatch):
    state_seals.job_variables(runs.partner)
    state = seal(runs.partner).sealed(STATE)
    assert not seal(runs.partner, "train/expert-00").holds(state)
    moved = RunDir(runs.partner.root.rename(tmp_path / "elsewhere"))
    assert seal(moved).holds(state) and seal(runs.home).holds(state)
    later = runs.change_revision(2)
    assert seal(later.home).holds(state), "a revision is of the same contract"
    other = replace(runs, partner=runs.home).sign_contract(replace(runs.contract, id="1" * 32, revision=3))
    assert not seal(other.home).holds(state)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    assert not seal(moved).holds(state), "who has no secret trusts no seal"
    state_seals.job_variables(moved)
    assert not seal(moved).holds(state)


def test_a_job_that_does_not_see_the_secret_has_the_key_of_its_contract_alone(runs, tmp_path, monkeypatch):
    variables = state_seals.job_variables(runs.partner)
    state = seal(runs.partner).sealed(STATE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "unseen"))
    monkeypatch.setenv(SEAL_VARIABLE, variables[SEAL_VARIABLE])
    assert seal(runs.partner).holds(state)
    assert state_seals.job_variables(runs.partner) == variables, "what a job submits has its key"
    for text in (f"{'1' * 32}:{variables[SEAL_VARIABLE][33:]}", f"{runs.contract.id}:no key", "nothing"):
        monkeypatch.setenv(SEAL_VARIABLE, text)
        assert seal(runs.partner).key is None
        with pytest.raises(UserError, match="has no key for its training states"):
            seal(runs.partner).require_key()
    assert not (tmp_path / "unseen").exists(), "a job makes no secret"


def test_a_key_is_handed_to_slurm_and_is_in_no_file_of_the_run(runs, monkeypatch):
    assert call_slurm("env", variables={SEAL_VARIABLE: "x:y"}).stdout.splitlines().count(f"{SEAL_VARIABLE}=x:y") == 1
    seen = []

    def call(*command, variables):
        seen.append(variables)
        return subprocess.CompletedProcess(command, 0, "77\n", "")

    monkeypatch.setattr(sbatch, "call_slurm", call)
    launcher = slurm_launcher.create(Site(name="uni-b", scheduler="slurm", has_sacct=False), runs.partner)
    array = ArraySpec("tiny-train", [KEY], [runs.partner.spec(KEY)], launcher.site.resources_for("train"), [], 1)
    launcher.submit(array, "aaaabbbbcccc", "0001-train.sbatch")
    assert seen == [state_seals.job_variables(runs.partner)]
    key = seen[0][SEAL_VARIABLE].partition(":")[2]
    assert bytes.fromhex(key) == seal(runs.partner).key and key not in repr(seal(runs.partner))
    known = (key.encode(), bytes.fromhex(key), trusted_submissions.secret())
    files = [path for path in runs.partner.root.rglob("*") if path.is_file()]
    assert runs.partner.scripts / "0001-train.sbatch" in files
    assert not [path for path in files if any(text in path.read_bytes() for text in known)]


def test_own_states_are_continued_and_those_of_others_stop_a_submission_with_one_line(runs):
    state_seals.job_variables(runs.partner)
    first, second = unfinished(runs, 16, 32)
    assert check(runs) == second
    changed(second, attempt=9)
    with pytest.raises(UserError) as caught:
        check(runs)
    line = str(caught.value)
    state = "the training state images-000000000032"
    assert line.startswith(f"{KEY}: your jobs have not saved {state} under this contract")
    assert f"or move {second} away" in line and "(another account, contract or expert)" in line
    # What is not continued is not counted, and nothing is removed.
    assert done(runs) == 16 and second.is_dir()
    changed(first, seal=None)
    changed(second, seal=None)
    with pytest.raises(UserError, match=rf"before the contract, or in another run.* or move {first.parent} away"):
        check(runs)
    shutil.move(first.parent, runs.partner.root / "moved")
    assert check(runs) is None


def test_a_state_from_before_the_contract_goes_on_without_one_and_is_refused_under_it(runs):
    state_seals.job_variables(runs.partner)
    (folder,) = unfinished(runs, 16)
    changed(folder, seal=None)
    aside = (runs.partner.root / "contract").rename(runs.partner.root / "aside")
    assert check(runs) == folder
    aside.rename(runs.partner.root / "contract")
    with pytest.raises(UserError, match="before the contract"):
        check(runs)


def test_status_and_clean_go_on_beside_states_of_others_and_remove_none(runs):
    state_seals.job_variables(runs.partner)
    (folder,) = unfinished(runs, 32)
    assert done(runs) == 32
    changed(folder, attempt=9)
    assert done(runs) == 0
    assert hpcddm("clean", runs.partner.root, "--yes").exit_code == 0 and folder.is_dir()


def test_secrets_are_not_looked_for_in_the_working_directory(tmp_path, monkeypatch):
    """A relative XDG_STATE_HOME is ignored, as for the notes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = trusted_submissions.make_secret()
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert len(made) == 32 and trusted_submissions.secret() is None
