"""Whole runs on data as they are on other people's disks, through the command line."""

import hashlib

import pytest
import yaml

from hpcddm.runs.run_dir import RunDir
from tests import whole_runs
from tests.helpers import EXPERIMENT, changed
from tests.sources import ilsvrc
from tests.sources.test_huggingface import FIXTURES

ROWS = {"data__image_size": 16, "data__channels": 3, "data__num_classes": 3, "data__shards": 2}
ROWS |= {"evaluate__images": 21, "evaluate__batch": 7, "evaluate__steps": 2}


def finish(folder, source, **changes):
    """Run the tiny experiment on a source; return the SHA-256 of its experts' weights."""
    folder.mkdir(exist_ok=True)
    values = changed(EXPERIMENT, data__source=source, **(ROWS | changes))
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    done = whole_runs.hpcddm("submit", folder / "tiny.yaml", "--site", "embedded", "--run-dir", folder / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir(folder / "run")
    assert (run.root / "report" / "index.html").is_file()
    weights = [run.unit(f"train/expert-{number:02d}") / "weights.safetensors" for number in range(2)]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in weights]


@pytest.mark.long
def test_the_same_images_give_the_same_weights_whatever_files_hold_them(tmp_path):
    found = {
        kind: finish(tmp_path / kind, {"name": "huggingface", "folder": str(FIXTURES / kind), "caption": "text"})
        for kind in ("hub", "small_groups")
    }
    copied = {"data__read_from": {"name": "expert_copy"}}
    source = {"name": "huggingface", "folder": str(FIXTURES / "small_groups"), "caption": "text"}
    found["copies"] = finish(tmp_path / "copies", source, **copied)
    assert found["hub"] == found["small_groups"] == found["copies"]


@pytest.mark.long
def test_imagenet_as_it_unpacks_trains_in_place(tmp_path):
    ilsvrc.write_images(tmp_path / "images", is_flat=True, of_class=6)
    ilsvrc.write_solution(tmp_path / "images")
    ilsvrc.write_mapping(tmp_path / "images")
    source = {"name": "imagenet", "folder": str(tmp_path / "images"), "heldout": {"share": 0.5}}
    finish(
        tmp_path / "run",
        source,
        data__num_classes=None,
        data__condition={"name": "none"},
        evaluators__classifier=None,
        evaluate__images=20,
        evaluate__batch=10,
    )
    assert not list((tmp_path / "run" / "run").glob("shard/*/*.tar"))
