"""`hpcddm sweep` with a scheduler that only takes notes: what is submitted, in which order, and what is not."""

import csv
import json
import shutil
from dataclasses import replace

from hpcddm.commands import sweep as command
from hpcddm.jobs.spec import read_element_map, read_spec
from hpcddm.launch import continuation
from hpcddm.launch.base import Limits
from hpcddm.launch.script_template import stored_parts
from hpcddm.launch.sweep_runs import assign_owners
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.sweep_index import read_index
from hpcddm.runs.unit_keys import REPORT
from tests.attempts import write_attempt
from tests.evaluation.sweep_results.taking import DRAW, Taking, jobs, names
from tests.helpers import COUNTED, FINAL, finish, write_experiment, write_source

ARM = {"fd": 1.5, "kid": 0.25, "agreement": 0.75, "images": 24, "train_flops": 1000}
FACTS = {"arms": {"monolith": ARM, "top-1": ARM | {"fd": 2.5}}, "floor": ARM, "missing_experts": [], "remark": ""}
MEASURE_REAL = "measure_real/own-0000000-0000024"
FACTS |= {"leading_metric": "fd", "few_images": {}}


def table(home) -> list[dict[str, str]]:
    """Rows of the sweep's table."""
    return list(csv.DictReader((home.root / "table.csv").read_text().splitlines()))


def finish_unit(unit, run):
    """Make a unit complete, a report with figures, unless it is."""
    if not manifest.read(run.unit(unit.key)):
        finish([unit], run)
        results = {"catalog": COUNTED, "report": FACTS}.get(unit.stage, {})
        manifest.publish(run.unit(unit.key), replace(manifest.read(run.unit(unit.key)), results=results))


def finish_all(sweep_runs):
    """Make units complete where they are made."""
    for sweep_run in sweep_runs:
        for unit in sweep_run.units:
            finish_unit(unit, sweep_run.run)


def test_everything_is_submitted_once_stage_after_stage_and_the_table_last(sweep, sweep_runs):
    queue, said = sweep(1.0, 2.0, 3.0)
    submitted = names(queue)
    assert len(submitted) == len(set(submitted)) == len(sweep_runs(1.0)[0].units) + 2 * len(FINAL) + 1
    by_setting = [array.keys for array in queue.submitted if not array.keys[0].endswith(MEASURE_REAL)]
    finals = [[f"guidance={value}/{key}" for value in (1.0, 2.0, 3.0)] for key in FINAL]
    assert by_setting[-5:] == [*finals, ["table/all"]]
    assert len(queue.checked) == len(queue.submitted) - 1, "one of each shape, before anything is submitted"
    *others, table = queue.submitted
    assert set(table.after) == {str(101 + number) for number in range(len(others))}
    assert "3 settings, 32 units, shared units counted once: 0 complete, 32 to run" in said


def test_every_job_waits_for_what_its_unit_reads_in_whichever_run_that_is_made(sweep, home, sweep_runs):
    queue, _ = sweep(1.0, 2.0)
    job_of = jobs(queue)
    (_, second) = found = sweep_runs(1.0, 2.0)
    assign_owners(found, read_index(home))
    for unit in second.units:
        after = queue.submitted[job_of[second.name(unit.key)] - 101].after
        assert {str(job_of[second.name(key)]) for key in unit.inputs} <= set(after), unit.key


def test_specs_lie_in_the_runs_that_make_the_units_and_what_is_known_in_one_json_file(sweep, home):
    sweep(1.0, 2.0)
    elements = [spec for path in sorted(home.jobs.glob("*.json")) for spec in read_element_map(path)]
    found = {(run.root.name, spec.key): spec for spec, run in map(read_spec, elements)}
    assert found["guidance=2.0", DRAW].experiment["evaluate"]["guidance"] == 2.0
    assert found["guidance=1.0", DRAW].fingerprint_settings["evaluate.guidance"] == 1.0
    assert ("guidance=2.0", "train/monolith") not in found and ("home", "table/all") in found
    index = json.loads((home.root / "sweep.json").read_text())
    assert index["name"] == "trial" and index["current"] == ["guidance=1.0", "guidance=2.0"]
    assert index["settings"]["guidance=2.0"] == {"evaluate.guidance": 2.0}
    assert len(index["owners"]) == 28 and set(index["owners"].values()) == {"guidance=1.0", "guidance=2.0"}


