import time

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.jobs.spec import read_spec
from hpcddm.launch.base import Job, clean_environment
from hpcddm.launch.run_folder import check_folder
from hpcddm.launch.submission import (
    active_units,
    check_experiment,
    decide_units,
    reconcile_journal,
    store_site,
    stored_site,
)
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.helpers import DATA_STAGES, FINAL, FINAL_STAGES, JOINED, finish, tiny, write_source
from tests.launch.queues import Queue, submit_all

EXPERTS = [expert_key(0), expert_key(1)]


@pytest.fixture
def run(tmp_path):
    """An empty run."""
    return RunDir(tmp_path / "run")


def keys(units):
    return [unit.key for unit in units]


def test_everything_runs_in_an_empty_run(run, tmp_path):
    experiment = tiny(tmp_path)
    decision = decide_units(experiment, run, Queue(run))
    assert keys(decision.to_run) == keys(plan_units(experiment))
    assert not (decision.complete or decision.active or decision.elsewhere or decision.blocked)


def test_nothing_runs_in_a_finished_one(run, tmp_path):
    finish(plan_units(tiny(tmp_path)), run)
    decision = decide_units(tiny(tmp_path), run, Queue(run))
    assert decision.to_run == [] and decision.complete == keys(plan_units(tiny(tmp_path)))


def test_only_what_is_missing_and_what_reads_it_runs(run, tmp_path):
    finish(plan_units(tiny(tmp_path)), run)
    (run.unit(EXPERTS[1]) / "manifest.json").unlink()
    assert keys(decide_units(tiny(tmp_path), run, Queue(run)).to_run) == [
        EXPERTS[1],
        *FINAL,
    ]


def test_what_waits_or_runs_is_not_submitted_again(run, tmp_path):
    experiment = tiny(tmp_path)
    run.root.mkdir()
    submit_all(experiment, run, Queue(run), decide_units(experiment, run, Queue(run)))
    queue = Queue(run, alive=[*EXPERTS, "router/all"])
    decision = decide_units(experiment, run, queue)
    assert set(decision.active) == {*EXPERTS, "router/all"} and not decision.active.keys() & set(keys(decision.to_run))
    again = submit_all(experiment, run, queue, decision)
    (evaluate,) = [one for one in again if one.keys[0].startswith("evaluate/")]
    assert {"108", "109"} <= set(evaluate.after)


def test_what_waits_for_a_unit_that_must_run_again_is_recalled(run, tmp_path):
    experiment = tiny(tmp_path)
    run.root.mkdir()
    submit_all(experiment, run, Queue(run), decide_units(experiment, run, Queue(run)))
    finish([unit for unit in plan_units(experiment) if unit.stage not in FINAL_STAGES], run)
    (run.unit(EXPERTS[1]) / "manifest.json").unlink()
    decision = decide_units(experiment, run, Queue(run, alive=FINAL, state="pending"))
    assert (
        keys(decision.to_run) == [EXPERTS[1], *FINAL] and len(decision.recalled) == len(FINAL) and not decision.active
    )


def test_a_foreign_expert_that_does_not_fit_is_named_and_asks_for_no_redo(run, tmp_path):
    sites = {"experts__sites": ["north", "south"], "site": "north"}
    finish(plan_units(tiny(tmp_path, **sites)), run)
    changed = decide_units(tiny(tmp_path, **sites), run, Queue(run))
    assert not changed.elsewhere
    (run.unit(EXPERTS[1]) / "output.bin").write_bytes(b"torn")
    torn = decide_units(tiny(tmp_path, **sites), run, Queue(run))
    assert list(torn.elsewhere) == [EXPERTS[1]] and "bytes instead of" in torn.elsewhere[EXPERTS[1]]


