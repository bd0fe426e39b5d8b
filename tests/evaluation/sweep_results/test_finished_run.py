"""Sweeps of a finished run: only what evaluates is made, and the run stays as it is."""

import csv
import shutil
from dataclasses import replace

import pytest
import yaml

from hpcddm.errors import UserError
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.links import FINISHED_RUN, link_above, require_no_links
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.stored_results import EVALUATIONS
from hpcddm.runs.sweep_index import read_index
from hpcddm.runs.unit_keys import REPORT
from tests import whole_runs
from tests.evaluation.sweep_results.taking import names
from tests.foreign_cases import tree_digest
from tests.helpers import COUNTED, FINAL, finish, hpcddm

STEPS = {"grid": {"evaluate.steps": [3, 4]}}


@pytest.fixture
def done(write, tmp_path, monkeypatch):
    """A finished run of the tiny experiment with 64 images of each split, beside a sweep's file."""
    for split in COUNTED["splits"].values():
        monkeypatch.setitem(split, "samples", 64)
    write()
    run = RunDir(tmp_path / "done")
    experiment = with_content_hashes(load_experiment(str(tmp_path / "tiny.yaml")), run)
    run.root.mkdir()
    store_experiment(experiment, run)
    finish(plan_units(experiment), run)
    return run


def of_run(**keys):
    """Keys of the file of a sweep of the finished run."""
    return {"experiment": None, "run": "done"} | keys


def test_only_what_evaluates_is_submitted_and_all_else_leads_to_the_run(sweep, done, home):
    before = tree_digest(done.root)
    queue, said = sweep(values=of_run(**STEPS))
    assert sorted(names(queue)) == sorted([*(f"steps={n}/{key}" for n in (3, 4) for key in FINAL), "table/all"])
    assert f"2 settings, {len(plan_units_of(done)) + len(FINAL)} units" in said
    setting = RunDir(home.root / "steps=3")
    for unit in plan_units_of(done):
        is_taken = unit.key not in FINAL
        assert setting.unit(unit.key).exists() == is_taken and link_above(setting, unit.key) is None, unit.key
        assert not is_taken or setting.unit(unit.key).samefile(done.unit(unit.key)), unit.key
    assert tree_digest(done.root) == before


def plan_units_of(run):
    """The units of the finished run."""
    return plan_units(load_experiment(str(run.experiment)))


def test_the_settings_of_the_run_itself_are_all_there(sweep, done):
    own = load_experiment(str(done.experiment)).evaluate.steps
    _, said = sweep(values=of_run(grid={"evaluate.steps": [own]}), options=["--dry-run"])
    assert "everything is complete (1 settings)" in said


@pytest.mark.parametrize("key", ["train/expert-01", "router/all", "cluster/all"])
def test_a_run_that_misses_data_or_a_training_is_completed_first(sweep, done, home, key):
    shutil.rmtree(done.unit(key))
    queue, said = sweep(values=of_run(**STEPS), fails=True)
    assert f"{done.root}: {key} is not complete: complete the run first; next: hpcddm submit {done.root}/exp" in said
    assert not queue.submitted and not home.root.exists()