def test_again_is_a_no_op_while_it_runs_and_when_it_is_complete(sweep, home, sweep_runs):
    queue, _ = sweep(1.0, 2.0)
    before = home.journal.read_bytes()
    again, said = sweep(1.0, 2.0, alive=names(queue), state="pending")
    assert again.submitted == [] and "29 units are in the queue or running; nothing new to submit" in said
    finish_all(sweep_runs(1.0, 2.0))
    last, said = sweep(1.0, 2.0)
    assert last.submitted == [] and "everything is complete (2 settings); nothing to submit" in said
    assert home.journal.read_bytes() == before


def test_added_values_are_all_that_runs_and_removed_ones_stay_on_disk(sweep, home, sweep_runs):
    sweep(1.0, 2.0)
    finish_all(sweep_runs(1.0, 2.0))
    queue, _ = sweep(0.5, 2.0)
    assert names(queue) == [*(f"guidance=0.5/{key}" for key in FINAL), "table/all"]
    finish_all(sweep_runs(0.5, 2.0))
    queue, said = sweep(0.5, 2.0)
    assert queue.submitted == [] and "left out, for the file names them no more: guidance=1.0" in said
    assert {row["label"] for row in table(home)} == {"guidance=0.5", "guidance=2.0"}
    assert manifest.read(home.root / "guidance=1.0" / "report")


def test_a_table_that_waits_is_submitted_anew_behind_what_is_added(sweep):
    first, _ = sweep(1.0)
    queue, _ = sweep(1.0, 2.0, alive=names(first), state="pending")
    assert names(queue) == [*(f"guidance=2.0/{key}" for key in FINAL), "table/all"]
    assert queue.gone == [f"{100 + len(first.submitted)}_0"]
    old_report = str(100 + len(first.submitted) - 1)
    assert {old_report, "101", "102", "103", "104"} <= set(queue.submitted[-1].after)


def test_a_first_setting_that_lacks_its_report_only_does_not_send_reports_before_trainings(sweep, sweep_runs, write):
    values = {"grid": {"experts.training.images": [64, 128]}}
    sweep(values=values)
    first, _ = sweep_runs(**values)
    finish_all([first])
    (first.run.unit(REPORT) / "manifest.json").unlink()
    queue, _ = sweep(values=values)
    assert jobs(queue)["images=64/report/all"] == jobs(queue)["images=128/report/all"]
    assert all(int(job) < 101 + number for number, array in enumerate(queue.submitted) for job in array.after)


def test_arrays_are_as_long_as_the_cluster_takes_and_share_the_throttle(sweep):
    values = [round(1 + number / 10, 1) for number in range(10)]
    queue, _ = sweep(*values, limits=Limits(max_array=4))
    sizes = [len(array.keys) for array in queue.submitted if array.keys[0].endswith(DRAW)]
    assert sum(sizes) == 10 and max(sizes) <= 4 and len(sizes) == 3
    for array in queue.submitted:
        if array.keys[0].endswith("/report/all"):
            waited = {name for name, job in jobs(queue).items() if str(job) in array.after}
            assert {name.replace("report/all", DRAW) for name in array.keys} <= waited


def test_some_settings_can_be_submitted_alone_and_what_they_share_counts_once(sweep, sweep_runs, home):
    queue, _ = sweep(1.0, 2.0, 3.0, options=["--only", "evaluate.guidance=2.0", "--only", "evaluate.guidance=3.0"])
    evaluated = {name for name in names(queue) if name.endswith("/report/all")}
    assert evaluated == {"guidance=2.0/report/all", "guidance=3.0/report/all"}
    first = [name for name in names(queue) if name.startswith("guidance=1.0/")]
    assert "guidance=1.0/train/monolith" in first, "what all settings share is made where the first setting has it"
    finish_all(sweep_runs(1.0, 2.0, 3.0))
    for stage in ("draw", "report"):
        shutil.rmtree(home.root / "guidance=1.0" / stage)
    _, said = sweep(1.0, 2.0, 3.0, options=["--only", "evaluate.guidance=2.0"])
    assert "all requested units are complete; 4 units were not requested" in said
    queue, _ = sweep(1.0, 2.0, 3.0, options=["--only", "guidance=1.0"])
    assert {name.split("/")[0] for name in names(queue)} == {"guidance=1.0", "table"}, "a setting by its label"
    _, said = sweep(1.0, options=["--only", "guidance=1.0", "--only", "evaluate.guidance=2.0"], fails=True)
    assert "no setting of" in said, "a label and a value of a key both count"


