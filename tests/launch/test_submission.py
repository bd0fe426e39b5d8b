import shutil
import time

import pytest

from hpcddm.errors import ConfigError, UserError
from hpcddm.jobs.spec import read_spec
from hpcddm.launch.base import Job, clean_environment
from hpcddm.launch.submission import (
    active_units,
    check_experiment,
    decide_units,
    reconcile_journal,
)
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.helpers import DATA_STAGES, FINAL, FINAL_STAGES, JOINED, finish, tiny, write_source
from tests.launch.queues import Queue, submit_all

EXPERTS = [expert_key(0), expert_key(1)]


def keys(units):
    return [unit.key for unit in units]


class Case:
    """The tiny experiment, some keys of which a test changes, and its run, empty at first."""

    def __init__(self, folder):
        self.folder, self.run = folder, RunDir(folder / "run")
        self.run.root.mkdir()

    def units(self, **changes):
        return plan_units(tiny(self.folder, **changes))

    def finish(self, chosen=lambda unit: True, **changes):
        finish([unit for unit in self.units(**changes) if chosen(unit)], self.run)

    def lose(self, key):
        (self.run.unit(key) / "manifest.json").unlink()

    def decide(self, queue=None, changes=None, **options):
        return decide_units(tiny(self.folder, **changes or {}), self.run, queue or Queue(self.run), **options)

    def to_run(self, *arguments, **options):
        return keys(self.decide(*arguments, **options).to_run)

    def submit(self, decision=None, queue=None, **changes):
        queue = queue or Queue(self.run)
        return submit_all(tiny(self.folder, **changes), self.run, queue, decision or self.decide(queue, changes))

    def check(self, **changes):
        """Look at what the units to run need."""
        check_experiment(tiny(self.folder, **changes), Queue(self.run).site, self.decide(None, changes))


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


@pytest.fixture
def submitted(case, monkeypatch):
    """The same, of which everything was submitted."""
    monkeypatch.setattr("hpcddm.launch.submission.POLL_SECONDS", 0.01)
    case.submit()
    return case


def test_what_is_missing_and_what_reads_it_runs_and_nothing_else(case):
    everything, decision = keys(case.units()), case.decide()
    assert keys(decision.to_run) == everything
    assert not (decision.complete or decision.active or decision.elsewhere or decision.blocked)
    case.finish()
    decision = case.decide()
    assert decision.to_run == [] and decision.complete == everything
    case.lose(EXPERTS[1])
    assert case.to_run() == [EXPERTS[1], *FINAL]


def test_what_waits_or_runs_is_not_submitted_again(submitted):
    queue = Queue(submitted.run, alive=[*EXPERTS, "router/all"])
    decision = submitted.decide(queue)
    assert set(decision.active) == {*EXPERTS, "router/all"} and not decision.active.keys() & set(keys(decision.to_run))
    again = submitted.submit(decision, queue)
    (draw,) = [one for one in again if one.keys[0].startswith("draw/")]
    assert {"108", "109"} <= set(draw.after)


def test_what_waits_for_a_unit_that_must_run_again_is_recalled(submitted):
    submitted.finish(lambda unit: unit.stage not in FINAL_STAGES)
    submitted.lose(EXPERTS[1])
    decision = submitted.decide(Queue(submitted.run, alive=FINAL, state="pending"))
    assert keys(decision.to_run) == [EXPERTS[1], *FINAL]
    assert len(decision.recalled) == len(FINAL) and not decision.active


def test_a_foreign_expert_that_does_not_fit_is_named_and_asks_for_no_redo(case):
    sites = SITES | {"site": "north"}
    case.finish(**sites)
    assert not case.decide(changes=sites).elsewhere
    (case.run.unit(EXPERTS[1]) / "output.bin").write_bytes(b"torn")
    torn = case.decide(changes=sites)
    assert list(torn.elsewhere) == [EXPERTS[1]] and "bytes instead of" in torn.elsewhere[EXPERTS[1]]


def test_the_queue_is_asked_before_the_manifests_are_read_and_one_that_does_not_answer_is_not_empty(submitted):
    with pytest.raises(UserError, match="the scheduler does not answer"):
        submitted.decide(Queue(submitted.run, alive=None))
    # What becomes complete meanwhile is not submitted again.
    queue = Queue(submitted.run)
    queue.states = lambda submissions: submitted.finish() or {}
    assert submitted.to_run(queue) == []


class Leaving(Queue):
    """A queue whose jobs are in these states, one after the other at each query, and have left it then."""

    def __init__(self, run, states):
        super().__init__(run)
        self.answers = [*states]

    def states(self, submissions):
        answer = self.answers.pop(0) if self.answers else {}
        if answer is None:
            return None
        elements = {key: one.job.element(number) for one in submissions for number, key in enumerate(one.units)}
        return {key: Job(elements[key], state) for key, state in answer.items()}


