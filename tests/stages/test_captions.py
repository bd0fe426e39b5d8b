"""Pictures with captions and without classes, through all stages: training, routing, drawing by prompt, measuring."""

import json

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

from hpcddm.data import evaluation_set
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import EXTRACTOR
from hpcddm.sampling import draw_images
from tests import pictures
from tests.helpers import CLUSTERING
from tests.whole_runs import hpcddm

TRAINING = {"images": 1024, "batch": 32, "learning_rate": 0.004, "warmup_images": 64, "ema_halflife_images": 64}
TRAINING |= {"precision": "fp32"}
NETWORK = {"width": 32, "depth": 2, "heads": 2, "patch": 4}
CNN = {"name": "small_cnn", "width": 16, "features": 32}
LONGER = {"images": 8192, "batch": 64, "learning_rate": 0.002}
EXPERIMENT = {
    "name": "emoji",
    "data": {
        "source": {"name": "image_folder", "folder": "pictures"},
        "image_size": 16,
        "shards": 1,
        "condition": {"name": "text", "encoder": {"name": "words", "width": 32}, "tokens": 6, "cached": True},
    },
    "encode": {"encoder": {"name": "pixels", "size": 8}},
    "cluster": {"experts": 2, "clustering": CLUSTERING},
    "experts": {
        "model": {"name": "dit", "text_modulation": "mean"} | NETWORK,
        "objective": {"name": "flow_matching"},
        "training": TRAINING,
    },
    "monolith": {"enabled": False},
    "router": {"model": {"name": "router_dit"} | NETWORK, "training": TRAINING},
    "evaluators": {"extractor": {"model": CNN, "training": TRAINING | LONGER, "shift": 2}},
    "evaluate": {"images": 40, "batch": 20, "steps": 4, "guidance": 2.0, "strategies": ["top-1", "oracle"]},
    "distill": {"teacher": "router", "share": 0.25},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on 256 emoji, 64 more held out."""
    folder = tmp_path_factory.mktemp("captions")
    pictures.write_folder(folder / "pictures")
    (folder / "emoji.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    done = hpcddm("submit", folder / "emoji.yaml", "--site", "embedded", "--run-dir", folder / "run", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return RunDir(folder / "run")


def asked_for(count):
    """The captions of the first images of the evaluation set, which goes round."""
    heldout = pictures.captions()[:: pictures.EVERY]
    chosen = evaluation_set.choose_random(len(heldout), EXPERIMENT["evaluate"]["images"], "heldout")
    return [heldout[number] for number in np.resize(chosen, count)]


def test_experts_router_and_student_learn_from_the_words(run):
    for key in ("train/expert-00", "train/expert-01", "router/all", "distill/student"):
        weights = load_file(run.unit(key) / "weights.safetensors")
        # Zero at first: what the words give to the image.
        assert weights["trunk.blocks.0.cross.out.weight"].abs().max() > 1e-3, key
        assert ("trunk.embed_pooled.2.weight" in weights) == (key != "router/all")
        assert "trunk.prompts" not in weights and "trunk.embed_class.weight" not in weights


def test_every_caption_was_encoded_once(run):
    for key in ("encode_captions/all", "encode_captions/000"):
        assert manifest.read(run.unit(key)).results["captions"] == len(set(pictures.captions()))
    inputs = manifest.read(run.unit("train/expert-00")).inputs
    assert not [key for key in inputs if key.startswith("encode_captions")], "the same captions, wherever encoded"


def test_the_extractor_without_classes_has_learned_something(run):
    assert manifest.read(run.unit(EXTRACTOR)).results["heldout_accuracy"] > 0.3, "four turns, symmetric ones among them"


def test_samples_have_the_captions_of_the_evaluation_set_and_are_measured_without_classes(run):
    metrics = json.loads((run.unit("report/all") / "metrics.json").read_text())
    assert set(metrics["arms"]) == {"student", "top-1", "oracle"}
    assert set(metrics["unavailable_metrics"]) == {"agreement", "diversity"} and metrics["classifier"] is None
    for figures in (*metrics["arms"].values(), metrics["floor"]):
        assert np.isfinite([figures[key] for key in ("fd", "kid", "precision", "coverage")]).all()
        assert not {"agreement", "diversity"} & set(figures)
    page = (run.unit("report/all") / "index.html").read_text()
    assert all(f">{caption}<" in page for caption in asked_for(20))
    assert "Classifier agrees is left out: it compares classes" in page


def test_without_a_prompt_images_have_the_captions_of_the_evaluation_set(run):
    experiment = stored_experiment(run)
    condition = conditions.create_condition(experiment.data, run.output)
    told = draw_images.request_conditions(experiment, run, condition, draw_images.ImageRequest(45), is_oracle=True)
    assert torch.equal(told.conditions, conditions.create_condition(experiment.data).of_prompts(asked_for(45)))
    clusters = told.clusters
    assert len(clusters) == 45 and set(clusters.tolist()) == {0, 1} and (clusters[:5] == clusters[40:]).all()


def drawn(run, output, *arguments):
    done = hpcddm("sample", run.root, "--output", output, "--num-images", 4, "--steps", 2, *arguments)
    assert done.returncode == 0, done.stderr
    return np.asarray(Image.open(output))


def test_a_prompt_changes_what_is_drawn_from_the_same_noise(run, tmp_path):
    wanted = {"apple": ["--prompt", "red apple"], "again": ["--prompt", "Red apple!"], "bus": ["--prompt", "bus"]}
    made = {name: drawn(run, tmp_path / f"{name}.png", "--guidance", 4, *more) for name, more in wanted.items()}
    assert (made["apple"] == made["again"]).all()
    assert (made["apple"] != made["bus"]).any()
    assert drawn(run, tmp_path / "all.png").any()
    refused = hpcddm("sample", run.root, "--output", tmp_path / "x.png", "--class", "1")
    assert refused.returncode == 2 and "--class: the networks of this run see captions, not classes" in refused.stderr