def test_settings_that_the_sweep_does_not_have_cannot_be_asked_for(sweep, home):
    for only in ("evaluate.steps=3", "evaluate.guidance"):
        _, said = sweep(1.0, 2.0, options=["--only", only], fails=True)
        assert f"--only {only}: needs a setting's label, or KEY=VALUE with a key of" in said
        assert "sweep.yaml: evaluate.guidance" in said
    _, said = sweep(1.0, 2.0, options=["--only", "evaluate.guidance=4.0"], fails=True)
    assert "no setting of" in said and not home.root.exists()


def test_an_experiment_that_changed_is_refused_by_setting_and_key(sweep, sweep_runs, home):
    sweep(1.0, 2.0)
    finish_all(sweep_runs(1.0, 2.0))
    _, said = sweep(1.0, 2.0, values={"set": {"experts.model.width": 32}}, fails=True)
    assert "setting guidance=1.0: train/monolith was made with other settings (experts.model.width: 16 -> 32" in said
    assert "another --dir" in said


def test_a_folder_that_holds_something_else_is_left_alone(sweep, home):
    sweep(1.0)
    before = (home.root / "sweep.json").read_bytes()
    queue, said = sweep(1.0, 2.0, values={"name": "other"}, fails=True)
    assert "contains the sweep 'trial'" in said and queue.submitted == []
    assert (home.root / "sweep.json").read_bytes() == before
    (home.root / "experiment.json").write_text("{}")
    assert "contains a run" in sweep(1.0, fails=True)[1]


def test_nobody_knows_what_runs_when_the_scheduler_is_silent(sweep):
    sweep(1.0)
    queue, said = sweep(1.0, 2.0, alive=None, fails=True)
    assert "the scheduler does not answer" in said and queue.submitted == []
    _, said = sweep(1.0, 2.0, alive=None, options=["--table"])
    assert "states are from the files alone" in said and "shard/train-000 missing" in said


def test_what_continues_a_sweep_follows_what_was_submitted(sweep, home, tmp_path, monkeypatch):
    (tmp_path / "slurm").mkdir()
    mine = tmp_path / "slurm/python_env.sh.j2"
    mine.write_text("# as submitted\n")
    monkeypatch.chdir(tmp_path)
    # A bare name finds the experiment here.
    write_source(tmp_path / "experiments/images")
    write_experiment(tmp_path).rename(tmp_path / "experiments/base.yaml")
    sweep(1.0, 2.0, values={"experiment": "base"}, limits=Limits(free_jobs=6, reason="its limit"), room=6)
    rest = continuation.read_remaining(home)
    assert rest.experiment == str(tmp_path / "experiments/base.yaml")
    # Another folder finds no experiment by that name, and a pull has changed the template.
    mine.write_text("# another one\n")
    (tmp_path / "experiments").rename(tmp_path / "moved")
    continued = Taking(home)
    monkeypatch.setattr("hpcddm.commands.submit.create_launcher", lambda site, where: continued)
    moved = replace(rest, experiment=str(tmp_path / "moved/base.yaml"))
    assert command.submit_settings(rest.sweep, str(home.site("north")), home.root, False, False, False, rest=moved) == 0
    assert {*names(continued)} == {*rest.units, "table/all"}
    assert continued.template_parts == stored_parts(home) == {"slurm/python_env.sh.j2": "# as submitted\n"}
    assert continuation.read_remaining(home) is None


def test_the_table_shows_what_is_there_and_why_the_rest_is_not(sweep, home, sweep_runs):
    queue, _ = sweep(1.0, 2.0, 3.0)
    first, second, _ = sweep_runs(1.0, 2.0, 3.0)
    finish_all([first])
    write_attempt(second.run, DRAW, 1, ended={"outcome": "failed", "reason": "out of memory"})
    _, said = sweep(1.0, 2.0, 3.0, options=["--table"], alive=[f"guidance=3.0/{DRAW}"])
    assert "1.50 / 0.2500 / 75.0%" in said and "2.50 / 0.2500 / 75.0%" in said
    assert f"{DRAW} failed: out of memory" in said and f"{DRAW} running" in said
    rows = {(row["label"], row["arm"]): row for row in table(home)}
    assert rows["guidance=1.0", "top-1"]["fd"] == "2.5" and rows["guidance=1.0", "top-1"]["state"] == "complete"
    assert rows["guidance=2.0", ""]["state"].startswith(f"{DRAW} failed") and rows["guidance=3.0", ""]["fd"] == ""
    assert (home.root / "table.png").read_bytes().startswith(b"\x89PNG")
    assert len(names(queue)) == 33 and len(Journal(home.journal).submissions()) == len(queue.submitted)
