import time

import pytest

from hpcddm.errors import ConfigError, UserError
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import check_stale, require_complete, survey_units
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.unit_keys import expert_key, unit_name
from tests.attempts import beat, submitted, write_attempt
from tests.helpers import DATA_STAGES, finish, tiny

EXPERT = expert_key(1)
EVALUATE = "evaluate/0000000-0000024"
MEASURED = ("measure/own-0000000-0000024", "compare/own")


@pytest.fixture
def run(tmp_path):
    """A run of the tiny experiment in which every unit is complete."""
    run = RunDir(tmp_path / "run")
    finish(plan_units(tiny(tmp_path)), run)
    return run


def states(run, experiment):
    return {key: status.state for key, status in survey_units(plan_units(experiment), run).items()}


def expected(experiment, **other):
    named = other | {key.replace("_", "/", 1): state for key, state in other.items()}
    return {unit.key: named.get(unit.stage, named.get(unit.key, State.COMPLETE)) for unit in plan_units(experiment)}


def test_a_finished_run_is_complete(run, tmp_path):
    assert set(states(run, tiny(tmp_path)).values()) == {State.COMPLETE}


def test_an_empty_run_is_missing(tmp_path):
    assert set(states(RunDir(tmp_path / "none"), tiny(tmp_path)).values()) == {State.MISSING}


def test_a_unit_without_manifest_is_missing_and_its_readers_wait(run, tmp_path):
    (run.unit(EXPERT) / "manifest.json").unlink()
    found = survey_units(plan_units(tiny(tmp_path)), run)
    waiting = {key for key, status in found.items() if status.state is State.WAITING}
    assert found[EXPERT].state is State.MISSING
    assert waiting == {"evaluate/0000000-0000024", *MEASURED, "report/all"}
    assert found["evaluate/0000000-0000024"].reason == f"{EXPERT} is not complete"


def test_a_missing_unit_of_which_nothing_counts_holds_up_nobody(run, tmp_path):
    experiment = tiny(tmp_path, data__read_from={"name": "expert_copy"})
    assert states(run, experiment) == expected(experiment, copy_lists=State.MISSING)


def test_a_unit_with_a_torn_manifest_is_damaged_and_named_and_the_others_are_what_they_were(run, tmp_path):
    path, before = run.unit(EXPERT) / "manifest.json", states(run, tiny(tmp_path))
    path.write_bytes(path.read_bytes()[:-30])
    status = survey_units(plan_units(tiny(tmp_path)), run)
    assert status[EXPERT].state is State.DAMAGED and f"{path}: holds no usable JSON" in status[EXPERT].reason
    for key in before.keys() - {EXPERT}:
        readers = {EXPERT, EVALUATE, MEASURED[0]} & {*status[key].unit.inputs}
        assert status[key].state is before[key] or readers


def test_a_truncated_output_is_damage_that_names_the_file(run, tmp_path):
    (run.unit("shard/train-000") / "output.bin").write_bytes(b"")
    status = survey_units(plan_units(tiny(tmp_path)), run)["shard/train-000"]
    assert (status.state, "output.bin has 0 bytes instead of 15" in status.reason) == (State.DAMAGED, True)


def test_a_changed_setting_is_named_with_its_old_and_new_value(run, tmp_path):
    found = survey_units(plan_units(tiny(tmp_path, router__training__images=128)), run)
    assert found["router/all"].changes == {"router.training.images": (64, 128)}
    stale = {key for key, status in found.items() if status.state is State.STALE}
    assert stale == {"router/all", "train/monolith"} and found[EXPERT].state is State.COMPLETE


def test_a_setting_that_had_its_default_is_named_with_it(run, tmp_path):
    changed = tiny(tmp_path, data__transform={"name": "resize"})
    with pytest.raises(ConfigError, match=r"data\.transform\.name: 'centre_crop' -> 'resize'\. Stale: shard"):
        check_stale(list(survey_units(plan_units(changed), run).values()), set())


