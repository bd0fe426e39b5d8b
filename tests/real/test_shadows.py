"""Files in the run's folder, or where a command is given, that are called like modules: nothing imports them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddm.jobs.attempt_records import read_records
from hpcddm.launch.submission import store_experiment
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.helpers import REPOSITORY, tiny, write_source
from tests.real.endless import submit, wait_for

NAMES = ("json", "cluster_report", "random", "hpcddm", "torch")
SHARD = "shard/train-000"


@pytest.fixture
def run(tmp_path) -> RunDir:
    """A run whose folder holds such files; importing one leaves a trace and fails."""
    write_source(tmp_path / "images")
    run = RunDir(tmp_path / "run")
    store_experiment(with_relative_paths(tiny(tmp_path), run), run)
    for name in NAMES:
        trace = run.root / "imported"
        code = f"open({str(trace)!r}, 'a').write('{name} ')\nraise ImportError('this is a script of mine')\n"
        (run.root / f"{name}.py").write_text(code)
    return run


def hpcddm(run: RunDir, *arguments: object) -> subprocess.CompletedProcess:
    """The command, given in the run's folder; the console script imports nothing from there, either."""
    command = [sys.executable, "-P", "-m", "hpcddm.cli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=run.root, env=environment, capture_output=True, text=True, timeout=120)


def test_a_unit_of_this_machine_imports_nothing_from_where_the_command_is_given(run):
    done = hpcddm(run, "run-unit", run.root, SHARD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (run.root / "imported").exists()


@pytest.mark.slurm
@pytest.mark.parametrize("setup", [[], ["export PYTHONPATH=$PYTHONPATH:"]], ids=["as it is", "with an empty entry"])
def test_ranks_gate_and_verdict_import_nothing_from_the_run(run, home, setup):
    site = Path(run.root.parent / "site.yaml")
    site.write_text(f"{{name: north, scheduler: slurm, setup: {setup}, resources: {{memory_gb: 1}}}}")
    submit(run, SHARD, str(site), home)
    wait_for(lambda: [one for one in read_records(run.logs(SHARD)) if one.verdict], 60)
    assert manifest.read(run.unit(SHARD)) is not None
    assert not (run.root / "imported").exists()
