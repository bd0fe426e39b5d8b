"""The YAML of a sweep: what it multiplies, what it calls each setting, and what it refuses before anything runs."""

import pytest

from hpcddm.config.sweep import MAX_LABEL, label_of, short_names
from hpcddm.errors import ConfigError
from hpcddm.loading.load_sweep import read_sweep


@pytest.fixture
def read(write):
    """Read a sweep of the tiny experiment."""
    return lambda **values: read_sweep(str(write(**values)))


def test_settings_are_the_product_of_grid_zip_and_list(read):
    sweep = read(
        grid={"evaluate.guidance": [1.0, 2.0]},
        zip={"evaluate.steps": [1, 2], "seed": [5, 6]},
        list=[{"experts.condition_dropout": 0.2}, {"router.model.width": 32, "evaluate.units": 3}],
    )
    assert len(sweep.settings) == 8
    experiment = sweep.experiments["guidance=2.0,steps=2,seed=6,width=32,units=3"]
    assert (experiment.evaluate.guidance, experiment.evaluate.steps, experiment.seed) == (2.0, 2, 6)
    assert (experiment.router.model.width, experiment.evaluate.units) == (32, 3)
    assert {one.seed for one in sweep.experiments.values() if one.evaluate.steps == 1} == {5}


def test_set_holds_for_all_settings_and_settings_do_not_leak_into_each_other(read):
    sweep = read(set={"evaluate.steps": 7}, list=[{"experts.training.learning_rate": 0.5}, {"experts.model.width": 32}])
    first, second = sweep.experiments.values()
    assert first.evaluate.steps == second.evaluate.steps == 7
    assert (first.experts.training.learning_rate, first.experts.model.width) == (0.5, 16)
    assert (second.experts.training.learning_rate, second.experts.model.width) == (0.01, 32)


def test_the_experiment_and_its_images_are_found_from_the_file_wherever_one_stands(read, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (experiment,) = read(grid={"seed": [3]}).experiments.values()
    assert experiment.data.source.folder == str(tmp_path / "images")


WRONG = {
    "an unknown key": ({"grid": {"evaluate.guidence": [1.0, 2.0]}},
        "setting guidence=1.0: evaluate.guidence: unknown key; valid keys: .*guidance"),
    "a wrong value of one setting": ({"grid": {"evaluate.steps": [4, -1]}},
        "setting steps=-1: evaluate.steps: .*greater than 0"),
    "settings that cannot go together": ({"zip": {"cluster.experts": [2, 3], "seed": [0, 1]}},
        "tiny.yaml:[0-9]+ .with .*setting experts=3,seed=1.: experts.training.batch: 16 images cannot be divided"),
    "a key that leads through a value": ({"grid": {"evaluate.steps.more": [1]}}, "setting more=1: steps holds a value"),
    "lists of different length": ({"zip": {"seed": [1, 2], "evaluate.steps": [3]}}, "seed has 2, evaluate.steps has 1"),
    "a key in two places": ({"grid": {"seed": [1]}, "set": {"seed": 2}}, "seed: is in set and in grid"),
    "nothing that varies": ({"set": {"seed": 2}}, "needs grid, zip or list"),
    "an empty list of values": ({"grid": {"seed": []}}, "grid.seed: .*at least 1"),
    "an unknown key of the sweep": ({"gird": {"seed": [1]}}, "gird: unknown key; valid keys: name, .*grid, zip, list"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_one_line_that_names_the_setting_and_the_key(read, case):
    values, words = WRONG[case]
    with pytest.raises(ConfigError, match=words) as error:
        read(**values)
    assert "\n" not in str(error.value) and "sweep.yaml" in str(error.value)


def test_settings_that_mean_the_same_run_once(read):
    sweep = read(list=[{"evaluate.guidance": 2}, {"evaluate.guidance": 2.0}, {}, {"seed": 0}])
    assert list(sweep.settings) == ["guidance=2", "as-is"]
    assert sweep.folded == [("guidance=2.0", "guidance=2"), ("seed=0", "as-is")]


def test_labels_are_short_where_last_parts_differ_and_longer_where_they_do_not():
    keys = ["experts.training.images", "router.training.images", "evaluate.steps", "steps"]
    assert list(short_names(keys).values()) == keys
    assert short_names(["evaluate.guidance", "seed"]) == {"evaluate.guidance": "guidance", "seed": "seed"}


def test_labels_are_names_of_folders_whatever_the_values_are(read):
    value = {"name": "dit", "width": 16, "depth": 1, "heads": 1, "patch": 4}
    assert label_of({"experts.model": value}, {"experts.model": "model"}) == "model=dit+16+1+1+4"
    assert label_of({"a": "../x y%\n", "b": [True, None]}, {"a": "a", "b": "b"}) == "a=.._x_y__,b=true+null"
    long = [label_of({"key": "x" * 300 + str(number)}, {"key": "key"}) for number in range(2)]
    assert all(len(label) == MAX_LABEL for label in long) and long[0] != long[1]


def test_settings_whose_labels_would_be_the_same_get_different_ones(read):
    sweep = read(list=[{"data.source.folder": "a b"}, {"data.source.folder": "a_b"}])
    first, second = sweep.settings
    assert first == "folder=a_b" and second.startswith("folder=a_b-") and len(second) == len("folder=a_b-") + 8
