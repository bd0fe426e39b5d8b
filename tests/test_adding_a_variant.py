"""The files on the pages docs/variants-*.md, in a folder of the user's own, run a whole experiment."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpcddm.config import variants
from hpcddm.errors import ConfigError
from hpcddm.runs import manifest, provenance
from hpcddm.runs.run_dir import RunDir
from tests.helpers import CLASSES, EXPERIMENT, REPOSITORY, SIDE, changed
from tests.whole_runs import hpcddm

PAGES = sorted((REPOSITORY / "docs").glob("variants-*.md"))
TEXT = "\n".join(page.read_text() for page in PAGES)
KINDS = {
    "encoder": ["encoders/image/row_means.py"],
    "source": ["sources/npz.py"],
    "space": ["diffusion/spaces/standardised.py"],
    "condition": ["diffusion/conditions/coarse_class.py"],
    "clustering": ["clustering/quantiles.py"],
    "objective": ["diffusion/objectives/middle_flow.py"],
    "metric": ["evaluation/metrics/mean_shift.py"],
    "routing strategy": ["sampling/strategies/runner_up.py"],
    "solver": ["sampling/solvers/ralston.py"],
    "stage": ["stages/data/brightness.py", "stages/data/brightness_job.py"],
}


def files_of(text: str) -> dict[str, str]:
    """Return the files of the pages by their place: the Python block that follows a line which ends with the name."""
    return {name: text for name, text in re.findall(r"`([a-z_/]+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)}


def write_variants(folder: Path) -> Path:
    for name, text in files_of(TEXT).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def write_images(folder: Path) -> None:
    """Noise on a ramp that is another one in every class."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split, per_class in (("train", 20), ("heldout", 8)):
        labels = np.arange(CLASSES).repeat(per_class)
        ramps = np.linspace(20, 40 + 40 * labels, SIDE).T[:, :, None]
        images = (ramps + rng.integers(0, 20, (len(labels), SIDE, SIDE))).astype(np.uint8)
        np.savez(folder / f"{split}.npz", images=images, labels=labels)


@pytest.fixture
def experiment(tmp_path):
    """An experiment that names every variant of the pages, by the YAML that they show."""
    values = changed(EXPERIMENT, data__shards=1)
    for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL):
        for section, settings in yaml.safe_load(text).items():
            values = changed(values, **{f"{section}__{key}": value for key, value in settings.items()})
    write_images(tmp_path / "images")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "mine.yaml"


def test_the_pages_have_one_of_each_kind():
    assert sorted(files_of(TEXT)) == sorted(name for names in KINDS.values() for name in names)


def test_all_files_of_the_pages_run_an_experiment_from_a_users_own_folder(tmp_path, experiment):
    own = write_variants(tmp_path / "variants")
    run = RunDir(tmp_path / "run")
    done = hpcddm(
        "submit", experiment, "--site", "embedded", "--run-dir", run.root, timeout=900, HPCDDM_VARIANTS=str(own)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    metrics = json.loads((run.unit("report/all") / "metrics.json").read_text())
    assert {"top-1", "runner-up"} < set(metrics["arms"])
    assert all(arm["mean_shift"] > 0 for arm in metrics["arms"].values())
    assert "mean shift" in (run.unit("report/all") / "index.html").read_text().lower()
    brightness = manifest.read(run.unit("brightness/all")).results["brightness"]
    assert len(brightness) == 2 and brightness[0] < brightness[1]
    settings = manifest.read(run.unit("train/expert-00")).settings
    assert settings["experts.objective.name"] == "middle_flow" and settings["data.space.mean"] == -0.4
    assert settings["data.condition.groups"] == [0, 0, 1, 1]
    (code,) = [folder for folder in run.code.iterdir() if folder.is_dir()]
    for name, text in files_of(TEXT).items():
        assert (code / "hpcddm" / name).read_text() == text
    again = hpcddm("submit", experiment, "--site", "embedded", "--run-dir", run.root, HPCDDM_VARIANTS=str(own))
    assert again.returncode == 0 and "nothing" in again.stdout, again.stdout + again.stderr
    without = hpcddm("status", run.root)
    assert without.returncode != 0 and "npz" in without.stderr and "HPCDDM_VARIANTS" in without.stderr


def test_the_same_files_in_the_package_are_planned_and_validated(tmp_path, experiment):
    package = tmp_path / "copy" / "hpcddm"
    shutil.copytree(REPOSITORY / "hpcddm", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "slurm", tmp_path / "copy" / "slurm")
    write_variants(package)
    command = [sys.executable, "-m", "hpcddm.cli", "submit", experiment, "--site", "embedded", "--dry-run"]
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [*command, "--run-dir", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=package.parent,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "brightness/all" in done.stdout


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's own folder, empty."""
    (tmp_path / "own").mkdir()
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.mark.parametrize(
    "place, message",
    [
        ("encoders/image/pixels.py", "the package has a file of this name"),
        ("encoder/mine.py", "hpcddm has no package encoder/"),
        ("mine.py", "hpcddm has no package"),
        ("stages/training/encode.py", "stages/data/encode.py has this name, too"),
        ("stages/training/table_job.py", "stages/table_job.py has this name, too"),
        ("stages/mine.py", "a stage needs stages/GROUP/NAME.py"),
        ("pipeline/mine.py", "a stage needs stages/GROUP/NAME.py"),
    ],
)
def test_a_file_in_no_room_or_of_the_packages_name_is_refused(own, place, message):
    (own / place).parent.mkdir(parents=True, exist_ok=True)
    (own / place).write_text("")
    with pytest.raises(ConfigError, match=message):
        variants.user_files()


def test_a_stage_in_two_groups_is_refused(own):
    for group in ("data", "training"):
        (own / "stages" / group).mkdir(parents=True)
        (own / "stages" / group / "mine.py").write_text("")
    with pytest.raises(ConfigError, match="stages/data/mine.py has this name, too"):
        variants.user_files()


@pytest.mark.parametrize("reads, message", [("('nothing',)", "reads nothing: unknown"), ("('mine',)", "reads mine")])
def test_a_stage_that_reads_an_unknown_one_or_itself_is_refused_in_one_line(tmp_path, reads, message):
    own = write_variants(tmp_path / "own")
    data = own / "stages" / "data"
    text = (data / "brightness.py").read_text().replace('("catalog", "expert_lists")', reads)
    (data / "mine.py").write_text(text.replace('"brightness"', '"mine"'))
    (data / "mine_job.py").write_text((data / "brightness_job.py").read_text())
    done = hpcddm("submit", "quickstart", "--dry-run", "--run-dir", tmp_path / "run", HPCDDM_VARIANTS=str(own))
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="is not a folder"):
        variants.user_files()


def test_own_files_are_part_of_the_code_that_jobs_run(own):
    before = provenance.code_digest(provenance.digests(provenance.code_files()))
    (own / "encoders" / "image").mkdir(parents=True, exist_ok=True)
    (own / "encoders" / "image" / "mine.py").write_text("MINE = 1\n")
    variants._own_files.cache_clear()
    files = provenance.code_files()
    assert files["hpcddm/encoders/image/mine.py"] == b"MINE = 1\n"
    assert provenance.code_digest(provenance.digests(files)) != before