@pytest.mark.parametrize("state", ["running", "pending", "held", "stopping"])
def test_a_job_that_is_being_cancelled_is_waited_for_and_no_input_of_new_jobs(submitted, capsys, state):
    journal = Journal(submitted.run.journal)
    for submission in journal.submissions():
        journal.record_cancelled(submission.uuid)
    queue = Leaving(submitted.run, [{EXPERTS[0]: state, EXPERTS[1]: state}, {EXPERTS[1]: "stopping"}])
    decision = submitted.decide(queue)
    assert keys(decision.to_run) == keys(submitted.units()) and not decision.active and not queue.answers
    assert capsys.readouterr().out.count("waiting for 2 jobs that are ending, at most 120 s") == 1
    assert len(queue.gone) == (2 if state in ("pending", "held") else 0)


def test_a_job_that_is_ending_is_waited_for_unless_it_comes_back_or_its_unit_is_complete(submitted):
    queue = Leaving(submitted.run, [dict.fromkeys(EXPERTS, "stopping"), {EXPERTS[1]: "pending"}])
    assert list(active_units(submitted.run, queue)) == [EXPERTS[1]]
    submitted.finish()
    queue = Leaving(submitted.run, [{EXPERTS[0]: "stopping"}] * 2)
    assert submitted.to_run(queue) == [] and len(queue.answers) == 1


def test_a_job_that_does_not_end_is_named(submitted, monkeypatch):
    monkeypatch.setattr("hpcddm.launch.submission.LEAVING_SECONDS", 0.05)
    queue = Leaving(submitted.run, [{EXPERTS[0]: "stopping"}] * 1000)
    queue.site = queue.site.model_copy(update={"signal_lead_seconds": 0.05})
    with pytest.raises(UserError, match=f"of {EXPERTS[0]} is still ending after .* repeat the command"):
        submitted.decide(queue)
    with pytest.raises(UserError, match="the scheduler does not answer"):
        submitted.decide(Leaving(submitted.run, [{EXPERTS[0]: "stopping"}, None]))


SITES = {"experts__sites": ["north", "south"]}
ENOUGH = {"evaluate__min_experts": 1}


def test_every_site_runs_its_own_experts_and_those_that_arrived_unblock_the_evaluation(case):
    north = case.decide(changes=SITES)
    assert (EXPERTS[0] in keys(north.to_run), list(north.elsewhere)) == (True, [EXPERTS[1]])
    assert list(north.blocked) == FINAL and north.blocked[FINAL[0]] == EXPERTS[1]
    south = case.decide(Queue(case.run, name="south"), SITES)
    assert (EXPERTS[1] in keys(south.to_run), list(south.elsewhere)) == (True, [EXPERTS[0]])
    case.finish(**SITES)
    case.lose(EXPERTS[0])
    decision = case.decide(changes=SITES)
    assert keys(decision.to_run) == [EXPERTS[0], *FINAL] and not decision.elsewhere and not decision.blocked


def test_experts_elsewhere_do_not_block_the_final_step_when_enough_are_to_run_and_renew_it_when_they_arrive(case):
    changes = SITES | ENOUGH
    north = case.decide(changes=changes)
    assert list(north.elsewhere) == [EXPERTS[1]] and not north.blocked and set(FINAL) <= set(keys(north.to_run))
    # Nothing of its own to make, and nothing there: one expert is still too few.
    nowhere = case.decide(Queue(case.run, name="west"), changes)
    assert set(FINAL) <= nowhere.blocked.keys() and nowhere.blocked[FINAL[0]] == EXPERTS[0]
    case.finish(lambda unit: unit.key != EXPERTS[1], **changes)
    assert case.to_run(changes=changes) == []
    case.finish(lambda unit: unit.key == EXPERTS[1], **changes)
    assert case.to_run(changes=changes) == FINAL


def test_an_expert_that_failed_runs_again_and_the_final_step_waits_for_it_but_does_not_need_it(case):
    case.finish(lambda unit: unit.key != EXPERTS[1], **ENOUGH)
    assert case.to_run(changes=ENOUGH) == [EXPERTS[1], *FINAL]
    expert, draw, measure, compare, report = case.submit(**ENOUGH)
    assert (draw.after, measure.after, compare.after) == ([expert.job], [draw.job], [measure.job])
    assert set(report.after) == {expert.job, draw.job, compare.job}
    spec, _ = read_spec(case.run.spec(FINAL[0]))
    assert (list(spec.optional), spec.min_optional) == (EXPERTS, 1) and not set(EXPERTS) & set(spec.requires)


