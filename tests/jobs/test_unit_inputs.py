"""What a job finds of what its unit reads, when it starts."""

from dataclasses import replace

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.jobs.spec import read_spec
from hpcddm.jobs.unit_inputs import gather_inputs
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CLUSTER_REPORT
from tests.helpers import finish, tiny

KEYS = FIRST, SECOND, THIRD, FOURTH = [f"train/expert-{index:02d}" for index in range(4)]
DRAW = ["draw/0000000-0000008", "draw/0000008-0000024"]


class Job:
    """A run of four experts in which everything is complete, and the specs that its jobs are told."""

    def __init__(self, folder, minimum=3):
        self.run, self.folder = RunDir(folder / "run"), folder
        self.experiment = self.changed(evaluate__min_experts=minimum)
        self.units = {unit.key: unit for unit in plan_units(self.experiment)}
        self.make(*self.units)

    def changed(self, **changes):
        return tiny(self.folder, cluster__experts=4, evaluate__units=2, **changes)

    def make(self, *keys):
        finish([self.units[key] for key in keys], self.run)

    def lose(self, *keys):
        for key in keys:
            (self.run.unit(key) / manifest.FILE_NAME).unlink()

    def gather(self, key=DRAW[0]):
        items = make_items([self.units[key]], self.experiment, self.run)
        write_specs(items, Site(name="here", scheduler="local"))
        return gather_inputs(read_spec(items[0].spec)[0], self.run)

    def refusal(self, key=DRAW[0]):
        with pytest.raises(UserError) as caught:
            self.gather(key)
        assert str(caught.value).startswith(f"{key} cannot start: ") and "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def job(tmp_path):
    """Three of four experts are enough."""
    return Job(tmp_path)


def test_what_is_there_is_found_and_a_missing_expert_is_left_out_and_named(job):
    found = job.gather()
    assert found.manifests.keys() == set(job.units[DRAW[0]].inputs) and found.missing == []
    job.lose(SECOND)
    found = job.gather()
    assert found.missing == [SECOND] and set(KEYS) - found.manifests.keys() == {SECOND}
    job.lose(FOURTH)
    reason = f"it needs 3 of 4 experts, 2 are there ({SECOND} is not complete; {FOURTH} is not complete)"
    assert f"{reason}; next: hpcddm status {job.run.root}" in job.refusal()


def test_by_default_all_experts_are_needed_and_the_router_always(tmp_path):
    job = Job(tmp_path, minimum=None)
    job.lose(FOURTH)
    assert f"it needs 4 of 4 experts, 3 are there ({FOURTH} is not complete)" in job.refusal()
    job.lose("router/all")
    assert "router/all is not complete; next: hpcddm status" in job.refusal()


def test_an_expert_that_does_not_fit_or_is_torn_is_as_good_as_missing(job):
    (stale,) = [unit for unit in plan_units(job.changed(experts__training__images=128)) if unit.key == FIRST]
    finish([stale], job.run)
    assert job.gather().missing == [FIRST]
    before = manifest.read(job.run.unit(SECOND))
    manifest.publish(job.run.unit(SECOND), replace(before, inputs=before.inputs | {"expert_lists/all": "other lists"}))
    refusal = job.refusal()
    assert f"{FIRST} was made with other settings; {SECOND} was made with another expert_lists/all" in refusal
    job.make(FIRST, SECOND)
    (job.run.unit(THIRD) / "output.bin").write_bytes(b"")
    assert job.gather().missing == [THIRD]


def test_evaluations_with_different_experts_are_not_merged(job):
    job.lose(FOURTH, DRAW[0])
    job.make(DRAW[0], FOURTH)
    assert f"{DRAW[0]} was made without {FOURTH}; submit again" in job.refusal("report/all")
    job.make(DRAW[0])
    assert job.gather("report/all").missing == []
    job.lose(FOURTH)
    refusal = job.refusal("report/all")
    assert f"was made with {FOURTH}, which is not there; bring it back, or submit with --redo draw" in refusal


def test_an_evaluation_of_what_has_changed_since_is_not_reported(job):
    before = manifest.read(job.run.unit("evaluators/classifier"))
    other = [replace(output, sha256="0" * 64) for output in before.outputs]
    manifest.publish(job.run.unit("evaluators/classifier"), replace(before, outputs=other))
    assert "compare/own was made with another evaluators/classifier; submit again" in job.refusal("report/all")
    assert "own-0000000-0000008 was made with another evaluators/classifier" in job.refusal("compare/own")


def test_the_report_does_without_the_page_about_the_clusters_and_it_stands_for_no_expert(job):
    assert CLUSTER_REPORT in job.gather("report/all").manifests
    job.lose(CLUSTER_REPORT)
    assert job.gather("report/all").missing == [CLUSTER_REPORT]
    job.make(CLUSTER_REPORT)
    job.lose(THIRD, FOURTH)
    assert "it needs 3 of 4 experts, 2 are there" in job.refusal("report/all")
