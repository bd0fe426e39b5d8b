"""The code that jobs run: kept once for each version, untouched by edits, told by commit and digest."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from hpcddm.errors import ConfigError, UserError
from hpcddm.launch import code_copy
from hpcddm.launch.code_copy import Checkout, CodeCopy
from hpcddm.runs import manifest, provenance
from hpcddm.runs.run_dir import RunDir
from tests.checkouts import break_imports, clone, commit, hpcddm
from tests.helpers import write_experiment, write_source

IMPORT = "from hpcddm.runs import provenance; import hpcddm.jobs.entry;"
IMPORT += " print(provenance.current_code(), provenance.__file__)"


def imports(folder):
    """Import the entry of jobs from a folder, as they do."""
    command = [sys.executable, "-P", "-c", IMPORT]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def run(tmp_path) -> RunDir:
    (tmp_path / "run").mkdir()
    return RunDir(tmp_path / "run")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout that this process takes for its own."""
    place = clone(tmp_path)
    for module in (provenance, code_copy):
        monkeypatch.setattr(module, "AROUND", place)
    monkeypatch.setattr(provenance, "find_data_file", lambda name: place / name)
    return place


def test_what_is_kept_runs_alone_says_what_it_is_and_is_not_changed_by_an_edit_in_place(checkout, run):
    code = CodeCopy(run).make()
    assert code.commit and code.modified is False
    kept = run.code / code.digest
    stored = json.loads((run.code / f"{code.digest}.json").read_text())
    assert stored["commit"] == code.commit and "hpcddm/cli.py" in stored["files"]
    assert (kept / "slurm/job.sbatch.j2").read_bytes() == (checkout / "slurm/job.sbatch.j2").read_bytes()
    assert (kept / "hpcddm/evaluation/report/page.html.j2").is_file()
    break_imports(checkout)
    assert imports(checkout).returncode == 1
    done = imports(kept)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*str(code).split(), f"{kept}/hpcddm/runs/provenance.py"]


def test_the_same_code_is_kept_once_and_other_code_shares_the_files_that_did_not_change(checkout, run):
    first = CodeCopy(run).make()
    before = {path: path.stat().st_mtime_ns for path in run.code.rglob("*")}
    assert CodeCopy(run).make() == first
    assert before == {path: path.stat().st_mtime_ns for path in run.code.rglob("*")}
    break_imports(checkout)
    again = CodeCopy(run)
    second = again.make()
    assert second.digest != first.digest and second.modified and second.commit == first.commit
    assert again.others() == [first]
    same, other = ("hpcddm/cli.py", "hpcddm/jobs/entry.py")
    assert os.path.samefile(run.code / first.digest / same, run.code / second.digest / same)
    assert not os.path.samefile(run.code / first.digest / other, run.code / second.digest / other)
    assert not os.path.samefile(run.code / first.digest / same, checkout / same)
    names = {name for code in (first, second) for name in (code.digest, f"{code.digest}.json")}
    assert {path.name for path in run.code.iterdir()} == names


