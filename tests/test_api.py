from dataclasses import replace

import pytest
import torch

import hpcddm
from hpcddm import api
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import atomic
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, METRICS
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.stored_results import check_numbers
from hpcddm.runs.unit_keys import CATALOG, LATENT_SCALE, REPORT, expert_key
from hpcddm.sampling import trained_model
from tests.helpers import LATENT_SPACE, finish, tiny


@pytest.fixture
def run(tmp_path):
    return api.Run(RunDir(tmp_path), load_experiment("quickstart"))


@pytest.fixture
def requests(run, monkeypatch):
    """What would be drawn."""
    asked = []
    monkeypatch.setattr(run, "_request_conditions", lambda request, is_oracle: asked.append(request.classes))
    monkeypatch.setattr(trained_model, "draw", lambda *given: None)
    monkeypatch.setattr(api.Run, "space", None)
    monkeypatch.setattr(run, "ensemble", lambda strategy: None)
    return asked


def test_a_class_goes_by_its_name_or_its_number_and_one_that_the_networks_do_not_know_is_refused(run, requests):
    for label, number in (("Dress", 3), ("ankle boot", 9), ("3", 3), (7, 7)):
        run.sample(2, classes=[label, 0])
        assert requests.pop() == [number, 0]
    for label in (-1, 10, 99):
        with pytest.raises(ConfigError, match=f"classes: {label}: unknown; 10 classes: .* or 0 to 9"):
            run.sample(2, classes=[3, label])
    with pytest.raises(ConfigError, match=r"classes: Boots: unknown; nearest: Ankle boot.*; 10 classes: T-shirt/top, "):
        run.sample(2, classes=["Boots"])


def test_numbers_that_name_other_classes_are_names_everywhere(run, requests, monkeypatch, tmp_path):
    names = sorted(map(str, range(1, 13)))
    monkeypatch.setattr(api, "stored_class_names", lambda *run: names)
    run.sample(2, classes=[10, "2"])
    assert requests == [[names.index("10"), names.index("2")]]
    with pytest.raises(ConfigError, match="classes: 0: unknown"):
        run.sample(2, classes=[0])
    text = {"name": "text", "encoder": {"name": "words", "width": 8}, "prompts": ["a"] * 4}
    groups = {"name": "labels", "groups": [[0, 1], [2, 3]]}
    for key, changes, columns in (
        ("cluster.clustering.groups", {"cluster__clustering": groups}, []),
        ("data.filter", {}, ["label"]),
        ("data.condition.prompts", {"data__condition": text}, []),
    ):
        experiment = tiny(tmp_path, **changes)
        check_numbers(experiment, ["0", "1", "2", "3"], columns)
        check_numbers(experiment, [], columns)
        with pytest.raises(UserError, match=f"{key}: class 3 is called '2', and numbers of classes may mean either"):
            check_numbers(experiment, ["0", "1", "10", "2"], columns)
    check_numbers(tiny(tmp_path), ["0", "1", "10", "2"])


def test_the_states_of_all_units_are_read_once_for_all_velocities(run, monkeypatch):
    reads, loads = [], []
    monkeypatch.setattr(api, "missing_experts", lambda settings, folder, units: reads.append(units) or units[-1:])
    monkeypatch.setattr(api.load_ensemble, "load_ensemble", lambda *arguments: loads.append(arguments[2]))
    for strategy in ("top-1", "top-2", "monolith", "top-1"):
        run.ensemble(strategy)
    assert len(reads) == len(loads) == 2
    assert loads[0] == reads[0][:-1]


@pytest.fixture
def reported(tmp_path):
    """Make all units of a run complete; returns it with figures in its report."""

    def make(**changes):
        run, experiment = RunDir(tmp_path / "run"), tiny(tmp_path, **changes)
        store_experiment(experiment, run)
        finish(plan_units(experiment), run)
        atomic.write_json(run.output(REPORT, METRICS), {"arms": {"top-1": {"fd": 1.5}}})
        return run

    return make


def test_table_and_curves_are_those_of_the_complete_units(reported):
    run = reported()
    arm = {"kid": 0.1, "fd": 1.5, "fd@own": 1.5, "images": 24, "train_flops": 9}
    metrics = {"leading_metric": "kid", "arms": {"top-1": arm}, "floor": {"fd": 1}}
    atomic.write_json(run.output(REPORT, METRICS), metrics)
    opened = hpcddm.open(run.root)
    assert opened.table() == {"top-1": {key: arm[key] for key in arm if "@" not in key}, "floor": {"fd": 1}}
    assert list(opened.table()["top-1"]) == ["kid", "fd", "images", "train_flops"], "the leading metric is first"
    assert opened.curves() == {}
    unit = run.unit(expert_key(1))
    atomic.write_json(unit / CURVE, [[16, 1.5], [32, 0.5]])
    made = manifest.read(unit)
    manifest.publish(unit, replace(made, outputs=[*made.outputs, *manifest.describe_outputs(unit, [CURVE])]))
    curves = {key: curve.tolist() for key, curve in opened.curves().items()}
    assert curves == {expert_key(1): [[16, 1.5], [32, 0.5]]}


def test_figures_of_networks_that_are_made_anew_are_refused_also_where_they_were_read_before(reported):
    run = reported()
    opened = hpcddm.open(run.root, steps=5)
    assert opened.metrics["arms"]["top-1"]["fd"] == 1.5, "other steps of the sampler make no report stale"
    set_aside(run, expert_key(1))
    for one in (opened, hpcddm.open(run.root)):
        with pytest.raises(UserError, match=r"report/all is waiting \(draw/.* is not complete\); next: hpcddm "):
            one.metrics  # noqa: B018  A property that raises.


def test_figures_of_other_networks_than_there_are_now_are_refused(reported):
    run = reported()
    folder = run.unit(expert_key(1))
    (folder / "output.bin").write_bytes(b"of another training")
    manifest.publish(folder, replace(manifest.read(folder), outputs=manifest.describe_outputs(folder, ["output.bin"])))
    with pytest.raises(UserError, match=r"report/all is outdated \(train/expert-01 has changed since\)"):
        hpcddm.open(run.root).metrics  # noqa: B018


def test_samples_classes_and_a_space_that_are_made_anew_are_refused(reported):
    run = reported(data__space=LATENT_SPACE)
    set_aside(run, LATENT_SCALE)
    with pytest.raises(UserError, match="latents/scale is missing"):
        hpcddm.open(run.root).space.to_images(torch.zeros(1, 4, 4, 4))
    assert hpcddm.open(run.root).class_names == ["0", "1", "2", "3"]
    set_aside(run, CATALOG)
    for read in (lambda opened: opened.data(), lambda opened: opened.class_names):
        with pytest.raises(UserError, match="catalog/all is missing"):
            read(hpcddm.open(run.root))
