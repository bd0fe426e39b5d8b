"""What becomes no sample is told by submit, plan and status, and is in the manifests, in a file, and on the page."""

import json

import pytest
import yaml

from hpcddm.commands.planning import benchmark
from hpcddm.commands.submit_messages import data_lines
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.evaluation.report.run_summary import _of_left_out
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CATALOG
from tests.data.oddities import HEIC, class_folder, encoded, write_tar
from tests.helpers import EXPERIMENT, changed, hpcddm
from tests.stages.routes import Bench

BASE = {"data__image_size": 16, "data__channels": 3, "data__shards": 1, "evaluate__images": 20, "evaluate__batch": 10}
WITHOUT_CLASSES = {"data__num_classes": None, "data__condition": {"name": "none"}, "evaluators__classifier": None}
WITHOUT_CLASSES |= {"experts__condition_dropout": 0.0}


@pytest.fixture
def folder(tmp_path):
    """Two classes, with some of what other people have beside pictures."""
    root = class_folder(tmp_path / "data", count=60)
    (root / "@eaDir").mkdir()
    (root / "@eaDir" / "index.db").write_bytes(b"")
    (root / "bird").mkdir()
    for number in range(25):
        (root / "cat" / f"{number:03d}.txt").write_text("a cat")
    (root / "cat" / "late.jfif").write_bytes(encoded(99, "JPEG"))
    return root


def of_folder(root):
    source = {"name": "image_folder", "folder": str(root), "heldout": {"share": 0.4}}
    return BASE | {"data__source": source, "data__num_classes": 2}


def written(tmp_path, changes):
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(changed(EXPERIMENT, **changes)))
    return path


EXPECTED = [
    "known junk: 1 (@eaDir/index.db)",
    "folders without a picture, which are not classes: 1 (bird/)",
    "files .txt: 25 (cat/000.txt, cat/001.txt, cat/002.txt, ...)",
]


def submit(tmp_path, changes, *options):
    """What a submission that makes nothing ends with and says."""
    path = written(tmp_path, changes)
    done = hpcddm("submit", path, "--site", "embedded", "--dry-run", "--run-dir", tmp_path / "run", *options)
    return done.exit_code, done.output


def test_submit_and_plan_say_what_is_passed_over(tmp_path, folder, monkeypatch):
    code, output = submit(tmp_path, of_folder(folder))
    assert code == 0, output
    said = [line for line in output.splitlines() if line.startswith("passed over")]
    assert said == [f"passed over in train   {line}" for line in EXPECTED]
    monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda *question: 60.0)
    plan = ("plan", tmp_path / "case.yaml", "--site", "embedded", "--run-dir", tmp_path / "run")
    said = [line for line in hpcddm(*plan).output.splitlines() if line.startswith("passed over")]
    assert said == [f"passed over   {line}" for line in EXPECTED]
    counts = json.loads(hpcddm(*plan, "--json").output)["passed_over"]
    reasons = [line.partition(":")[0] for line in EXPECTED]
    assert {reason: one["count"] for reason, one in counts.items()} == dict(zip(reasons, (1, 1, 25), strict=True))
    assert counts["files .txt"]["first"] == [f"cat/{number:03d}.txt" for number in range(20)]


def made(tmp_path, changes):
    """A run with the stages shard and catalog."""
    bench = Bench(tmp_path, "run", **changes)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage == "shard"), CATALOG)
    return bench


def items_of(bench):
    files = sorted(bench.run.root.glob("shard/*/passed_over.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_manifests_and_the_page_have_the_counts_and_a_file_has_all(tmp_path, folder):
    bench = made(tmp_path, of_folder(folder) | {"data__shards": 3})
    results = manifest.read(bench.run.unit(CATALOG)).results
    said = [f"passed over   {line}" for line in EXPECTED]
    assert results["broken"] == 0 and data_lines(bench.run, {CATALOG})[:3] == said
    assert _of_left_out(results) == [("Passed over", "; ".join(EXPECTED))]
    rows = items_of(bench)
    assert len(rows) == 27 and {row["name"] for row in rows} >= {"cat/024.txt", "bird/", "@eaDir/index.db"}
    samples = sum(len(open_catalog(bench.run, split)) for split in ("train", "heldout"))
    files = sum(path.is_file() for path in folder.rglob("*"))
    assert samples == 121 and samples + sum(one["count"] for one in results["passed_over"].values()) == files + 1


def test_a_lost_picture_is_broken_up_to_the_budget(tmp_path, folder):
    (folder / "cat" / "photo.heic").write_bytes(HEIC)
    (folder / "cat" / "gone.png").symlink_to("nowhere")
    with pytest.raises(UserError) as refused:
        made(tmp_path, of_folder(folder))
    said = str(refused.value)
    assert said.startswith("data.max_broken_share: 2 of 123 samples are broken, more than 0.001 of them: ")
    assert "pictures in HEIC, counted as broken: 1 (cat/photo.heic)" in said
    assert "links that lead nowhere (No such file or directory), counted as broken: 1 (cat/gone.png)" in said
    bench = made(tmp_path, of_folder(folder) | {"data__max_broken_share": 0.05})
    results = manifest.read(bench.run.unit(CATALOG)).results
    assert results["broken"] == 2 and "broken 2 " in data_lines(bench.run, {CATALOG})[0]
    assert ("Broken samples, left out", "2") in _of_left_out(results)


def tar_of_pictures(tmp_path, **options):
    """Write one tar; return settings that read its folder."""
    write_tar(tmp_path / "data" / "0.tar", [(f"{place:02d}.png", encoded(place)) for place in range(60)], **options)
    source = {"name": "webdataset", "folder": str(tmp_path / "data"), "heldout": {"share": 0.4}}
    return BASE | WITHOUT_CLASSES | {"data__source": source}


def test_a_tar_without_its_end_is_refused_by_submit_and_read_by_one_key(tmp_path):
    changes = tar_of_pictures(tmp_path, has_end=False)
    code, output = submit(tmp_path, changes)
    assert code == 1 and "0.tar: a torn or foreign tar (probably cut: the zeros are missing" in output
    assert submit(tmp_path, changes, "data.source.require_end=false")[0] == 0


@pytest.mark.parametrize("target", ["nowhere.tar", "lost.tar"])
def test_a_link_to_no_tar_is_named(tmp_path, target):
    changes = tar_of_pictures(tmp_path)
    (tmp_path / "data" / "lost.tar").symlink_to(target)
    code, output = submit(tmp_path, changes)
    assert code == 1 and "data/lost.tar leads to no file; fetch the file, or remove this" in output
