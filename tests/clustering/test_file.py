"""Clusters from a file, by the data stages on real images."""

import numpy as np
import polars
import pytest

from hpcddm.data import run_samples
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from tests.helpers import tiny, write_source
from tests.stages.routes import Bench, write_images

STAGES = ("cluster", "assign", "expert_lists")


def clustering(path, **changes):
    return {"name": "file", "table": {"file": str(path)}} | changes


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A run of the first 400 and 120 images of Fashion-MNIST, up to its catalog."""
    folder = tmp_path_factory.mktemp("runs")
    write_images(folder / "images", 400, 120)
    bench = Bench(folder, "run", cluster__clustering={"name": "random"})
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in ("shard", "catalog")))
    return bench


@pytest.fixture(scope="module")
def rows(bench):
    """Keys and clusters of all samples, in another order than theirs, and a key of no sample."""
    keys = [key for split in ("train", "heldout") for key in keys_of(bench, split)]
    order = np.random.default_rng(0).permutation(len(keys))
    return {"key": [keys[place] for place in order] + ["elsewhere"], "cluster": (order % 4).tolist() + [2]}


def keys_of(bench, split):
    catalog = open_catalog(bench.run, split)
    return catalog.texts("key").gather(range(len(catalog)))


def made(bench, path, **changes):
    """Make clusters and lists by a file."""
    bench.settings = bench.experiment(cluster__clustering=clustering(path, **changes))
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in STAGES))


def written(path, rows):
    frame = polars.DataFrame(rows)
    write = {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}
    write[path.suffix](path)
    return path


@pytest.mark.parametrize("name", ["clusters.csv", "clusters.jsonl", "clusters.parquet"])
def test_every_sample_is_in_the_cluster_of_its_key(tmp_path, bench, rows, name):
    path = written(tmp_path / name, {"name": rows["key"], "part": rows["cluster"]})
    made(bench, path, table={"file": str(path), "key": "name"}, column="part")
    wanted = dict(zip(rows["key"], rows["cluster"], strict=True))
    for split in ("train", "heldout"):
        keys, clusters = keys_of(bench, split), run_samples.clusters(open_catalog(bench.run, split))
        assert clusters.gather(range(len(keys))).tolist() == [wanted[key] for key in keys]


def test_nothing_behind_the_fit_reads_the_file(tmp_path, bench, rows):
    path = written(tmp_path / "clusters.csv", rows)
    made(bench, path)
    path.unlink()
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in ("assign", "expert_lists")))


@pytest.mark.parametrize(
    "key, cluster, complaint",
    [
        *(
            ("train-0000007", cell, f"cluster of train-0000007: '{cell}' is not a whole number from 0 to 3")
            for cell in ("4", "-1", "1.5", "")
        ),
        ("other", 0, "no cluster for 1 of 400 samples, the first is train-0000007; every sample needs one"),
        ("train-0000008", 0, "train-0000008 appears twice; remove one"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, bench, rows, key, cluster, complaint):
    place = rows["key"].index("train-0000007")
    keys, cells = [*rows["key"]], [*map(str, rows["cluster"])]
    keys[place], cells[place] = key, str(cluster)
    path = written(tmp_path / "clusters.csv", {"key": keys, "cluster": cells})
    with pytest.raises(UserError, match=f"clusters.csv: .*{complaint}"):
        made(bench, path)


def test_held_out_samples_need_clusters_too(tmp_path, bench, rows):
    train = set(keys_of(bench, "train"))
    kept = [place for place, key in enumerate(rows["key"]) if key in train]
    path = written(tmp_path / "clusters.parquet", {name: [cells[row] for row in kept] for name, cells in rows.items()})
    with pytest.raises(UserError, match="no cluster for 120 of 120 samples, .*; every sample needs one, held-out"):
        made(bench, path)


def test_another_file_than_was_submitted_is_refused(tmp_path, bench, rows):
    path = written(tmp_path / "clusters.csv", rows)
    with pytest.raises(UserError, match="clusters.csv: has changed since the run was submitted"):
        made(bench, path, table={"file": str(path), "content_hash": "of another file"})
    path.write_text("key,cluster\n")
    with pytest.raises(UserError, match="clusters.csv: has no row"):
        made(bench, path)


def test_the_file_goes_by_its_content_and_not_by_its_place(tmp_path):
    write_source(tmp_path / "images")
    prints = []
    for name, content in (("a.csv", "key,cluster\na,0\n"), ("b.csv", "key,cluster\na,0\n"), ("c.csv", "key,cluster\n")):
        (tmp_path / name).write_text(content)
        experiment = tiny(tmp_path, cluster__clustering={"name": "file", "table": {"file": name}})
        experiment = with_content_hashes(experiment, RunDir(tmp_path / "runs"))
        assert experiment.cluster.clustering.table.content_hash == atomic.sha256(tmp_path / name)
        prints.append({unit.key: unit.fingerprint_settings for unit in plan_units(experiment)}["cluster/all"])
    assert prints[0] == prints[1] != prints[2]
