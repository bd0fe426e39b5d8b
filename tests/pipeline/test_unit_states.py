from dataclasses import replace

import pytest

from hpcddm.errors import ConfigError, UserError
from hpcddm.jobs.activity import read_activity
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import check_stale, require_complete, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.unit_keys import expert_key, unit_name
from tests.attempts import beat, submitted, write_attempt
from tests.helpers import FINAL_STAGES, finish, tiny

EXPERT = expert_key(1)
DRAW = "draw/0000000-0000024"
MEASURED = ("measure/own-0000000-0000024", "compare/own")


@pytest.fixture
def run(tmp_path):
    """A run of the tiny experiment in which every unit is complete."""
    run = RunDir(tmp_path / "run")
    finish(plan_units(tiny(tmp_path)), run)
    return run


def survey(run, folder, **changes):
    return survey_units(plan_units(tiny(folder, **changes)), run)


def states(found):
    return {key: status.state for key, status in found.items()}


def test_a_unit_with_a_torn_manifest_is_damaged_and_named_and_the_others_are_what_they_were(run, tmp_path):
    path, before = run.unit(EXPERT) / "manifest.json", states(survey(run, tmp_path))
    path.write_bytes(path.read_bytes()[:-30])
    status = survey(run, tmp_path)
    assert status[EXPERT].state is State.DAMAGED and f"{path}: holds no usable JSON" in status[EXPERT].reason
    for key in before.keys() - {EXPERT}:
        readers = {EXPERT, DRAW, MEASURED[0]} & {*status[key].unit.inputs}
        assert status[key].state is before[key] or readers


def test_a_truncated_output_is_damage_that_names_the_file(run, tmp_path):
    (run.unit("shard/train-000") / "output.bin").write_bytes(b"")
    status = survey(run, tmp_path)["shard/train-000"]
    assert (status.state, "output.bin has 0 bytes instead of 15" in status.reason) == (State.DAMAGED, True)


def test_a_changed_setting_is_named_with_its_old_and_new_value_and_the_way_out(run, tmp_path):
    found = survey(run, tmp_path, router__training__images=128)
    assert found["router/all"].changes == {"router.training.images": (64, 128)}
    stale = {key for key, state in states(found).items() if state is State.STALE}
    assert stale == {"router/all", "train/monolith"}
    found = survey(run, tmp_path, evaluate__guidance=2.0, evaluate__steps=5)
    with pytest.raises(ConfigError) as caught:
        check_stale(list(found.values()), redo={"report"})
    assert "evaluate.guidance: 1.0 -> 2.0; evaluate.steps: 2 -> 5. Stale: draw and what reads" in str(caught.value)
    assert str(caught.value).endswith("--redo draw") and "\n" not in str(caught.value)
    check_stale(list(found.values()), redo={"report", "draw"})
    # This one had its default.
    found = survey(run, tmp_path, data__transform={"name": "resize"})
    with pytest.raises(ConfigError, match=r"data\.transform\.name: 'centre_crop' -> 'resize'\. Stale: shard"):
        check_stale(list(found.values()), set())


def test_an_input_that_was_made_anew_with_other_bytes_makes_its_readers_outdated(run, tmp_path):
    folder = run.unit("evaluators/classifier")
    (folder / "output.bin").write_text("other")
    made = replace(manifest.read(folder), outputs=manifest.describe_outputs(folder, ["output.bin"]))
    manifest.publish(folder, made)
    found = survey(run, tmp_path)
    assert found["evaluators/classifier"].state is State.COMPLETE
    assert found["report/all"].reason == "evaluators/classifier has changed since"


def final(found):
    """State and reason of draw and report."""
    return [(str(found[key].state), found[key].reason) for key in (DRAW, "report/all")]


def test_a_final_step_without_an_expert_is_complete_until_one_that_fits_arrives(tmp_path):
    run, units = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path, evaluate__min_experts=1))
    finish([unit for unit in units if unit.key != EXPERT], run)
    assert final(survey(run, tmp_path))[0] == ("waiting", f"{EXPERT} is not complete"), "both are wanted by default"
    others = plan_units(tiny(tmp_path, experts__training__images=128))
    for arrived, state in (([], State.MISSING), (others, State.STALE)):
        finish([unit for unit in arrived if unit.key == EXPERT], run)
        found = survey_units(units, run)
        assert found[EXPERT].state is state and final(found) == [("complete", f"without {EXPERT}")] * 2
    finish([unit for unit in units if unit.key == EXPERT], run)
    found = survey_units(units, run)
    assert final(found) == [("outdated", f"{EXPERT} has arrived since")] * 2
    assert {found[unit.key].state for unit in units if unit.stage not in FINAL_STAGES} == {State.COMPLETE}


