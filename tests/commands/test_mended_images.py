"""What a user changes in the images after the catalog has refused them is seen by the command that was advised."""

import json
from dataclasses import replace

import pytest
import yaml

from hpcddm.data.run_samples import open_catalog
from hpcddm.jobs import entry
from hpcddm.jobs.spec import read_spec
from hpcddm.jobs.stopping import StopFlag
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.loading import content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.job import JobId
from hpcddm.runs.run_dir import RunDir
from tests.data.oddities import class_folder, encoded, write_tar
from tests.evaluation.sweep_results.test_verb import FACTS
from tests.helpers import EXPERIMENT, changed, finish, hpcddm

SETTINGS = {"data__image_size": 16, "data__channels": 3, "data__num_classes": 2}
SHARED = {"heldout": {"share": 0.4}}
JPEG = encoded(7, "JPEG")
TORN, ROTTEN = JPEG[:200], JPEG[:200] + bytes(len(JPEG) - 200)


class Here(LocalLauncher):
    """This machine: images are read in this process, and what is made of them ends at once."""

    def __init__(self, site, run):
        super().__init__(site, run)
        self.made = []

    def states(self, submissions):
        return {}

    def submit(self, array, token, script):
        (path,) = array.specs
        spec, run = read_spec(path)
        self.made.append(spec.key)
        if spec.stage in ("shard", "catalog"):
            entry._run(path, StopFlag())
        else:
            experiment = entry.Experiment.model_validate(spec.experiment)
            finish([unit for unit in plan_units(experiment) if unit.key == spec.key], run)
            folder, results = run.unit(spec.key), FACTS if spec.stage == "report" else {}
            manifest.publish(folder, replace(manifest.read(folder), results=results))
        return JobId("1")

    def is_running(self, job):
        return False


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Run all units as `Here` does."""
    monkeypatch.setattr("hpcddm.launch.local.driver.POLL_SECONDS", 0.0)
    monkeypatch.setattr("hpcddm.jobs.unit_inputs.PAUSES", ())
    monkeypatch.setattr(entry, "_prepare_environment", lambda spec: None)
    monkeypatch.setattr("hpcddm.jobs.attempt.Attempt.redirect_output", lambda attempt, rank: None)
    for verb in ("retry", "submit"):
        monkeypatch.setattr(f"hpcddm.commands.{verb}.create_launcher", Here)


def write(tmp_path, source, **changes):
    path = tmp_path / "case.yaml"
    settings = SETTINGS | {"data__source": source} | changes
    path.write_text(yaml.safe_dump(changed(EXPERIMENT, **settings)))
    return path


def submit(tmp_path, path, *options, code=0):
    done = hpcddm("submit", path, "--site", "embedded", "--run-dir", tmp_path / "run", "--until", "catalog", *options)
    assert done.exit_code == code, done.output
    return done.output


def keys(run):
    """The keys of the samples of both splits."""
    catalogs = [open_catalog(run, split) for split in ("train", "heldout")]
    return {key for one in catalogs for key in one.texts("key").gather(range(len(one)))}


def names(folder):
    """The keys that the pictures of a folder have."""
    return {f"{picture.parent.name}-{picture.name.replace('.', '_')}" for picture in folder.glob("*/*")}


@pytest.fixture
def folder(tmp_path):
    return class_folder(tmp_path / "data", count=60)


def of_folder(folder):
    return {"name": "image_folder", "folder": str(folder), **SHARED}


MENDED = {
    "removed": lambda file: file.unlink(),
    "replaced": lambda file: file.write_bytes(encoded(3, "JPEG", quality=40)),
    "replaced by a picture of the same size": lambda file: file.write_bytes(JPEG),
    "replaced under another name": lambda file: (file.unlink(), file.with_name("new.png").write_bytes(encoded(3))),
    "removed, and others added": lambda file: (
        file.unlink(),
        [file.with_name(f"later-{number}.png").write_bytes(encoded(number)) for number in range(9)],
    ),
}
AGAIN = {
    "retry": lambda tmp_path, path: hpcddm("retry", tmp_path / "run"),
    "retry of the catalog": lambda tmp_path, path: hpcddm("retry", tmp_path / "run", "catalog/all"),
    "submit": lambda tmp_path, path: hpcddm("submit", path, "--site", "embedded", "--run-dir", tmp_path / "run"),
}


CASES = [
    *((mended, ROTTEN, "retry") for mended in MENDED),
    *(("removed", content, "retry") for content in (TORN, b"", b"not a picture")),
    *(("replaced by a picture of the same size", ROTTEN, way) for way in ("retry of the catalog", "submit")),
]


@pytest.mark.parametrize(("mended", "content", "way"), CASES)
def test_the_advice_about_a_broken_picture_works(tmp_path, folder, mended, content, way):
    file = folder / "cat" / "torn.jpg"
    file.write_bytes(content)
    path, run = write(tmp_path, of_folder(folder)), RunDir(tmp_path / "run")
    said = submit(tmp_path, path, code=1)
    assert f"cat-torn_jpg ({file}: no readable image" in said and "remove or replace it" in said and ": :" not in said
    MENDED[mended](file)
    again = AGAIN[way](tmp_path, path)
    assert again.exit_code == 0, again.output
    assert keys(run) == names(folder)


def test_a_broken_picture_in_a_tar_is_seen_when_the_tar_is_written_again(tmp_path):
    tar, source = tmp_path / "tars" / "0.tar", {"name": "webdataset", "folder": str(tmp_path / "tars"), **SHARED}
    members = [(f"{number:03d}.{end}", content) for number in range(60)
               for end, content in (("png", encoded(number)), ("cls", str(number % 2).encode()))]  # fmt: skip
    write_tar(tar, [*members, ("torn.jpg", TORN), ("torn.cls", b"1")])
    path, run = write(tmp_path, source), RunDir(tmp_path / "run")
    assert "0.tar: torn" in submit(tmp_path, path, code=1)
    write_tar(tar, members)
    write_tar(tmp_path / "tars" / "1.tar", [("more.png", encoded(1)), ("more.cls", b"1")])
    assert hpcddm("retry", run.root).exit_code == 0
    assert len(keys(run)) == 61 and "more" in keys(run)


def test_a_table_that_is_mended_is_read_anew(tmp_path, folder):
    table = tmp_path / "scores.jsonl"

    def write_table(score):
        table.write_text("".join(json.dumps({"key": name, "score": score}) + "\n" for name in names(folder)))

    write_table(0)
    more = {"data__filter": "score > 0", "data__table": {"file": str(table)}}
    path, run = write(tmp_path, of_folder(folder), **more), RunDir(tmp_path / "run")
    assert "no train sample is left" in submit(tmp_path, path, code=1)
    write_table(1)
    # A command is a process of its own, which hashes a file once.
    content_hashes._hash_of.cache_clear()
    again = hpcddm("retry", run.root)
    assert again.exit_code == 0, again.output
    assert keys(run) == names(folder)


def test_once_a_catalog_has_numbered_them_the_images_are_those_of_the_run_until_they_are_made_anew(tmp_path, folder):
    path, run = write(tmp_path, of_folder(folder)), RunDir(tmp_path / "run")
    submit(tmp_path, path)
    before = manifest.read(run.unit("catalog/all"))
    (folder / "cat" / "late.png").write_bytes(encoded(5))
    assert "all requested units are complete" in submit(tmp_path, path)
    assert manifest.read(run.unit("catalog/all")) == before and len(keys(run)) == 120
    submit(tmp_path, path, "--redo", "shard")
    assert len(keys(run)) == 121
    submit(tmp_path, path)
    after = manifest.read(run.unit("shard/train-000")).settings["data.content_hash"]
    assert after != before.settings.get("data.content_hash")
