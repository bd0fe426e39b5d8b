"""Experts of other sites count for other units only once their probe is complete."""

from dataclasses import replace

import pytest

from hpcddm.config.site import Site
from hpcddm.jobs.spec import read_spec
from hpcddm.jobs.unit_inputs import InputsNotReady, gather_inputs
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.launch.submission import decide_units, store_experiment
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from tests.helpers import finish, hpcddm, tiny
from tests.launch.queues import Queue

EXPERT, PROBE, DRAW, REPORT = "train/expert-01", "probe/expert-01", "draw/0000000-0000024", "report/all"
MEASURED = ("measure/own-0000000-0000024", "compare/own")
PARTITION = {"name": "agreed", "partition": "/nowhere/partition.safetensors", "content_hash": "0" * 64}
FOLLOWED = {"cluster__clustering": PARTITION | {"fitted_by": {"name": "kmeans", "fine_clusters": 8}}}
"""The partition of a contract."""
SITES = {"site": "here", "experts__sites": ["here", "north"], "experts__probe": {}}


class Run:
    """A run in which all is complete but the expert of the site north, and what reads it."""

    def __init__(self, folder, **changes):
        self.experiment = tiny(folder, **SITES, **changes)
        self.run, self.units = RunDir(folder / "run"), {unit.key: unit for unit in plan_units(self.experiment)}
        behind = (EXPERT, PROBE, "distill/student", DRAW, *MEASURED, REPORT)
        finish([unit for key, unit in self.units.items() if key not in behind], self.run)

    def finish(self, *keys):
        finish([self.units[key] for key in keys], self.run)

    def states(self):
        found = survey_units([*self.units.values()], self.run)
        return {key: str(found[key].state) for key in (PROBE, DRAW, REPORT)}

    def to_run(self):
        decision = decide_units(self.experiment, self.run, Queue(self.run, name="here"))
        return [unit.key for unit in decision.to_run], decision.blocked

    def gather(self, key=DRAW):
        items = make_items([self.units[key]], self.experiment, self.run)
        write_specs(items, Site(name="here", scheduler="local"))
        return gather_inputs(read_spec(items[0].spec)[0], self.run)


def test_each_site_probes_its_own_experts_and_the_site_of_the_router_those_of_others(tmp_path):
    sites = {"site": "a", "experts__sites": ["a", "b", "c"], "cluster__experts": 3, "experts__training__batch": 18}
    sites |= {"experts__probe": {}}
    for changes, expected in (({}, {"01": "a", "02": "a"}), (FOLLOWED, {"01": "b", "02": "c"})):
        units = plan_units(tiny(tmp_path, **sites, **changes))
        assert {unit.key[-2:]: unit.site for unit in units if unit.stage == "probe"} == expected
    assert not [unit for unit in plan_units(tiny(tmp_path, **sites | {"experts__probe": None})) if unit.gates]


def test_a_partner_hands_over_its_expert_and_not_the_probe_of_it(tmp_path):
    experiment, run = tiny(tmp_path, **SITES, **FOLLOWED), RunDir(tmp_path / "run")
    store_experiment(experiment, run)
    finish([unit for unit in plan_units(experiment) if unit.site in (None, "north")], run)
    Journal(run.journal).record_intent("local", "north", [EXPERT, PROBE])
    said = hpcddm("status", run.root).output
    assert f"{PROBE} " in said and f"hand over {EXPERT} to site here; next:" in said, said


def test_no_unit_reads_an_expert_of_another_site_without_its_probe(tmp_path):
    readers = {"router__samples": {"images": 8, "steps": 2}, "distill": {}}
    readers |= {"concepts": {"vocabulary": {"name": "labels"}, "tagger": {"name": "labels"}}}
    units = plan_units(tiny(tmp_path, **SITES, **readers))
    gated = {unit.stage for unit in units if EXPERT in unit.inputs and unit.gates == {EXPERT: PROBE}}
    assert gated == {"router", "distill", "draw", "report", "concept_scores"}
    assert {unit.stage for unit in units if EXPERT in unit.inputs} == {*gated, "probe"}


def test_a_probe_changes_no_fingerprint(tmp_path):
    with_probe, without = (plan_units(tiny(tmp_path, **SITES | {"experts__probe": probe})) for probe in ({}, None))
    others = [unit for unit in with_probe if unit.stage != "probe"]
    assert [unit.fingerprint_settings for unit in others] == [unit.fingerprint_settings for unit in without]
    assert not any(unit.counts_in_fingerprint(PROBE) for unit in others)


def test_final_steps_wait_for_the_probe(tmp_path):
    run = Run(tmp_path)
    behind = dict(zip((*MEASURED, REPORT), (DRAW, MEASURED[0], DRAW), strict=True))
    assert run.to_run() == ([], {PROBE: EXPERT, DRAW: EXPERT} | behind)
    run.finish(EXPERT)
    assert run.to_run() == ([PROBE, DRAW, *MEASURED, REPORT], {})
    with pytest.raises(InputsNotReady, match=rf"needs 2 of 2 experts, 1 are there \({PROBE} is not complete\)"):
        run.gather()
    run.finish(PROBE)
    assert PROBE in run.gather().manifests and run.to_run() == ([DRAW, *MEASURED, REPORT], {})


def test_a_probe_of_another_bundle_opens_nothing(tmp_path):
    run = Run(tmp_path)
    run.finish(EXPERT, PROBE)
    folder = run.run.unit(EXPERT)
    (folder / "other.bin").write_bytes(b"other weights")
    made = replace(manifest.read(folder), outputs=manifest.describe_outputs(folder, ["other.bin"]))
    manifest.publish(folder, made)
    assert run.states()[PROBE] == State.OUTDATED
    with pytest.raises(InputsNotReady, match=f"{PROBE} was made with another {EXPERT}; submit again"):
        run.gather()


def test_an_expert_whose_probe_fails_is_as_good_as_missing(tmp_path):
    partial = Run(tmp_path, evaluate__min_experts=1)
    partial.finish(DRAW, *MEASURED, REPORT)
    complete = dict.fromkeys((DRAW, REPORT), "complete")
    partial.finish(EXPERT)
    assert partial.states() == complete | {PROBE: "missing"}
    found = partial.gather()
    assert EXPERT not in found.manifests and set(found.missing) == {EXPERT, PROBE}
    partial.finish(PROBE)
    assert partial.states() == dict.fromkeys((DRAW, REPORT), "outdated") | {PROBE: "complete"}