def test_an_expert_that_was_used_and_has_gone_takes_no_result_with_it(run, tmp_path):
    (run.unit(EXPERT) / "manifest.json").unlink()
    found = survey(run, tmp_path, evaluate__min_experts=1)
    assert final(found) == [("complete", f"made with {EXPERT}, which has gone")] * 2
    assert final(survey(run, tmp_path))[0] == ("waiting", f"{EXPERT} is not complete")


def test_units_that_were_made_with_different_experts_do_not_go_together(tmp_path):
    run, units = RunDir(tmp_path / "run"), plan_units(tiny(tmp_path, evaluate__min_experts=1, evaluate__units=2))
    first, second = (unit for unit in units if unit.stage == "draw")
    name = unit_name(second.key)
    behind = (EXPERT, second.key, f"measure/own-{name}", "compare/own", "report/all")
    finish([unit for unit in units if unit.key not in behind], run)
    finish([unit for unit in units if unit.key in behind], run)
    found = survey_units(units, run)
    assert (found[first.key].state, found[first.key].reason) == (State.OUTDATED, f"{EXPERT} has arrived since")
    assert (found[second.key].state, found["report/all"].reason) == (State.COMPLETE, f"{first.key} is not complete")


@pytest.fixture
def attempted(tmp_path):
    """Write the record of an attempt and read what goes on."""

    def attempted(number, **files):
        write_attempt(RunDir(tmp_path), EXPERT, number, **files)
        return read_activity(RunDir(tmp_path), EXPERT)

    return attempted


def test_a_unit_that_fell_silent_or_has_a_verdict_or_an_end_is_not_running(attempted, tmp_path):
    assert not read_activity(RunDir(tmp_path), EXPERT).is_running
    assert attempted(1, heartbeat=beat(age=0)).is_running and not attempted(1, heartbeat=beat(age=120)).is_running
    work = attempted(1, heartbeat=beat(age=0), verdict={"decision": "requeue", "reason": "SIGUSR2"})
    assert not work.is_running and work.reason == "SIGUSR2"
    work = attempted(2, heartbeat=beat(age=0), ended={"outcome": "stopped", "reason": "SIGTERM"})
    assert (work.number, work.outcome, work.reason, work.is_running) == (2, "stopped", "SIGTERM", False)


def test_attempts_before_the_unit_was_complete_are_of_another_making(attempted):
    assert attempted(1, heartbeat=beat(64, 64, age=90, saved=64), ended={"outcome": "complete"}).progress.done == 64
    work = attempted(2)
    assert (work.number, work.progress) == (2, None)
    work = attempted(3, heartbeat=beat(16, 64, age=0))
    assert (work.progress.done, work.progress.saved_images) == (16, None)


def refused(run, states, *keys):
    with pytest.raises(UserError) as caught:
        require_complete(states, run, *keys)
    return str(caught.value)


def test_what_is_not_complete_is_described_as_the_status_does(run, tmp_path):
    set_aside(run, EXPERT)
    states = survey(run, tmp_path)
    require_complete(states, run, "expert_lists/all")
    advice = f"; next: hpcddm status {run.root}"
    assert refused(run, states, "expert_lists/all", EXPERT) == f"{EXPERT} is missing{advice}"
    assert refused(run, states, "report/all") == f"report/all is waiting ({DRAW} is not complete){advice}"
    token = submitted(run, [EXPERT])
    assert refused(run, states, EXPERT) == f"{EXPERT} is pending (submitted and not begun){advice}"
    write_attempt(run, EXPERT, 1, token, "17_0", heartbeat=beat(1500, 6400, age=0))
    assert refused(run, states, EXPERT) == f"{EXPERT} is running (1,500 of 6,400 images){advice}"
    Journal(run.journal).record_cancelled(token)
    write_attempt(run, EXPERT, 1, token, "17_0", verdict={"decision": "cancelled"})
    assert refused(run, states, EXPERT) == f"{EXPERT} is cancelled{advice}"