def test_what_becomes_complete_while_the_queue_is_asked_is_not_submitted_again(run, tmp_path):
    class Finishing(Queue):
        def states(self, submissions):
            finish(plan_units(tiny(tmp_path)), run)
            return {}

    run.root.mkdir()
    submit_all(tiny(tmp_path), run, Queue(run), decide_units(tiny(tmp_path), run, Queue(run)))
    assert decide_units(tiny(tmp_path), run, Finishing(run)).to_run == []


def test_a_scheduler_that_does_not_answer_is_never_taken_for_an_empty_one(run, tmp_path):
    run.root.mkdir()
    submit_all(tiny(tmp_path), run, Queue(run), decide_units(tiny(tmp_path), run, Queue(run)))
    with pytest.raises(UserError, match="the scheduler does not answer"):
        decide_units(tiny(tmp_path), run, Queue(run, alive=None))


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


@pytest.fixture
def submitted_run(run, tmp_path, monkeypatch):
    """A run of which everything was submitted."""
    monkeypatch.setattr("hpcddm.launch.ending_jobs.POLL_SECONDS", 0.01)
    run.root.mkdir()
    submit_all(tiny(tmp_path), run, Queue(run), decide_units(tiny(tmp_path), run, Queue(run)))
    return run


@pytest.mark.parametrize("state", ["running", "pending", "held", "stopping"])
def test_a_job_that_is_being_cancelled_is_waited_for_and_no_input_of_new_jobs(submitted_run, tmp_path, capsys, state):
    journal = Journal(submitted_run.journal)
    for submission in journal.submissions():
        journal.record_cancelled(submission.uuid)
    queue = Leaving(submitted_run, [{EXPERTS[0]: state, EXPERTS[1]: state}, {EXPERTS[1]: "stopping"}])
    decision = decide_units(tiny(tmp_path), submitted_run, queue)
    assert keys(decision.to_run) == keys(plan_units(tiny(tmp_path))) and not decision.active and not queue.answers
    assert capsys.readouterr().out.count("waiting for 2 jobs that are ending, at most 120 s") == 1
    assert len(queue.gone) == (2 if state in ("pending", "held") else 0)


def test_a_job_that_somebody_else_cancelled_is_waited_for_and_one_that_comes_back_stays(submitted_run, tmp_path):
    queue = Leaving(submitted_run, [dict.fromkeys(EXPERTS, "stopping"), {EXPERTS[1]: "pending"}])
    assert list(active_units(submitted_run, queue)) == [EXPERTS[1]]


def test_a_complete_unit_whose_job_is_ending_is_not_waited_for(submitted_run, tmp_path):
    finish(plan_units(tiny(tmp_path)), submitted_run)
    queue = Leaving(submitted_run, [{EXPERTS[0]: "stopping"}] * 2)
    assert decide_units(tiny(tmp_path), submitted_run, queue).to_run == [] and len(queue.answers) == 1


def test_a_job_that_does_not_end_is_named(submitted_run, tmp_path, monkeypatch):
    monkeypatch.setattr("hpcddm.launch.ending_jobs.LEAVING_SECONDS", 0.05)
    queue = Leaving(submitted_run, [{EXPERTS[0]: "stopping"}] * 1000)
    queue.site = queue.site.model_copy(update={"signal_lead_seconds": 0.05})
    with pytest.raises(UserError, match=f"of {EXPERTS[0]} is still ending after .* repeat the command"):
        decide_units(tiny(tmp_path), submitted_run, queue)
    with pytest.raises(UserError, match="the scheduler does not answer"):
        decide_units(tiny(tmp_path), submitted_run, Leaving(submitted_run, [{EXPERTS[0]: "stopping"}, None]))


def test_every_site_runs_its_own_experts(run, tmp_path):
    experiment = tiny(tmp_path, experts__sites=["north", "south"])
    north = decide_units(experiment, run, Queue(run))
    assert (EXPERTS[0] in keys(north.to_run), list(north.elsewhere)) == (True, [EXPERTS[1]])
    assert set(north.blocked) == {*FINAL}
    assert north.blocked[FINAL[0]] == EXPERTS[1]
    south = decide_units(experiment, run, Queue(run, name="south"))
    assert (EXPERTS[1] in keys(south.to_run), list(south.elsewhere)) == (True, [EXPERTS[0]])