def plant(path, canary):
    """Put code there that leaves a trace when it is imported."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"open({str(canary)!r}, 'w').close()\n")


@pytest.mark.parametrize("name", ["hpcddm/__init__.py", "sitecustomize.py", "hpcddm/__pycache__/x.cpython-311.pyc"])
def test_code_that_came_under_a_known_digest_is_refused(checkout, run, name, tmp_path):
    ours = CodeCopy(run)
    plant(ours.folder / name, tmp_path / "canary")
    with pytest.raises(UserError, match="are not the code that jobs are to run; remove this folder") as error:
        CodeCopy(run).make()
    assert str(ours.folder) in str(error.value) and not (tmp_path / "canary").exists()
    shutil.rmtree(ours.folder)
    code = ours.make()
    assert provenance.folder_digests(ours.folder).keys() == provenance.code_files().keys()
    plant(ours.folder / name, tmp_path / "canary")
    with pytest.raises(UserError, match="repeat the command"):
        ours.make()
    assert code.digest == ours.folder.name


def test_what_is_no_file_among_the_code_is_named(checkout, run, tmp_path):
    folder = run.code / CodeCopy(run).make().digest
    place = run.code.resolve() / folder.name / "slurm/more"
    for plant in (lambda: place.symlink_to(tmp_path), lambda: os.mkfifo(place)):
        plant()
        with pytest.raises(UserError, match=f"{place}: not a file; remove it"):
            CodeCopy(run).make()
        place.unlink()
    folder.rename(tmp_path / folder.name)
    folder.symlink_to(tmp_path / folder.name)
    with pytest.raises(UserError, match=f"{folder}: files there were changed"):
        CodeCopy(run).make()


def test_files_of_a_version_whose_hash_does_not_fit_are_not_linked(checkout, run, tmp_path):
    first = CodeCopy(run).make()
    listing = run.code / f"{first.digest}.json"
    shutil.copytree(run.code / first.digest, run.code / "00000000deadbeef")
    listing.write_text(json.dumps(json.loads(listing.read_text()) | {"digest": "00000000deadbeef", "made": 9e9}))
    listing.rename(run.code / "00000000deadbeef.json")
    shutil.rmtree(run.code / first.digest)
    plant(run.code / "00000000deadbeef/hpcddm/cli.py", tmp_path / "canary")
    assert CodeCopy(run).make() == first
    kept = run.code / first.digest / "hpcddm/cli.py"
    assert kept.read_bytes() == (checkout / "hpcddm/cli.py").read_bytes()
    assert not any(path.stat().st_nlink > 1 for path in (run.code / first.digest).rglob("*.py"))


def test_a_file_that_git_does_not_know_is_a_modification(checkout, run):
    (checkout / "hpcddm/diffusion/objectives/mine.py").write_text("")
    assert CodeCopy(run).make().modified is True
    commit(checkout)
    (checkout / "hpcddm/diffusion/objectives/mine.py").write_text("# more\n")
    commit(checkout)
    assert CodeCopy(run).make().modified is False


def test_outside_a_checkout_no_commit_is_claimed_and_live_is_refused(checkout, run):
    shutil.rmtree(checkout / ".git")
    code = CodeCopy(run).make()
    assert (code.commit, code.modified) == (None, None)
    with pytest.raises(ConfigError, match="--live"):
        Checkout()


@pytest.fixture
def submitting(tmp_path):
    """A checkout, a run, and the words that submit the tiny experiment's first stages to it on this machine."""
    write_source(tmp_path / "images")
    run = RunDir(tmp_path / "run")
    submit = ("submit", write_experiment(tmp_path, data__shards=1), "--site", "embedded", "--until", "encode")
    return clone(tmp_path), run, (*submit, "--run-dir", run.root)


def test_units_of_this_machine_run_the_snapshot_and_live_runs_the_checkout(submitting):
    checkout, run, submit = submitting
    break_imports(checkout, "hpcddm/stages/data/encode_job.py")
    done = hpcddm(checkout, *submit)
    assert done.returncode == 1 and "edited while jobs were in the queue" in done.stderr
    made = json.loads((run.unit("shard/train-000") / "manifest.json").read_text())["record"]
    (kept,) = run.code.glob("*.json")
    stored = json.loads(kept.read_text())
    assert made["code"] == stored["digest"] == kept.stem and made["commit"] == stored["commit"] and made["modified"]
    assert f"code {kept.stem} (commit {stored['commit'][:12]}, modified)" in done.stdout
    live = hpcddm(checkout, *submit, "--live")
    assert live.returncode == 1 and "live: a change there" in live.stdout
    assert [one.name for one in run.code.glob("*.json")] == [kept.name]


def test_an_attempt_with_other_code_than_the_one_before_says_so_in_log_manifest_and_status(submitting):
    checkout, run, submit = submitting
    key, stage = "shard/train-000", "hpcddm/stages/data/shard_job.py"
    mended = (checkout / stage).read_text()
    break_imports(checkout, stage)
    assert "edited while jobs were in the queue" in hpcddm(checkout, *submit).stderr
    (first,) = run.code.glob("*.json")
    (checkout / stage).write_text(mended)
    done = hpcddm(checkout, "run-unit", run.root, key)
    assert done.returncode == 0, done.stdout + done.stderr
    record = manifest.read(run.unit(key)).record
    (change,) = record["changes"]
    assert change == f"since attempt 1 code {first.stem} -> {record['code']}" and record["modified"] is False
    assert change in (run.logs(key) / "attempt-2/rank0.log").read_text()
    assert f"{key}: other code or packages {change}" in hpcddm(checkout, "status", run.root).stdout
    break_imports(checkout, "hpcddm/stages/data/encode_job.py")
    again = hpcddm(checkout, *submit)
    assert f"earlier jobs were submitted with other code and keep theirs; the last was {record['code']}" in again.stdout


def test_a_job_that_submits_hands_on_the_templates_of_its_snapshot(checkout, run, tmp_path, monkeypatch):
    code = CodeCopy(run).make()
    pulled = tmp_path / "pulled"
    (pulled / "slurm").mkdir(parents=True)
    for name in provenance.TEMPLATES:
        (pulled / name).write_text("# of a later pull\n")
    for module in (provenance, code_copy):
        monkeypatch.setattr(module, "AROUND", run.code.resolve() / code.digest)
    monkeypatch.setattr(provenance, "find_data_file", lambda name: pulled / name)
    assert CodeCopy(run).make() == code
