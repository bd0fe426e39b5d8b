"""Python on a finished run: the code of the pages, and the same images and velocities as the verb and the sampler."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

import hpcddm
from hpcddm.errors import ConfigError, UserError
from hpcddm.evaluation.report.image_grids import grid
from hpcddm.randomness import keyed
from tests import whole_runs
from tests.helpers import REPOSITORY


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/objects.md"])
def test_the_code_of_the_page_runs(page, finished, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/quickstart").symlink_to(finished)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    names: dict = {}
    exec(block, names)
    if page == "docs/objects.md":
        assert names["inputs"] == ["catalog/all", "expert_lists/all"] and len(names["units"]) > 20
    else:
        assert names["images"].shape == (8, 28, 28, 1) and names["distance"] > 0
    assert page != "docs/python.md" or names["denoised"].shape == (8, 28, 28, 1)
    assert page == "README.md" or names["velocity"].shape == (8, 1, 28, 28) and names["velocity"].isfinite().all()


def test_python_draws_what_the_verb_draws(finished, tmp_path):
    output = tmp_path / "grid.png"
    options = ("--strategy", "top-1", "--class", "dress", "--num-images", 4, "--seed", 7, "--steps", 3)
    done = whole_runs.hpcddm("sample", finished, "--output", output, *options)
    assert done.returncode == 0, done.stderr
    opened = hpcddm.open(finished, steps=3)
    images = opened.sample(4, strategy="top-1", classes=[3], seed=7)
    assert opened.class_names[3] == "Dress" and f"{output}: 4 images of Dress, top-1, 3 euler steps" in done.stdout
    assert np.array_equal(np.asarray(Image.open(output)), np.asarray(grid(images, columns=8)))


def test_one_euler_step_along_the_velocity_is_a_sample_of_one_step(finished):
    run = hpcddm.open(finished, steps=1, guidance=1.5)
    noise = keyed.gaussian(0, "initial", range(6), run.space.shape)
    condition = run.condition.of_classes([2] * 6)
    x0 = run.space.finish(noise - run.velocity(noise, 1.0, condition, "top-2"))
    assert np.array_equal(run.space.to_images(x0), run.sample(6, "top-2", classes=[2]))


def test_samples_are_read_by_number_and_metrics_by_name(finished):
    run = hpcddm.open(finished)
    train = run.data()
    assert len(train) == 14_000 and train.images([0, 13_999]).shape == (2, 28, 28, 1)
    assert set(train.clusters(range(200)).tolist()) <= {0, 1, 2, 3} and len(run.class_names) == 10
    assert run.metrics["arms"].keys() >= {"monolith", "top-1"}
    assert run.ensemble("top-1") is run.ensemble("top-1") and run.ensemble("monolith").router is None


def test_what_is_wrong_is_named(finished, tmp_path, run):
    with pytest.raises(ConfigError, match="no run here"):
        hpcddm.open(tmp_path)
    with pytest.raises(ConfigError, match=r"hpcddm.open: stepz: unknown key"):
        hpcddm.open(finished, stepz=3)
    opened = hpcddm.open(run)
    with pytest.raises(ConfigError, match="strategy nonsense: unknown; valid names"):
        opened.sample(1, "nonsense")
    with pytest.raises(ConfigError, match="split test: valid names: train, heldout"):
        opened.data("test")
    (run / "train/expert-01/manifest.json").unlink()
    (run / "report/manifest.json").unlink()
    with pytest.raises(UserError, match="train/expert-01 is missing"):
        opened.sample(1, "top-1")
    with pytest.raises(UserError, match="report/all is missing; next: hpcddm status"):
        _ = hpcddm.open(run).metrics
    assert torch.is_tensor(opened.velocity(torch.zeros(1, 1, 28, 28), 0.5, opened.condition.null(1), "expert-0"))
