"""What a submission tells a job: every field of a spec comes from the unit, or from the site's key of the same name."""

from hpcddm.config.site import Site
from hpcddm.jobs.spec import read_spec
from hpcddm.launch.array_items import JOB_KEYS, make_items, write_specs
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from tests.helpers import tiny

CHOSEN = {
    "keep_states": False,
    "max_excluded_nodes": 9,
    "network_interface": "ib7",
    "raise_on_retry": {"minutes": 1.5},
    "recheck_seconds": 77,
    "requeue": "none",
    "signal_lead_seconds": 66,
    "watchdog_minutes": 55,
}


def test_the_sites_keys_reach_the_job(tmp_path):
    assert CHOSEN.keys() == {*JOB_KEYS}, "choose a value that is not the default"
    defaults = Site(name="north", scheduler="slurm")
    assert [key for key, value in CHOSEN.items() if getattr(defaults, key) == value] == []
    run, experiment = RunDir(tmp_path / "run"), tiny(tmp_path)
    items = make_items(plan_units(experiment)[:1], experiment, run)
    write_specs(items, Site.model_validate({"name": "north", "scheduler": "slurm"} | CHOSEN))
    spec, _ = read_spec(items[0].spec)
    assert {key: getattr(spec, key) for key in JOB_KEYS} == CHOSEN
