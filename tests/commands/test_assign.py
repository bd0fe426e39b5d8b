"""The verb assign: new images get the clusters that the run gives the same pixels, in the form that runs read."""

import csv
import re
import tarfile
from dataclasses import replace

import numpy as np
import polars
import pytest
import yaml
from PIL import Image

from hpcddm.data import samples
from hpcddm.data.catalog import open_catalog
from hpcddm.data.reader import TarReader
from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline.plan import plan
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CLUSTER
from tests.helpers import EXPERIMENT, hpcddm, write_source
from tests.stages.routes import STAGES, Bench

TINY = {
    "data__image_size": 8,
    "data__num_classes": 4,
    "encode__encoder": {"name": "pixels", "size": 4},
    "cluster__clustering": {"name": "hierarchical", "fine": 12, "iterations": 5, "nredo": 1, "metric": "euclidean"}
    | {"max_share": 0.5},
    "cluster__experts": 3,
    "experts__training__batch": 12,
    "evaluate__images": 24,
    "evaluate__batch": 8,
}


def made(folder, **changes):
    """A run with its clusters, as far as `lists`, as jobs would have made it."""
    bench = Bench(folder, "run", **(TINY | changes))
    store_experiment(bench.settings, bench.run)
    units = [
        unit for unit in plan(bench.settings) if unit.stage in STAGES and unit.stage not in ("materialise", "route")
    ]
    for unit in units:
        bench.make(unit.key)
        found = manifest.read(bench.run.unit(unit.key))
        inputs = {key: manifest.read(bench.run.unit(key)) for key in unit.requires}
        wanted = replace(unit.expected(inputs), outputs=found.outputs, results=found.results)
        manifest.publish(bench.run.unit(unit.key), wanted)
    return bench


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the images of a run, in three forms."""
    folder = tmp_path_factory.mktemp("assign")
    write_source(folder / "images")
    return folder


@pytest.fixture(scope="module")
def bench(folder):
    return made(folder)


@pytest.fixture(scope="module")
def wanted(bench):
    """Clusters of the run's own samples, by key; and their pictures."""
    clusters, pictures = {}, {}
    for split in ("train", "heldout"):
        catalog = open_catalog(bench.run, split)
        reader, numbers = TarReader(catalog), range(len(catalog))
        own = samples.clusters(catalog).gather(numbers).tolist()
        clusters |= dict(zip(reader.keys(numbers), own, strict=True))
        pictures |= dict(zip(reader.keys(numbers), reader.images(numbers), strict=True))
    return clusters, pictures


def rows_of(path):
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["key", "cluster"]
    return {key: int(cluster) for key, cluster in rows}


def test_the_runs_own_images_get_the_clusters_that_they_have(bench, wanted, folder, tmp_path):
    done = hpcddm("assign", bench.run.root, folder / "tiny.yaml", "--output", tmp_path / "clusters.csv")
    assert done.exit_code == 0, done.output
    assert rows_of(tmp_path / "clusters.csv") == wanted[0]
    sizes = np.bincount([*wanted[0].values()], minlength=3).tolist()
    assert f"136 of 136 samples; of clusters 0 to 2: {sizes}" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["clusters.csv"]


def test_folders_and_tars_of_the_same_pictures_too_and_broken_ones_are_named(bench, wanted, tmp_path):
    clusters, pictures = wanted
    images, tars = tmp_path / "pictures", tmp_path / "tars"
    images.mkdir()
    tars.mkdir()
    with tarfile.open(tars / "00.tar", "w") as tar:
        for key, picture in pictures.items():
            Image.fromarray(picture[..., 0]).save(images / f"{key}.png")
            tar.add(images / f"{key}.png", f"{key}.png")
    (images / "broken.png").write_bytes(b"no picture")
    for source in (images, tars, tars / "00.tar"):
        done = hpcddm("assign", bench.run.root, source, "--output", tmp_path / "clusters.csv")
        assert done.exit_code == 0, done.output
        found = rows_of(tmp_path / "clusters.csv")
        # A dot would end the key of a WebDataset, so a folder's keys have none.
        assert {key.removesuffix("_png"): cluster for key, cluster in found.items()} == clusters
        assert ("left out 1 broken samples: broken_png" in done.output) == (source == images)


def test_a_run_takes_the_table_as_its_clusters_and_a_list_has_the_keys_of_one(bench, wanted, folder, tmp_path):
    for name in ("clusters.csv", "clusters.jsonl", "clusters.parquet"):
        assert hpcddm("assign", bench.run.root, folder / "tiny.yaml", "--output", tmp_path / name).exit_code == 0
    assert polars.read_parquet(tmp_path / "clusters.parquet").rows() == [*wanted[0].items()]
    for name in ("clusters.jsonl", "clusters.parquet"):
        clustering = {"name": "file", "table": {"file": str(tmp_path / name)}}
        other = Bench(folder, f"run-{name}", **(TINY | {"cluster__clustering": clustering}))
        other.make(
            *(unit.key for unit in plan(other.settings) if unit.stage in ("shard", "catalog", "cluster", "assign"))
        )
        for split in ("train", "heldout"):
            same = [samples.clusters(open_catalog(run.run, split)).gather(range(40)).tolist() for run in (bench, other)]
            assert same[0] == same[1]
    listed = tmp_path / "ones.txt"
    done = hpcddm("assign", bench.run.root, folder / "tiny.yaml", "--cluster", 1, "--output", listed)
    assert done.exit_code == 0 and listed.read_text().split() == [key for key, own in wanted[0].items() if own == 1]