def test_an_evaluation_that_the_run_misses_is_made_by_the_sweep(sweep, done):
    shutil.rmtree(done.root / "draw")
    shutil.rmtree(done.root / "report")
    own = load_experiment(str(done.experiment)).evaluate.steps
    queue, _ = sweep(values=of_run(grid={"evaluate.steps": [own]}))
    assert sorted(names(queue)) == sorted([*(f"steps={own}/{key}" for key in FINAL), "table/all"])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (of_run(grid={"seed": [1, 2]}), "seed: with run, only keys of evaluate.* can vary; to train again"),
        (
            of_run(set={"experts.training.images": 8}, **STEPS),
            "experts.training.images: with run, only",
        ),
        (of_run(experiment="tiny.yaml", **STEPS), "needs either experiment or run"),
        (of_run(run=None, **STEPS), "needs either experiment or run"),
        (of_run(run="nowhere", **STEPS), "run: nowhere: no run here, neither relative to "),
        (of_run(grid={"evaluate.snapshot": [7]}), "evaluate.snapshot"),
        (of_run(tune={"images": 8}, grid={"evaluate.images": [8]}), "evaluate.images: with tune, the sweep sets it"),
        ({"tune": {"images": 8}} | STEPS, "tune: needs run, a finished run"),
        (of_run(tune={"images": 0}, **STEPS), "tune.images"),
        (of_run(tune={"images": 19}, **STEPS), "tune: evaluate.images: 19 are too few"),
        (
            of_run(tune={"images": 20}, set={"evaluate.batch": 5}, **STEPS),
            "evaluate.images: 24 is not a multiple of evaluate.batch 5",
        ),
        (
            of_run(set={"evaluate.first_sample": 48}, **STEPS),
            "its samples up to 72 need as many train images, and the run has 64",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_its_key(sweep, done, keys, expected):
    assert expected in sweep(values=keys, fails=True)[1]


def test_tune_chooses_by_the_first_samples_and_reports_by_the_samples_after_these(sweep, done, home):
    tuned = of_run(tune={"images": 20}, **STEPS) | {"set": {"evaluate.batch": 4}}
    queue, said = sweep(values=tuned)
    assert {name for name in names(queue) if "draw/" in name} == {f"steps={n}/draw/0000000-0000020" for n in (3, 4)}
    assert "the same command evaluates the best one of every arm on other samples" in said
    figures = {"steps=3": {"monolith": 1.0, "top-1": 5.0}, "steps=4": {"monolith": 2.0, "top-1": 6.0}}
    report(home, "steps=3", figures["steps=3"])
    assert not [name for name in names(sweep(values=tuned)[0]) if "reported" in name], "one of the two is not complete"
    report(home, "steps=4", figures["steps=4"])
    shutil.rmtree(home.root / "jobs")
    drawn = [name for name in names(sweep(values=tuned)[0]) if "draw/" in name and "reported" in name]
    assert drawn == ["steps=3,reported=monolith/draw/0000020-0000044"]
    index = read_index(home)
    assert index.settings["steps=3,reported=top-1"] == {
        "evaluate.steps": 3,
        "evaluate.images": 24,
        "evaluate.first_sample": 20,
        "reported": "top-1",
    }
    report(home, "steps=3,reported=monolith", {"monolith": 1.5, "top-1": 5.5})
    # What reports the other arm is drawn with the same keys, and leads there.
    sweep(values=tuned, options=["--table"])
    rows = list(csv.DictReader((home.root / "table.csv").read_text().splitlines()))
    assert [(row["arm"], row["fd"]) for row in rows if row["reported"] and row["arm"] != "floor"] == [
        ("monolith", "1.5"),
        ("top-1", "5.5"),
    ]
    assert (home.root / "tradeoffs.png").exists()


def report(home, label, figures):
    """Make all units of a setting complete, with these distances in its report."""
    run = RunDir(home.root / label)
    units = plan_units(with_absolute_paths(stored_experiment(run), run))
    finish([unit for unit in units if not manifest.read(run.unit(unit.key))], run)
    arms = {arm: {"fd": value, "recall": 0.5, EVALUATIONS: 3} for arm, value in figures.items()}
    results = {"arms": arms, "floor": {"fd": 0.5}, "leading_metric": "fd"}
    manifest.publish(run.unit(REPORT), replace(manifest.read(run.unit(REPORT)), results=results))


def test_a_run_that_was_moved_is_found_again_by_the_same_command(sweep, done, home, tmp_path):
    sweep(values=of_run(**STEPS))
    done.root.rename(tmp_path / "moved")
    sweep(values=of_run(run="moved", **STEPS))
    assert (home.root / FINISHED_RUN).resolve() == (tmp_path / "moved").resolve()
    assert (home.root / "steps=3/train/monolith").exists()


def test_a_folder_in_the_place_of_the_link_is_left_and_named(sweep, done, home):
    (home.root / FINISHED_RUN).mkdir(parents=True)
    said = sweep(values=of_run(**STEPS), fails=True)[1]
    assert f"{home.root / FINISHED_RUN} must be a link to the sweep's run; remove it" in said


def test_what_a_sweep_takes_from_a_run_is_neither_written_nor_handed_on(sweep, done, home):
    sweep(values=of_run(**STEPS))
    setting = RunDir(home.root / "steps=3")
    for arguments in (["export", setting.root, "train/expert-01"], ["publish", setting.root]):
        refused = hpcddm(*arguments, "--output", home.root / "out")
        assert refused.exit_code == 1 and "name the run with that folder instead" in refused.output, refused.output
    with pytest.raises(UserError, match="this sweep takes it from"):
        require_no_links(setting, "train/expert-01")
    require_no_links(setting, "draw/0000000-0000024")
    for name in ("other", "run"):
        (setting.root / "expert_lists").unlink(missing_ok=True)
        (setting.root / "expert_lists").symlink_to(f"../{name}/expert_lists")
        (home.root / "other").unlink(missing_ok=True)
        (home.root / "other").symlink_to(done.root)
        assert (link_above(setting, "expert_lists/all") is None) == (name == FINISHED_RUN)


TUNED = of_run(tune={"images": 20}, **STEPS) | {"set": {"evaluate.batch": 4}}


@pytest.fixture
def tuned(sweep, home):
    """A sweep with `tune` of which all settings are complete, and nothing is reported yet."""
    sweep(values=TUNED)
    for label in ("steps=3", "steps=4"):
        report(home, label, {"monolith": 1.0, "top-1": 5.0})
    shutil.rmtree(home.root / "jobs")


def test_reports_that_are_outdated_choose_nothing(done, tuned, sweep):
    again = manifest.read(done.unit("train/expert-01"))
    manifest.publish(done.unit("train/expert-01"), replace(again, outputs=[]))
    assert not [name for name in names(sweep(values=TUNED)[0]) if "reported" in name]


def test_what_is_not_chosen_again_is_said_to_be_so(done, tuned, sweep):
    sweep(values=TUNED)
    more = TUNED | {"grid": {"evaluate.steps": [3, 4, 5]}}
    _, said = sweep(values=more, options=["--table"])
    assert "not chosen, or not yet again: steps=3,reported=monolith" in said and "left out" not in said
    assert "remove a setting that cannot succeed from" in said


def test_a_setting_has_the_figures_of_a_whole_run_of_its_own(run, tmp_path):
    before = tree_digest(run)
    sweep = {"name": "after", "run": str(run), "grid": {"evaluate.guidance": [1.5]}}
    (tmp_path / "after.yaml").write_text(yaml.safe_dump(sweep))
    folder = tmp_path / "sweep"
    said = whole_runs.hpcddm("sweep", tmp_path / "after.yaml", "--site", "embedded", "--dir", folder)
    assert said.returncode == 0, said.stdout + said.stderr
    assert tree_digest(run) == before
    stages = {name.split("/")[1] for one in Journal(folder / "journal.jsonl").submissions() for name in one.units}
    assert stages == {"draw", "measure", "compare", "report"}
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert {row["arm"] for row in rows} >= {"monolith", "top-1"} and {row["evaluate.guidance"] for row in rows} == {
        "1.5"
    }

    own = [*whole_runs.TINY, "evaluate.guidance=1.5"]
    for stage in ("draw", "measure", "compare", "report"):
        shutil.rmtree(run / stage)
    said = whole_runs.hpcddm("submit", "quickstart", "--site", "embedded", "--run-dir", run, *own)
    assert said.returncode == 0, said.stdout + said.stderr
    metrics = "report/metrics.json"
    assert (folder / "guidance=1.5" / metrics).read_bytes() == (run / metrics).read_bytes()