def test_an_input_that_was_made_anew_with_other_bytes_makes_its_readers_outdated(run, tmp_path):
    units = plan_units(tiny(tmp_path))
    (unit,) = [unit for unit in units if unit.key == "evaluators/classifier"]
    run.unit(unit.key).joinpath("output.bin").write_text("other")
    from hpcddm.runs import manifest

    before = manifest.read(run.unit(unit.key))
    outputs = manifest.describe_outputs(run.unit(unit.key), ["output.bin"])
    manifest.publish(run.unit(unit.key), manifest.Manifest(**{**vars(before), "outputs": outputs}))
    found = survey_units(units, run)
    assert found["evaluators/classifier"].state is State.COMPLETE
    assert found["report/all"].reason == "evaluators/classifier has changed since"


def test_an_expert_folder_that_arrives_by_any_means_is_complete(run, tmp_path):
    arrived = RunDir(tmp_path / "other")
    (arrived.root / "train").mkdir(parents=True)
    for name in (*DATA_STAGES, EXPERT):
        run.root.joinpath(name).rename(arrived.root / name)
    assert states(arrived, tiny(tmp_path))[EXPERT] is State.COMPLETE


@pytest.fixture
def partial(tmp_path):
    """A run whose final step was made without one of the two experts, and its units."""
    run, units = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path, evaluate__min_experts=1))
    finish([unit for unit in units if unit.key != EXPERT], run)
    return run, units


def final(found):
    """State and reason of evaluate and report."""
    return [(str(found[key].state), found[key].reason) for key in ("evaluate/0000000-0000024", "report/all")]


def test_a_final_step_without_an_expert_is_complete_and_says_so(partial):
    found = survey_units(partial[1], partial[0])
    assert found[EXPERT].state is State.MISSING and final(found) == [("complete", f"without {EXPERT}")] * 2


def test_an_expert_that_arrives_makes_the_final_step_outdated_and_nothing_else(partial):
    run, units = partial
    finish([unit for unit in units if unit.key == EXPERT], run)
    found = survey_units(units, run)
    assert final(found) == [("outdated", f"{EXPERT} has arrived since")] * 2
    final_stages = ("evaluate", "measure", "compare", "report")
    assert {found[unit.key].state for unit in units if unit.stage not in final_stages} == {State.COMPLETE}


def test_an_expert_that_does_not_fit_has_not_arrived(partial, tmp_path):
    run, units = partial
    foreign = plan_units(tiny(tmp_path, experts__training__images=128))
    finish([unit for unit in foreign if unit.key == EXPERT], run)
    found = survey_units(units, run)
    assert found[EXPERT].state is State.STALE and final(found) == [("complete", f"without {EXPERT}")] * 2


def test_an_expert_that_was_used_and_has_gone_takes_no_result_with_it(run, tmp_path):
    (run.unit(EXPERT) / "manifest.json").unlink()
    enough, all_of_them = (plan_units(tiny(tmp_path, evaluate__min_experts=minimum)) for minimum in (1, None))
    assert final(survey_units(enough, run)) == [("complete", f"made with {EXPERT}, which has gone")] * 2
    assert final(survey_units(all_of_them, run))[0] == ("waiting", f"{EXPERT} is not complete")


def test_a_higher_minimum_makes_a_final_step_wait_that_was_made_with_less(partial, tmp_path):
    run, _ = partial
    assert final(survey_units(plan_units(tiny(tmp_path)), run))[0] == ("waiting", f"{EXPERT} is not complete")


def test_units_that_were_made_with_different_experts_do_not_go_together(tmp_path):
    run, units = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path, evaluate__min_experts=1, evaluate__units=2))
    first, second = (unit for unit in units if unit.stage == "evaluate")
    name = unit_name(second.key)
    behind = (EXPERT, second.key, f"measure/own-{name}", "compare/own", "report/all")
    finish([unit for unit in units if unit.key not in behind], run)
    finish([unit for unit in units if unit.key in behind], run)
    found = survey_units(units, run)
    assert (found[first.key].state, found[first.key].reason) == (State.OUTDATED, f"{EXPERT} has arrived since")
    assert (found[second.key].state, found["report/all"].reason) == (State.COMPLETE, f"{first.key} is not complete")


def test_changed_settings_are_refused_with_the_way_out(run, tmp_path):
    found = survey_units(plan_units(tiny(tmp_path, evaluate__guidance=2.0, evaluate__steps=5)), run)
    with pytest.raises(ConfigError) as caught:
        check_stale(list(found.values()), redo={"report"})
    assert "evaluate.guidance: 1.0 -> 2.0; evaluate.steps: 2 -> 5. Stale: evaluate and what reads" in str(caught.value)
    assert str(caught.value).endswith("--redo evaluate") and "\n" not in str(caught.value)
    check_stale(list(found.values()), redo={"report", "evaluate"})