def test_experts_elsewhere_do_not_block_the_final_step_when_enough_are_to_run(run, tmp_path):
    experiment = tiny(tmp_path, experts__sites=["north", "south"], evaluate__min_experts=1)
    north = decide_units(experiment, run, Queue(run))
    assert list(north.elsewhere) == [EXPERTS[1]] and not north.blocked and set(FINAL) <= set(keys(north.to_run))
    all_needed = decide_units(tiny(tmp_path, experts__sites=["north", "south"]), run, Queue(run))
    assert list(all_needed.blocked) == FINAL
    # Nothing of its own to make, and nothing there: one expert is still too few.
    nowhere = decide_units(experiment, run, Queue(run, name="west"))
    assert set(FINAL) <= nowhere.blocked.keys() and nowhere.blocked[FINAL[0]] == EXPERTS[0]


def test_a_partial_final_step_is_complete_until_the_expert_arrives_and_is_then_all_that_runs(run, tmp_path):
    experiment = tiny(tmp_path, experts__sites=["north", "south"], evaluate__min_experts=1)
    units = plan_units(experiment)
    finish([unit for unit in units if unit.key != EXPERTS[1]], run)
    assert keys(decide_units(experiment, run, Queue(run)).to_run) == []
    finish([unit for unit in units if unit.key == EXPERTS[1]], run)
    assert keys(decide_units(experiment, run, Queue(run)).to_run) == FINAL


def test_an_expert_that_failed_runs_again_and_the_final_step_waits_for_it_but_does_not_need_it(run, tmp_path):
    experiment = tiny(tmp_path, evaluate__min_experts=1)
    finish([unit for unit in plan_units(experiment) if unit.key != EXPERTS[1]], run)
    decision = decide_units(experiment, run, Queue(run))
    assert keys(decision.to_run) == [EXPERTS[1], *FINAL]
    expert, evaluate, measure, compare, report = submit_all(experiment, run, Queue(run), decision)
    assert (evaluate.after, measure.after, compare.after) == ([expert.job], [evaluate.job], [measure.job])
    assert set(report.after) == {expert.job, evaluate.job, compare.job}
    spec, _ = read_spec(run.spec(FINAL[0]))
    assert (list(spec.optional), spec.min_optional) == (EXPERTS, 1) and not set(EXPERTS) & set(spec.requires)


def test_experts_that_arrived_unblock_the_evaluation(run, tmp_path):
    experiment = tiny(tmp_path, experts__sites=["north", "south"])
    finish(plan_units(experiment), run)
    (run.unit(EXPERTS[0]) / "manifest.json").unlink()
    decision = decide_units(experiment, run, Queue(run))
    assert keys(decision.to_run) == [EXPERTS[0], *FINAL]
    assert (decision.elsewhere, decision.blocked) == ({}, {})


def test_a_stage_that_is_redone_takes_along_what_reads_it(run, tmp_path):
    finish(plan_units(tiny(tmp_path)), run)
    changed = tiny(tmp_path, cluster__clustering__iterations=6)
    with pytest.raises(ConfigError, match="cluster.clustering.iterations: 5 -> 6"):
        decide_units(changed, run, Queue(run))
    redone = keys(decide_units(changed, run, Queue(run), redo=["cluster"]).to_run)
    assert {"cluster/all", *EXPERTS, "router/all", "report/all"} <= set(redone) and MONOLITH not in redone
    assert not {key for key in redone if key.split("/")[0] in ("shard", "encode", "evaluators")}