def test_keys_that_come_again_are_a_warning(bench, folder, tmp_path):
    source = folder / "tiny.yaml"
    done = hpcddm("assign", bench.run.root, source, source, "--output", tmp_path / "clusters.csv")
    assert done.exit_code == 0 and "136 samples have a key that one before them has" in done.output


def test_new_samples_of_classes_and_of_keys_that_no_table_has(folder, bench, tmp_path):
    by_class = made_with(folder, "labels", {"name": "labels"}, cluster__experts=4, tmp=tmp_path)
    done = hpcddm("assign", by_class.run.root, folder / "tiny.yaml", "--output", tmp_path / "own.csv")
    assert done.exit_code == 0 and rows_of(tmp_path / "own.csv")["train-0000006"] == 2
    alone = tmp_path / "alone"
    alone.mkdir()
    Image.new("L", (9, 9)).save(alone / "a.png")
    done = hpcddm("assign", by_class.run.root, alone, "--output", tmp_path / "other.csv")
    assert done.exit_code == 1 and "goes by classes, and the new samples have none" in done.output
    assert not (tmp_path / "other.csv").exists()
    table = {"name": "file", "table": {"file": str(tmp_path / "own.csv")}}
    by_key = made_with(folder, "file", table, cluster__experts=4, tmp=tmp_path)
    done = hpcddm("assign", by_key.run.root, alone, "--output", tmp_path / "other.csv")
    assert done.exit_code == 1 and "own.csv: no cluster for 1 of 1 samples, the first is a_png" in done.output
    drawn = made_with(folder, "random", {"name": "random"}, tmp=tmp_path)
    done = hpcddm("assign", drawn.run.root, alone, "--output", tmp_path / "other.csv")
    assert done.exit_code == 1 and "follow from a sample's number among all of the run" in done.output


def made_with(folder, name, clustering, tmp, **changes):
    """A run of the same images with other clusters."""
    (tmp / name).mkdir()
    (tmp / name / "images").symlink_to(folder / "images")
    return made(tmp / name, cluster__clustering=clustering, **changes)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("nowhere",), "nowhere: neither a folder of images or tars, nor a .tar, .yaml or .yml file"),
        (("empty.yaml",), "empty.yaml: needs the key data.source"),
        (("wrong.yaml",), "wrong.yaml:1: source: unknown name 'magic'; valid names: "),
        (("{source}", "--output", "clusters.h5"), "a table of clusters needs a name that ends in .csv or .jsonl or"),
        (("{source}", "--output", "no/clusters.csv"), "no is no folder"),
        (("{source}", "--cluster", 3, "--output", "a.txt"), "--cluster 3: valid clusters are 0 to 2"),
        (("{source}", "--cluster", 1), "a list of one cluster's keys needs a name that ends in .txt"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(bench, folder, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yaml").write_text("data: {}")
    (tmp_path / "wrong.yaml").write_text("data: {source: {name: magic}}")
    done = hpcddm("assign", bench.run.root, *(str(item).format(source=folder / "tiny.yaml") for item in arguments))
    assert done.exit_code == 2
    assert re.search(complaint, done.output), done.output
    assert not (tmp_path / "clusters.csv").exists()


def test_the_runs_clusters_must_be_complete_and_of_its_settings(bench, folder, tmp_path):
    path = bench.run.unit(CLUSTER) / "manifest.json"
    content = path.read_text()
    path.rename(tmp_path / "manifest.json")
    try:
        done = hpcddm("assign", bench.run.root, folder / "tiny.yaml", "--output", tmp_path / "clusters.csv")
    finally:
        path.write_text(content)
    assert done.exit_code == 1 and "cluster/all is missing; next: hpcddm status" in done.output


def test_an_experiment_of_collections_is_a_source(bench, wanted, folder, tmp_path):
    pictures = [*wanted[1].items()][:6]
    for name in ("one", "two"):
        for split, (key, picture) in zip(("train", "heldout"), pictures, strict=False):
            (tmp_path / name / split).mkdir(parents=True)
            Image.fromarray(picture[..., 0]).save(tmp_path / name / split / f"{key}.png")
    of = [{"name": "image_folder", "folder": name, "collection": name} for name in ("one", "two")]
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(EXPERIMENT | {"data": EXPERIMENT["data"] | {"source": of}}))
    done = hpcddm("assign", bench.run.root, tmp_path / "both.yaml", "--output", tmp_path / "clusters.csv")
    assert done.exit_code == 0, done.output
    assert {key.split("/")[0] for key in rows_of(tmp_path / "clusters.csv")} == {"one", "two"}