def test_what_a_unit_says_of_itself(tmp_path):
    run = RunDir(tmp_path)
    assert (read_activity(run, EXPERT).attempts, read_activity(run, EXPERT).is_running) == (0, False)
    attempt = open_attempt(run.logs(EXPERT), Ranks(0, 0, 1, 1, "me"))
    assert not read_activity(run, EXPERT).is_running
    HeartbeatWriter(attempt.folder, "me", attempt.number, "host").beat(1, 2)
    assert read_activity(run, EXPERT).is_running
    attempt.close("stopped", "SIGTERM")
    work = read_activity(run, EXPERT)
    assert (work.attempts, work.outcome, work.reason, work.is_running) == (1, "stopped", "SIGTERM", False)


def test_a_new_attempt_does_not_live_by_the_heartbeat_of_the_one_before(tmp_path):
    run = RunDir(tmp_path)
    write_attempt(run, EXPERT, 1, heartbeat=beat(30, 64, age=0, saved=20))
    write_attempt(run, EXPERT, 2)
    work = read_activity(run, EXPERT)
    assert (work.attempts, work.is_running, work.beat.done, work.saved[0]) == (2, False, 30, 20)


def test_a_unit_with_a_verdict_is_not_running_however_fresh_its_heartbeat(tmp_path):
    run = RunDir(tmp_path)
    write_attempt(run, EXPERT, 1, heartbeat=beat(age=0), verdict={"decision": "requeue", "reason": "SIGUSR2"})
    assert not read_activity(run, EXPERT).is_running and read_activity(run, EXPERT).reason == "SIGUSR2"


def test_a_unit_that_fell_silent_is_not_running(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    write_attempt(run, EXPERT, 1, heartbeat=beat(age=0))
    assert read_activity(run, EXPERT).is_running
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 120)
    assert not read_activity(run, EXPERT).is_running


def test_attempts_before_the_unit_was_complete_are_of_another_making(tmp_path):
    run = RunDir(tmp_path)
    write_attempt(run, EXPERT, 1, heartbeat=beat(64, 64, age=90, saved=64), ended={"outcome": "complete"})
    assert read_activity(run, EXPERT).beat.done == 64
    write_attempt(run, EXPERT, 2)
    assert (read_activity(run, EXPERT).attempts, read_activity(run, EXPERT).beat, read_activity(run, EXPERT).saved) == (
        2,
        None,
        None,
    )
    write_attempt(run, EXPERT, 3, heartbeat=beat(16, 64, age=0))
    assert (read_activity(run, EXPERT).beat.done, read_activity(run, EXPERT).saved) == (16, None)


@pytest.fixture
def made_anew(tmp_path):
    """A run that was complete, with an expert that is being made anew."""
    run, experiment = RunDir(tmp_path / "run"), tiny(tmp_path)
    finish(plan_units(experiment), run)
    set_aside(run, EXPERT)
    return run, survey_units(plan_units(experiment), run)


def refused(run, states, *keys):
    with pytest.raises(UserError) as caught:
        require_complete(states, run, *keys)
    return str(caught.value)


def test_what_is_not_complete_is_described_as_the_status_does(made_anew):
    run, states = made_anew
    require_complete(states, run, "expert_lists/all")
    advice = f"; next: hpcddm status {run.root}"
    assert refused(run, states, "expert_lists/all", EXPERT) == f"{EXPERT} is missing{advice}"
    assert refused(run, states, "report/all") == f"report/all is waiting ({EVALUATE} is not complete){advice}"
    token = submitted(run, [EXPERT])
    assert refused(run, states, EXPERT) == f"{EXPERT} is submitted and not begun{advice}"
    write_attempt(run, EXPERT, 1, token, "17_0", heartbeat=beat(1500, 6400, age=0))
    assert refused(run, states, EXPERT) == f"{EXPERT} is running (1,500 of 6,400 images){advice}"
    Journal(run.journal).record_cancelled(token)
    write_attempt(run, EXPERT, 1, token, "17_0", verdict={"decision": "cancelled"})
    assert refused(run, states, EXPERT) == f"{EXPERT} is missing{advice}"
