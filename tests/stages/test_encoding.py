"""Features of a network with the user's weights, from the stage shard to the lists; what ends a unit in one line."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from hpcddm.config import paths, variants
from hpcddm.data import run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import UserError
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.stages.data import latents_job
from tests.encoders import networks
from tests.helpers import CLUSTERING, hpcddm, write_experiment, write_source
from tests.stages.routes import Bench, write_images

SMALL = {"cluster__clustering": CLUSTERING, "cluster__experts": 2}
FIRST = "encode/train-000"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A folder with a tiny DINOv2 that sees 28 pixels a side."""
    folder = tmp_path_factory.mktemp("weights") / "dinov2"
    networks.dinov2(folder)
    size = '{"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}'
    (folder / "preprocessor_config.json").write_text(size)
    return folder


@pytest.fixture
def bench(tmp_path, network):
    """A function that prepares a run with the experiment as submit stores it."""
    write_images(tmp_path / "images", train=60, heldout=200)
    folder = Path(shutil.copytree(network, tmp_path / "dinov2"))

    def prepare(name="run", **own):
        encoder = {"name": "dinov2", "weights": {"folder": str(folder)}, "width": 24} | own
        bench = Bench(tmp_path, name, **(SMALL | {"encode__encoder": encoder}))
        bench.settings = with_relative_paths(with_content_hashes(bench.settings, bench.run), bench.run)
        return bench

    return prepare


def changed_weights(folder, change):
    """Change one tensor of the weights."""
    stored = load_file(folder / "model.safetensors")
    change(stored["layernorm.weight"])
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_network_by_its_folder_makes_the_lists(bench):
    run = bench()
    run.make_data()
    own = open_catalog(run.run, "train")
    stored = run_samples.features(own)
    assert stored.dtype == np.float16 and stored.item_shape == (24,)
    settings = paths.make_absolute(run.settings, run.run.root).encode.encoder
    again = variants.create(ImageEncoder, settings).encode(CatalogReader(own).images(range(60)))
    np.testing.assert_allclose(stored.gather(range(60)), again, rtol=1e-3, atol=1e-4)
    sizes = manifest.read(run.run.unit("expert_lists/all")).results["sizes"]
    assert sum(sizes) == 60 and min(sizes) > 0


@pytest.fixture
def encoded(bench):
    """A function that makes all before the features, changes something, and then encodes one range."""

    def encode(change=lambda: None, **own):
        run = bench(**own)
        keys = [unit.key for unit in plan_units(run.settings)]
        run.make(*(key for key in keys if key.startswith(("shard/", "catalog/"))))
        change()
        run.make(FIRST)

    return encode


def test_features_that_a_column_cannot_hold_name_encoder_and_sample(encoded, tmp_path):
    changed_weights(tmp_path / "dinov2", lambda values: values.fill_(3e5))
    said = "those of sample train-[0-9]+ reach [0-9.e+]+, and a column holds float16"
    with pytest.raises(UserError, match=f"encode.encoder: dinov2: features are not finite: {said}"):
        encoded()


def test_weights_that_are_not_finite_are_refused_by_name(encoded, tmp_path):
    changed_weights(tmp_path / "dinov2", lambda values: values.fill_(float("nan")))
    with pytest.raises(UserError, match=r"weights of dinov2 cannot be loaded \(.* holds values that are not numbers\)"):
        encoded()


def test_an_encoder_for_gpus_ends_at_once_on_a_cpu(encoded, monkeypatch):
    monkeypatch.setattr("hpcddm.encoders.gpu.visible_gpus", lambda: 0)
    with pytest.raises(UserError, match="encoder dinov2 needs a GPU with precision fp16, and this unit has none"):
        encoded(precision="fp16")


def test_an_autoencoder_by_its_folder_makes_a_column_of_latents(tmp_path):
    write_images(tmp_path / "images", train=60, heldout=200)
    space = {"name": "autoencoder", "autoencoder": networks.diffusers_kl(tmp_path / "autoencoder")}
    patches = {"experts__model__patch": 7, "router__model__patch": 7}
    run = Bench(tmp_path, "run", data__channels=3, data__space=space, **patches)
    run.settings = with_relative_paths(with_content_hashes(run.settings, run.run), run.run)
    units = {unit.key: unit for unit in plan_units(run.settings)}
    run.make(*(key for key in units if key.startswith(("shard/", "catalog/"))))
    unit = run.unit("latents/train-000")
    latents_job.run(paths.make_absolute(run.settings, run.run.root), unit)
    (path,) = unit.folder.glob("*.h5")
    with h5py.File(path) as file:
        assert {values.shape for values in file.values()} == {(30, 2, 4, 7, 7)}
    assert len(units[unit.key].fingerprint_settings["data.space.autoencoder.weights.content_hash"]) == 64
    # Trainings count it by what the scale's unit says of the space.
    assert units["train/monolith"].parts["latents/scale"] == "space"


REFUSED = {
    "missing": (
        {"folder": "nowhere"},
        {},
        "nowhere: weights of dinov2: no such folder; copy config.json and",
    ),
    "not fetched": ({"hub": "facebook/dinov2-large"}, {}, "dinov2-large@main: weights of dinov2: no such folder; on a"),
    "another hash": ({"folder": "dinov2", "content_hash": "0" * 64}, {}, "SHA-256 over config.json, model.safetensors"),
    "another width": ({"folder": "dinov2"}, {"width": 1024}, "width is 1024 and config.json has hidden_size 24"),
    "another folder": ({"folder": "images"}, {}, "images: weights of dinov2: config.json, model.safetensors or "),
}


@pytest.mark.parametrize("weights, own, said", REFUSED.values(), ids=REFUSED)
def test_submit_refuses_weights_in_one_line(tmp_path, network, monkeypatch, weights, own, said):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    shutil.copytree(network, tmp_path / "dinov2")
    write_source(tmp_path / "images")
    path = write_experiment(tmp_path, encode__encoder={"name": "dinov2", "weights": weights, "width": 24} | own)
    done = hpcddm("submit", path, "--site", "embedded", "--run-dir", tmp_path / "run", "--dry-run")
    assert done.exit_code == 2 and done.output.startswith("error: encode.encoder: ") and said in done.output
    assert done.output.count("\n") == 1 and not (tmp_path / "run").exists()


def test_the_same_weights_elsewhere_make_nothing_stale(tmp_path, network):
    write_source(tmp_path / "images")
    contents = []
    for place in ("dinov2", "elsewhere/dinov2"):
        shutil.copytree(network, tmp_path / place)
        encoder = {"name": "dinov2", "weights": {"folder": str(tmp_path / place)}, "width": 24}
        experiment = load_experiment(str(write_experiment(tmp_path, encode__encoder=encoder)))
        units = plan_units(with_content_hashes(experiment, RunDir(tmp_path / "run")))
        contents.append([(unit.key, unit.fingerprint_settings) for unit in units])
    assert contents[0] == contents[1]
    assert len(dict(contents[0])["encode/train-000"]["encode.encoder.weights.content_hash"]) == 64
