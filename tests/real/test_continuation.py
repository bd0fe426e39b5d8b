"""A run that is larger than the user's limit on jobs: a last small job goes on submitting until all is complete."""

import pytest

from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONTINUATION
from tests.helpers import tiny, write_source
from tests.whole_runs import hpcddm

pytestmark = [pytest.mark.slurm, pytest.mark.long]
LIMIT = 6
SITE = f"""
name: narrow
scheduler: slurm
partition: main
max_submitted: {LIMIT}
resources: {{memory_gb: 1, minutes: 10}}
"""


def test_a_run_larger_than_the_limit_completes_by_itself(tmp_path, home):
    write_source(tmp_path / "images")
    tiny(tmp_path)
    (tmp_path / "narrow.yaml").write_text(SITE)
    run = RunDir(tmp_path / "run")
    call = ("submit", tmp_path / "tiny.yaml", "--site", tmp_path / "narrow.yaml", "--run-dir", run.root)
    done = hpcddm(*call, SLURM_CONF=home)
    assert done.returncode == 0 and "submits them when there is room" in done.stdout, done.stdout + done.stderr
    assert sum(len(one.units) for one in Journal(run.journal).submissions()) == LIMIT
    done = hpcddm("wait", run.root, "--timeout", "20", timeout=1300, SLURM_CONF=home)
    assert done.returncode == 0, done.stdout + done.stderr
    continued = [one for one in Journal(run.journal).submissions() if one.units == [CONTINUATION]]
    made = [unit for one in Journal(run.journal).submissions() for unit in one.units if unit != CONTINUATION]
    assert continued and len(made) == len(set(made))
