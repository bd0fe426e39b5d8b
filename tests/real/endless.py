"""Experts that train for days in a run whose data are ready: something to watch, disturb and end."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcddm.jobs.attempt_records import read_records
from hpcddm.launch.array_items import make_array_spec, make_items, submit_array, write_specs
from hpcddm.launch.base import create_launcher
from hpcddm.launch.load_site import load_site
from hpcddm.launch.submission import store_experiment, store_site
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import STAGES, plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_relative_paths
from tests.helpers import python, tiny, write_source

NORTH = {
    "name": "north",
    "scheduler": "slurm",
    "partition": "main",
    "network_interface": "lo",
    "signal_lead_seconds": 30,
    "resources": {"memory_gb": 1, "minutes": 30},
}
"""A site: the testbed's cluster with accounting."""
MAKE = """
import sys
from pathlib import Path
from hpcddm.jobs import entry
from hpcddm.jobs.stopping import StopFlag
sys.exit(max(entry._run(Path(spec), StopFlag()) for spec in sys.argv[1:]))
"""


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """What the condition gives as soon as that is something."""
    deadline = time.time() + seconds
    while not (found := condition()):
        assert time.time() < deadline, f"not within {seconds} s"
        time.sleep(0.3)
    return found


def slurm(conf: str, *command: str) -> str:
    """What one of Slurm's clients prints."""
    environment = os.environ | {"SLURM_CONF": conf}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def write_site(folder: Path, **keys: Any) -> Path:
    """The file of the site north, with more keys or others; 'tools' in its folder stand before Slurm's in its jobs."""
    tools, path = folder / "tools", folder / "north.yaml"
    tools.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(NORTH | {"setup": [f"export PATH={tools}:$PATH"]} | keys))
    return path


def prepare(folder: Path, site_name: str) -> RunDir:
    """A run with shards and clusters, and experts that will not end by themselves."""
    write_source(folder / "images")
    run, site = RunDir(folder / "run"), load_site(site_name)
    experiment = with_relative_paths(with_content_hashes(tiny(folder, experts__training__images=16_000_000), run), run)
    store_experiment(experiment, run)
    store_site(site, run)
    items = make_items(
        [unit for unit in plan_units(experiment) if STAGES[unit.stage].runs_at_every_site], experiment, run
    )
    write_specs(items, site)
    made = python(MAKE, *(item.spec for item in items), timeout=120)
    assert made.returncode == 0, made.stderr
    return run


def submit(run: RunDir, key: str, site_name: str, conf: str, after: tuple[str, ...] = ()) -> str:
    """Submit one unit as an array of one element and return the array's id."""
    site, experiment = load_site(site_name), stored_experiment(run)
    items = make_items([unit for unit in plan_units(experiment) if unit.key == key], experiment, run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", conf)
        name = f"{key.replace('/', '-')}.sbatch"
        return submit_array(items, run, create_launcher(site, run), make_array_spec(items, site, after), name)


def is_training(run: RunDir, key: str, number: int = 1) -> bool:
    """Whether this attempt, and no later one, has made a step."""
    tried = read_records(run.logs(key))
    return len(tried) == number and tried[-1].beat is not None and tried[-1].beat.done > 0