def test_what_is_redone_is_moved_and_not_overwritten(run, tmp_path):
    finish(plan_units(tiny(tmp_path)), run)
    before = (run.unit(MONOLITH) / "manifest.json").read_bytes()
    (run.unit(MONOLITH) / ".lease").touch()
    for key in (MONOLITH, "report/all", "evaluators/classifier"):
        set_aside(run, key)
    assert [path.name for path in run.unit(MONOLITH).iterdir()] == [".lease"] and run.unit(EXPERTS[0]).exists()
    (aside,) = run.superseded.glob("*/train/monolith/manifest.json")
    assert aside.read_bytes() == before and len(list(run.superseded.rglob("manifest.json"))) == 3


def test_a_spec_says_everything_and_lies_in_its_run(run, tmp_path):
    run.root.mkdir()
    queue = Queue(run, network_interface="ib0", stages={"train": {"cpus_per_rank": 3}})
    submit_all(tiny(tmp_path), run, queue, decide_units(tiny(tmp_path), run, queue))
    spec, found = read_spec(run.spec(EXPERTS[1]))
    (unit,) = [unit for unit in plan_units(tiny(tmp_path)) if unit.key == EXPERTS[1]]
    assert found.root == run.root.resolve() and (spec.fingerprint_settings, spec.requires) == (
        unit.fingerprint_settings,
        unit.requires,
    )
    assert (spec.stage, spec.threads, spec.network_interface) == ("train", 3, "ib0")


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_spec_that_cannot_be_read_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "x.json").write_text(content)
    with pytest.raises(UserError, match=r"x.json: (is missing|holds no usable JSON .*); submit the run again"):
        read_spec(tmp_path / "x.json")


def test_the_images_are_looked_at_only_while_they_are_needed(run, tmp_path):
    experiment = tiny(tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        check_experiment(experiment, Queue(run).site, decide_units(experiment, run, Queue(run)))
    finish([unit for unit in plan_units(experiment) if unit.stage == "shard"], run)
    check_experiment(experiment, Queue(run).site, decide_units(experiment, run, Queue(run)))


@pytest.mark.parametrize("content, message", [(None, "cannot be read"), ("", "no sample"), ("a\na\n", "several times")])
def test_a_file_of_keys_is_looked_at_before_anything_is_submitted(run, tmp_path, content, message):
    write_source(tmp_path / "images")
    if content is not None:
        (tmp_path / "hats.txt").write_text(content)
    experiment = tiny(tmp_path, experts__extra=[JOINED])
    queue = Queue(run)
    with pytest.raises(UserError, match=f"hats.txt: .*{message}"):
        check_experiment(experiment, queue.site, decide_units(experiment, run, queue))


def test_a_good_experiment_passes(run, tmp_path):
    write_source(tmp_path / "images")
    experiment = tiny(tmp_path)
    check_experiment(experiment, Queue(run).site, decide_units(experiment, run, Queue(run)))


def test_what_an_allocation_leaves_in_the_environment_does_not_leak(monkeypatch):
    for name in ("SLURM_JOB_ID", "SBATCH_PARTITION", "SRUN_DEBUG", "PMI_RANK", "PMIX_ID", "SUBMITIT_EXECUTOR", "HOME"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    left = clean_environment()
    assert {name for name in left if name.startswith(("SLURM", "SBATCH", "SRUN", "PMI", "SUBMITIT"))} == {"SLURM_CONF"}
    assert left["HOME"] == "x"


def test_only_what_is_asked_for_runs_and_what_reads_it_goes_along(run, tmp_path):
    experiment = tiny(tmp_path)
    finish([unit for unit in plan_units(experiment) if unit.stage not in {"train", *FINAL_STAGES}], run)
    decision = decide_units(experiment, run, Queue(run), only=[EXPERTS[0]])
    assert keys(decision.to_run) == [EXPERTS[0]] and decision.not_requested == [MONOLITH, EXPERTS[1]]
    assert list(decision.blocked) == FINAL
    finish([unit for unit in plan_units(experiment) if unit.key in (MONOLITH, EXPERTS[1])], run)
    assert keys(decide_units(experiment, run, Queue(run), only=[EXPERTS[0]]).to_run) == [EXPERTS[0], *FINAL]


def test_what_the_caller_knows_of_the_queue_is_not_asked_again(run, tmp_path):
    class Shy(Queue):
        def states(self, submissions):
            raise AssertionError("asked")

    run.root.mkdir()
    Journal(run.journal).record_intent("slurm", "north", [MONOLITH])
    active = {MONOLITH: Job(JobId("7_0"), "running")}
    assert MONOLITH not in keys(decide_units(tiny(tmp_path), run, Shy(run), active=active).to_run)


class Late(Queue):
    """A queue in which a job shows only at the third look."""

    polls = 0

    def states(self, submissions):
        self.polls += 1
        return {MONOLITH: Job(JobId("77_0"), "pending")} if self.polls > 2 else {}


def test_a_submit_that_was_cut_off_is_waited_for_and_its_job_recorded(run, monkeypatch):
    run.root.mkdir()
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    journal = Journal(run.journal)
    journal.record_intent("slurm", "north", [MONOLITH])
    queue = Late(run)
    reconcile_journal(run, queue)
    assert [one.job for one in journal.submissions()] == ["77"] and queue.polls == 3
    reconcile_journal(run, queue)
    assert queue.polls == 3, "asked about a submission that is confirmed"


def test_one_that_was_cut_off_long_ago_is_waited_for_no_more(run, monkeypatch):
    run.root.mkdir()
    Journal(run.journal).record_intent("slurm", "north", [MONOLITH])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 60)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("waited"))
    reconcile_journal(run, Queue(run))


