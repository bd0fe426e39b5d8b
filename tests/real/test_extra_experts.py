"""An expert that joins a finished run: its list and its training, and nothing else of the run is touched."""

import json
import re

import yaml
from PIL import Image

from hpcddm.data.run_samples import open_catalog
from hpcddm.runs.run_dir import RunDir
from tests.helpers import REPOSITORY
from tests.whole_runs import TINY, hpcddm

NEW = ["expert_lists/hats", "train/hats"]


def test_an_expert_joins_a_finished_run_and_nothing_else_is_made_again(run, two_ranks, tmp_path):
    keys = open_catalog(RunDir(run), "train").texts("key").gather(range(0, 600, 3))
    (tmp_path / "hats.txt").write_text("".join(f"{key}\n" for key in keys))
    values = yaml.safe_load((REPOSITORY / "experiments/quickstart.yaml").read_text())
    values["data"]["source"]["folder"] = str(REPOSITORY / "experiments" / values["data"]["source"]["folder"])
    values["experts"]["extra"] = [{"name": "hats", "list": "hats.txt", "images": 256, "batch": 32}]
    (tmp_path / "with-hats.yaml").write_text(yaml.safe_dump(values))
    arguments = ("submit", tmp_path / "with-hats.yaml", "--site", two_ranks, "--run-dir", run, *TINY)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.rglob("manifest.json")}

    done = hpcddm(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"(\S+/\S+) complete \(", done.stdout) == NEW
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert {path.parent for path in run.rglob("manifest.json")} - {path.parent for path in before} == {
        run / key for key in NEW
    }
    made = json.loads((run / "train/hats/manifest.json").read_text())
    assert list(made["inputs"]) == ["expert_lists/hats#hats"] and "cluster.experts" not in made["settings"]
    assert (made["results"]["samples"], made["results"]["images"]) == (200, 256)

    again = hpcddm(*arguments)
    assert again.returncode == 0 and "nothing to submit" in again.stdout
    rows = json.loads(hpcddm("status", run, "--json").stdout)
    assert {row["state"] for row in rows["units"]} == {"complete"} and NEW[1] in {row["unit"] for row in rows["units"]}
    assert (rows["expert_images"], rows["expert_images_total"]) == (2048 + 256, 2048 + 256)
    assert NEW[1] in hpcddm("cost", run).stdout
    drawn = hpcddm("sample", run, "--strategy", "hats", "--num-images", 8, "--output", tmp_path / "hats.png")
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    with Image.open(tmp_path / "hats.png") as picture:
        assert picture.size[0] > 28