def test_a_stage_that_is_redone_takes_along_what_reads_it(case):
    case.finish()
    changed = {"cluster__clustering__iterations": 6}
    with pytest.raises(ConfigError, match="cluster.clustering.iterations: 5 -> 6"):
        case.decide(changes=changed)
    redone = case.to_run(changes=changed, redo=["cluster"])
    assert {"cluster/all", *EXPERTS, "router/all", "report/all"} <= set(redone) and MONOLITH not in redone
    assert not {key for key in redone if key.split("/")[0] in ("shard", "encode", "evaluators")}


def test_what_is_redone_is_moved_and_not_overwritten(case):
    case.finish()
    run = case.run
    before = (run.unit(MONOLITH) / "manifest.json").read_bytes()
    (run.unit(MONOLITH) / ".lease").touch()
    for key in (MONOLITH, "report/all", "evaluators/classifier"):
        set_aside(run, key)
    assert [path.name for path in run.unit(MONOLITH).iterdir()] == [".lease"] and run.unit(EXPERTS[0]).exists()
    (aside,) = run.superseded.glob("*/train/monolith/manifest.json")
    assert aside.read_bytes() == before and len(list(run.superseded.rglob("manifest.json"))) == 3


def test_the_images_are_looked_at_only_while_they_are_needed(case):
    with pytest.raises(UserError, match="is not a folder"):
        case.check()
    write_source(case.folder / "images")
    case.check()
    shutil.rmtree(case.folder / "images")
    case.finish(lambda unit: unit.stage == "shard")
    case.check()


def test_a_file_of_keys_is_looked_at_before_anything_is_submitted(case):
    write_source(case.folder / "images")
    for content, message in ((None, "cannot be read"), ("", "no sample"), ("a\na\n", "several times")):
        if content is not None:
            (case.folder / "hats.txt").write_text(content)
        with pytest.raises(UserError, match=f"hats.txt: .*{message}"):
            case.check(experts__extra=[JOINED])


def test_neither_an_allocation_nor_the_users_own_filters_of_slurms_queue_leak(monkeypatch):
    leaking = "SLURM_JOB_ID SBATCH_PARTITION SRUN_DEBUG PMI_RANK PMIX_ID SUBMITIT_EXECUTOR".split()
    leaking += ["SQUEUE_STATES", "SACCT_FORMAT", "SCANCEL_STATE"]
    for name in (*leaking, "SLURM_CONF", "HOME"):
        monkeypatch.setenv(name, "x")
    assert [clean_environment().get(name) for name in ("SLURM_CONF", "HOME")] == ["x", "x"]
    assert not clean_environment().keys() & set(leaking)


def test_only_what_is_asked_for_runs_and_what_reads_it_goes_along(case):
    case.finish(lambda unit: unit.stage not in {"train", *FINAL_STAGES})
    decision = case.decide(only=[EXPERTS[0]])
    assert keys(decision.to_run) == [EXPERTS[0]] and decision.not_requested == [MONOLITH, EXPERTS[1]]
    assert list(decision.blocked) == FINAL
    case.finish(lambda unit: unit.key in (MONOLITH, EXPERTS[1]))
    assert case.to_run(only=[EXPERTS[0]]) == [EXPERTS[0], *FINAL]


def test_one_that_was_cut_off_long_ago_is_waited_for_no_more(case, monkeypatch):
    Journal(case.run.journal).record_intent("slurm", "north", [MONOLITH])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 60)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("waited"))
    reconcile_journal(case.run, Queue(case.run))


def test_nothing_behind_the_last_stage_that_is_asked_for_runs(case):
    units = case.units()
    before = [unit.key for unit in units if unit.stage in DATA_STAGES]
    decision = case.decide(until="cluster_report")
    assert keys(decision.to_run) == before and not decision.blocked
    assert decision.not_requested == [unit.key for unit in units if unit.stage not in DATA_STAGES]
    case.finish(lambda unit: unit.stage in DATA_STAGES)
    assert case.to_run(until="cluster_report") == []
    assert case.to_run(until="train") == [MONOLITH, *EXPERTS]
    assert "train/expert-00" in case.to_run()


def test_a_training_that_waits_is_recalled_where_only_its_clusters_are_made_anew(case):
    case.finish(lambda unit: unit.stage in DATA_STAGES)
    case.submit()
    waiting = Queue(case.run, alive=EXPERTS, state="pending")
    decision = case.decide(waiting, redo=["expert_lists"], until="cluster_report")
    assert keys(decision.to_run) == ["expert_lists/all", "cluster_report/all"]
    assert set(EXPERTS) <= set(decision.not_requested) and len(decision.recalled) == 2 and not decision.active
