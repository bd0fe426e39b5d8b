"""Extractors with public weights: experiments load without the weights, and runs know them when they are gone."""

import shutil

import pytest
import yaml

from hpcddm.errors import ConfigError, UserError
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.run_defaults import load_for_run
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.encoders import networks
from tests.helpers import SIDE, tiny, write_source

PIXELS = {"name": "pixels", "size": 4}
IMAGES = "0" * 64
"""A hash of images that nobody reads here."""


def labels(experiment):
    return {unit.key.split("/")[1] for unit in plan_units(experiment) if unit.stage == "compare"}


def hashed(folder, *extractors):
    return with_content_hashes(tiny(folder, evaluate__extractors=[*extractors]), RunDir(folder / "run"), IMAGES)


@pytest.fixture
def dinov2(tmp_path):
    return networks.dinov2(tmp_path / "weights")


def test_an_experiment_loads_before_its_weights_are_fetched(tmp_path):
    hub = {"name": "dinov2", "size": 224, "weights": {"hub": "somebody/dinov2"}}
    assert tiny(tmp_path, evaluate__extractors=[hub]).evaluate.extractors[0].name == "dinov2"


def test_a_run_knows_its_extractors_where_weights_are_gone_and_the_list_has_changed(tmp_path, dinov2):
    run, filled = RunDir(tmp_path / "run"), hashed(tmp_path, PIXELS, dinov2)
    assert labels(filled) == {"own", "pixels-4", "dinov2-w24-p14-256-crop-224-bicubic-aa"}
    store_experiment(with_relative_paths(filled, run), run)
    shutil.rmtree(tmp_path / "weights")
    again = hashed(tmp_path, dinov2)
    assert labels(again) == labels(filled) - {"pixels-4"}
    assert again.evaluate.extractors[0].weights == filled.evaluate.extractors[1].weights
    with pytest.raises(ConfigError, match=r"evaluate.extractors.0: .*weights"):
        hashed(tmp_path, dinov2 | {"pooling": "mean"})


def test_two_of_one_label_are_refused_even_where_one_is_renamed(tmp_path, dinov2):
    with pytest.raises(ConfigError, match=r"evaluate.extractors.1: its figures would have the name"):
        tiny(tmp_path, evaluate__extractors=[PIXELS, PIXELS])
    both = hashed(tmp_path, dinov2, dinov2 | {"weights": dinov2["weights"] | {"label": "another"}})
    with pytest.raises(UserError, match="evaluate.extractors: figures of two of them would have one name"):
        plan_units(both)


def test_the_own_extractor_can_be_left_out_of_a_run_and_come_back(tmp_path):
    """The run has kept defaults of an extractor, then that there is none; the settings of today count."""
    run, path = tmp_path / "run", tmp_path / "mine.yaml"
    data = {"source": {"name": "idx", "folder": str(write_source(tmp_path / "images"))}, "image_size": SIDE}
    path.write_text(yaml.safe_dump({"data": data | {"channels": 1, "condition": {"name": "none"}}}))
    listed, none = "evaluate.extractors=[{name: pixels, size: 4}]", "evaluators.extractor=null"

    def extractor(*overrides):
        experiment, folder, defaults = load_for_run(str(path), overrides, run)
        defaults.store(folder)
        return experiment.evaluators.extractor

    run.mkdir()
    assert extractor() is not None
    assert extractor(listed, none) is None
    shutil.rmtree(run)
    run.mkdir()
    assert extractor(listed) is None, "images without classes need no extractor of their own then"
    assert extractor(listed, "evaluators.extractor.training.images=6400").training.images == 6400
    assert extractor() is not None
