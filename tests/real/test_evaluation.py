"""What samples and their figures depend on: neither batches, nor units, nor requeues."""

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import hpcddm
from hpcddm.runs.files import EVALUATION
from tests.whole_runs import TINY
from tests.whole_runs import hpcddm as run_verb

IMAGES, STORED_BATCH = 200, 50


def stored_images(run: Path, arm: str, unit: str = "draw/0000000-0000200") -> np.ndarray:
    with h5py.File(run / unit / EVALUATION) as file:
        return file[arm]["images"][:]


def test_samples_drawn_again_are_those_of_the_evaluation(finished):
    again = hpcddm.open(finished, batch=STORED_BATCH).sample(IMAGES, "top-2")
    assert (again == stored_images(finished, "top-2")).all()


@pytest.mark.parametrize("batch", [7, 64, 256])
def test_another_batch_changes_noise_and_condition_of_no_image(finished, batch):
    """Kernels for other shapes round otherwise: then one value of 1000 at most differs, by one level."""
    drawn = hpcddm.open(finished, batch=batch).sample(IMAGES, "top-2").astype(int)
    differences = np.abs(drawn - stored_images(finished, "top-2"))
    assert differences.max() <= 1 and (differences > 0).mean() <= 1e-3


def test_an_extractor_that_joins_measures_samples_that_are_there(tmp_path, finished, two_ranks):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = json.loads((run / "report/metrics.json").read_text())
    words = [
        "quickstart",
        "--site",
        two_ranks,
        "--run-dir",
        run,
        *TINY,
        "evaluate.extractors=[{name: pixels, size: 4}]",
    ]
    done = run_verb("submit", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    made = set(re.findall(r"(\w+)/\S+ complete \(", done.stdout))
    assert made == {"measure_real", "reference_statistics", "measure", "compare", "report"}
    metrics = json.loads((run / "report/metrics.json").read_text())
    for arm, values in before["arms"].items():
        assert values.items() <= metrics["arms"][arm].items(), "the short keys stay those of the run's own extractor"
        assert "fd@pixels-4" in metrics["arms"][arm] and "fid" not in metrics["arms"][arm]


def test_another_run_copies_measurements_of_the_same_real_images(tmp_path, finished, two_ranks):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    shutil.rmtree(run / "measure_real")
    done = run_verb(
        *("submit", "quickstart", "--site", two_ranks, "--run-dir", run, *TINY, f"evaluate.reference={finished}")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("own-0000000-0000200", "own-0000200-0000400"):
        made = json.loads((run / "measure_real" / name / "manifest.json").read_text())
        assert made["results"]["copied"] is True
        files = [folder / "measure_real" / name / "measurements.h5" for folder in (run, finished)]
        assert files[0].read_bytes() == files[1].read_bytes()