def test_a_folder_without_room_or_permission_is_named(run, monkeypatch):
    check_folder(run)
    assert not run.root.exists()
    monkeypatch.setattr("hpcddm.files.atomic.free_bytes", lambda folder: 5000)
    with pytest.raises(
        ConfigError, match=f"--run-dir {run.root}: cannot be made .5,000 bytes are free in {run.root.parent}"
    ):
        check_folder(run)
    monkeypatch.setattr("os.access", lambda *arguments: False)
    with pytest.raises(
        ConfigError, match=f"--run-dir {run.root}: cannot be made .no permission for this user in {run.root.parent}"
    ):
        check_folder(run)


def test_a_site_comes_back_as_it_was_used(run):
    site = Site(name="north", scheduler="slurm", stages={"train": {"minutes": 90}}, max_submitted=7)
    store_site(site, run)
    assert stored_site("north", run) == site
    with pytest.raises(ConfigError, match="'south' was not used here; known: north"):
        stored_site("south", run)


def test_nothing_behind_the_last_stage_that_is_asked_for_runs(run, tmp_path):
    experiment = tiny(tmp_path)
    before = [unit for unit in plan_units(experiment) if unit.stage in DATA_STAGES]
    decision = decide_units(experiment, run, Queue(run), until="cluster_report")
    assert decision.to_run == before and not decision.blocked
    assert decision.not_requested == keys(unit for unit in plan_units(experiment) if unit not in before)
    finish(before, run)
    assert decide_units(experiment, run, Queue(run), until="cluster_report").to_run == []
    assert keys(decide_units(experiment, run, Queue(run), until="train").to_run) == [MONOLITH, *EXPERTS]
    assert "train/expert-00" in keys(decide_units(experiment, run, Queue(run)).to_run)


def test_a_training_that_waits_is_recalled_where_only_its_clusters_are_made_anew(run, tmp_path):
    experiment = tiny(tmp_path)
    run.root.mkdir()
    finish([unit for unit in plan_units(experiment) if unit.stage in DATA_STAGES], run)
    submit_all(experiment, run, Queue(run), decide_units(experiment, run, Queue(run)))
    waiting = Queue(run, alive=EXPERTS, state="pending")
    decision = decide_units(experiment, run, waiting, redo=["expert_lists"], until="cluster_report")
    assert keys(decision.to_run) == ["expert_lists/all", "cluster_report/all"] and set(EXPERTS) <= set(
        decision.not_requested
    )
    assert len(decision.recalled) == 2 and not decision.active
