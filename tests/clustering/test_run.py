"""Clusters of another run: new images get those that the run gave the same pixels, and what cannot be is refused."""

import json
import shutil
from dataclasses import asdict, replace

import pytest

from hpcddm.clustering.partition import read_arrays, save_arrays
from hpcddm.config.variants import settings_class
from hpcddm.data import run_samples
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import ConfigError, UserError
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.files import atomic
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.ensemble_document import EnsembleDocument, PublishedNetwork, network_settings
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.publishing.published_settings import published_values
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_relative_paths
from hpcddm.runs.unit_keys import CLUSTER, expert_keys
from tests.helpers import SIDE, hpcddm, tiny, write_experiment, write_source
from tests.stages.routes import STAGES, Bench

TWO_STAGE = {"name": "kmeans", "fine_clusters": 12, "iterations": 5, "restarts": 1, "metric": "euclidean"}
TINY = {"data__image_size": SIDE, "data__num_classes": 4, "encode__encoder": {"name": "pixels", "size": 4}}
TINY |= {"cluster__clustering": TWO_STAGE | {"max_share": 0.5}, "cluster__experts": 3, "experts__training__batch": 12}
TINY |= {"evaluate__images": 24, "evaluate__batch": 8}
ENCODED = ("shard", "catalog", "encode")
STAGES_MADE = (*ENCODED, "cluster", "assign", "expert_lists")


def made(folder, name, stages=STAGES_MADE, **changes):
    """A run as submit stores it, with these stages as jobs would have made them."""
    bench = Bench(folder, name, **(TINY | changes))
    stored = with_relative_paths(with_content_hashes(bench.settings, bench.run), bench.run)
    bench.settings = stored
    for unit in (unit for unit in plan_units(stored) if unit.stage in stages and unit.stage in STAGES):
        bench.make(unit.key)
        inputs = {key: manifest.read(bench.run.unit(key)) for key in unit.requires}
        found = manifest.read(bench.run.unit(unit.key))
        expected = replace(unit.expected(inputs), outputs=found.outputs, results=found.results)
        manifest.publish(bench.run.unit(unit.key), expected)
    store_experiment(stored, bench.run)
    return bench


def of(run, **changes):
    return {"cluster__clustering": {"name": "run", "run": str(run)}} | changes


def clusters_of(run):
    """Clusters of all samples, by split and key."""
    found = {}
    for split in ("train", "heldout"):
        catalog = open_catalog(run, split)
        keys, clusters = catalog.texts("key"), run_samples.clusters(catalog)
        numbers = range(len(catalog))
        found |= dict(zip(keys.gather(numbers), clusters.gather(numbers).tolist(), strict=True))
    return found


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The run whose clusters are taken."""
    folder = tmp_path_factory.mktemp("other")
    write_source(folder / "images")
    return made(folder, "runs/other").run


@pytest.fixture
def copy(other, tmp_path):
    """A copy of that run, to be changed."""
    shutil.copytree(other.root, tmp_path / "copy")
    write_source(tmp_path / "images")
    return RunDir(tmp_path / "copy")


def hashed(bench, run, **changes):
    """The experiment of a run as submit would store it now, if it took the clusters of `run`."""
    return with_content_hashes(bench.experiment(**(TINY | of(run) | changes)), bench.run)


def states(bench):
    return {key: status.state for key, status in survey_units(plan_units(bench.settings), bench.run).items()}


def test_the_same_images_again_are_in_the_clusters_that_the_run_gave_them(other, tmp_path):
    write_source(tmp_path / "images")
    again = made(tmp_path, "again", **of(other.root), data__shards=5)
    wanted = clusters_of(other)
    assert len(wanted) == 136 and len({*wanted.values()}) == 3
    assert clusters_of(again.run) == wanted
    files = [run.output(CLUSTER, "partition.h5").read_bytes() for run in (other, again.run)]
    assert files[0] == files[1]
    assert manifest.read(again.run.unit(CLUSTER)).results["fitted"] == 0


def published(other, folder):
    """A published ensemble of the run, of which only the clusters are there."""
    experiment = stored_experiment(other)
    folder.mkdir()
    save_arrays(read_arrays(other.output(CLUSTER, "partition.h5")), folder / "partition.safetensors")
    keys = expert_keys(experiment)
    files = {"partition.safetensors": listed_file(folder / "partition.safetensors")}
    files |= {key.replace("/", "-"): ListedFile(0, "0" * 64) for key in keys}
    networks = {
        key: PublishedNetwork(key.replace("/", "-"), "fp32", 0, **network_settings(experiment, key)) for key in keys
    }
    values = published_values(experiment, False)
    names = [str(number) for number in range(4)]
    document = EnsembleDocument("hpcddm ensemble 1", "0", "tiny", "", "", ["top-1"], names, networks, [], values, files)
    atomic.write_json(folder / "ensemble.json", asdict(document))
    return folder


def listed_file(path):
    return ListedFile(path.stat().st_size, atomic.sha256(path))


def test_a_published_ensemble_gives_the_same_clusters(other, tmp_path):
    write_source(tmp_path / "images")
    folder = published(other, tmp_path / "published")
    again = made(tmp_path, "again", **of(folder))
    assert clusters_of(again.run) == clusters_of(other)
    with pytest.raises(ConfigError, match="cluster.clustering.run: .*published has other settings .*cluster.experts"):
        hashed(again, folder, cluster__experts=4, experts__training__batch=16)
    partition = folder / "partition.safetensors"
    partition.write_bytes(partition.read_bytes()[:-1] + b"x")
    settings = again.settings.model_copy(update={"cluster": tiny(tmp_path, **(TINY | of(folder))).cluster})
    with pytest.raises(UserError, match="partition.safetensors: its bytes are not those of ensemble.json"):
        settings.cluster.clustering.check_file(3)


def test_an_image_is_in_its_cluster_whatever_images_are_beside_it(other, tmp_path):
    source = write_source(tmp_path / "images", train=40, heldout=24)
    fewer = clusters_of(made(tmp_path, "fewer", **of(other.root)).run)
    assert len(fewer) == 64 and source.is_dir()
    # The generator draws the images of `train` first, so 40 of the 96 are the same.
    wanted = {key: cluster for key, cluster in clusters_of(other).items() if key in fewer and key.startswith("train")}
    assert len(wanted) == 40 and fewer.items() >= wanted.items()


def test_clusters_of_a_run_that_took_its_own_are_those_of_the_first(other, tmp_path):
    write_source(tmp_path / "images")
    second = made(tmp_path, "second", **of(other.root))
    third = made(tmp_path, "third", **of(second.run.root))
    assert third.settings.cluster.clustering.fitted_by == second.settings.cluster.clustering.fitted_by
    assert clusters_of(third.run) == clusters_of(other)


def test_behind_its_cluster_stage_nothing_reads_the_other_run(copy, tmp_path):
    bench = made(tmp_path, "run", (*ENCODED, "cluster"), **of(copy.root))
    shutil.rmtree(copy.root)
    later = ("assign", "expert_lists", "cluster_report")
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in later))
    store_experiment(bench.settings, bench.run)
    assert with_relative_paths(hashed(bench, copy.root), bench.run) == bench.settings
    with pytest.raises(ConfigError, match="cluster.clustering.run: .*copy: no run here"):
        with_content_hashes(bench.experiment(**(TINY | of(copy.root))), bench.run, redo=["cluster"])
    with pytest.raises(ConfigError, match="cluster.clustering.run: .*elsewhere: no run here"):
        hashed(bench, tmp_path / "elsewhere")


def test_a_partner_who_has_the_unit_alone_goes_on(copy, tmp_path):
    first = made(tmp_path, "run", **of(copy.root))
    there = tmp_path / "there"
    write_source(there / "images")
    shutil.copytree(first.run.unit(CLUSTER), there / "run" / "cluster")
    # The features that were fitted are not the partner's, and other ones would make no difference.
    partner = made(there, "run", (*ENCODED, "assign", "expert_lists"), **of(there / "nowhere"))
    assert states(partner)[CLUSTER] is State.COMPLETE
    assert clusters_of(partner.run) == clusters_of(first.run)


def test_other_features_than_the_partition_was_taken_for_are_seen_without_the_other_run(copy, tmp_path):
    bench = made(tmp_path, "run", **of(copy.root))
    shutil.rmtree(copy.root)
    bench.settings = hashed(bench, copy.root, data__transform={"name": "resize"})
    changes = survey_units(plan_units(bench.settings), bench.run)[CLUSTER].changes
    assert changes == {"data.transform.name": ("centre_crop", "resize")}


def test_a_partition_that_changed_is_seen_and_one_that_moved_is_the_same(copy, tmp_path):
    bench = made(tmp_path, "run", **of(copy.root))
    assert states(bench)["expert_lists/all"] is State.COMPLETE
    moved = copy.root.rename(tmp_path / "moved")
    assert made(tmp_path, "run", (), **of(moved)) and states(bench)["expert_lists/all"] is State.COMPLETE
    shutil.rmtree(moved)
    made(tmp_path, "moved", seed=1)
    bench.settings = hashed(bench, moved)
    changes = survey_units(plan_units(bench.settings), bench.run)[CLUSTER].changes
    assert [*changes] == ["cluster.clustering.content_hash"]


def test_another_partition_than_was_submitted_is_refused_by_its_job(copy, tmp_path):
    bench = made(tmp_path, "run", ENCODED, **of(copy.root))
    shutil.rmtree(copy.root)
    with pytest.raises(UserError, match=r"copy/cluster/partition.h5: is missing; fetch it again"):
        bench.make(CLUSTER)
    made(tmp_path, "copy", seed=1)
    with pytest.raises(UserError, match=r"copy/cluster/partition.h5: has changed since the run was submitted"):
        bench.make(CLUSTER)


def test_clusters_of_classes_need_no_features(tmp_path):
    groups = {"cluster__clustering": {"name": "labels", "groups": [[1], [0, 3], [2]]}}
    write_source(tmp_path / "images")
    by_class = made(tmp_path, "by_class", **groups)
    again = made(tmp_path, "again", **of(by_class.run.root), encode__encoder={"name": "pixels", "size": 2})
    assert "encode" not in {unit.stage for unit in plan_units(again.settings)}
    assert clusters_of(again.run) == clusters_of(by_class.run)
    alone = made(tmp_path, "alone", cluster__clustering={"name": "labels"}, cluster__experts=4)
    unknown = {"data__num_classes": None, "evaluators__classifier": None, "data__condition": {"name": "none"}}
    with pytest.raises(ConfigError, match="cluster.clustering.fitted_by: set data.num_classes, or groups"):
        made(tmp_path, "unknown", **of(alone.run.root), **unknown, cluster__experts=4)


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"cluster__experts": 2}, r"\(cluster.experts: 2 here, 3 there\)"),
        ({"encode__encoder": {"name": "pixels", "size": 2}}, r"\(encode.encoder.size: 2 here, 4 there\)"),
        ({"data__image_size": 16}, r"\(data.image_size: 16 here, 8 there\)"),
        ({"data__channels": 3}, r"\(data.channels: 3 here, 1 there\)"),
        ({"data__transform": {"name": "resize"}}, r"\(data.transform.name: 'resize' here, 'centre_crop' there\)"),
        (of("nowhere"), "nowhere: no run here"),
    ],
)
def test_other_features_or_clusters_are_refused_before_anything_is_submitted(copy, tmp_path, changes, complaint):
    path = write_experiment(tmp_path, **(TINY | of(copy.root) | changes))
    done = hpcddm("submit", path, "--site", "embedded", "--until", "expert_lists", "--run-dir", tmp_path / "run")
    (line,) = done.output.splitlines()
    assert done.exit_code == 2 and not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=f"^cluster.clustering.run: .*{complaint}"):
        made(tmp_path, "run", (), **(of(copy.root) | changes))
    assert "cluster.clustering.run: " in line


def test_clusters_that_go_by_numbers_or_keys_are_refused(tmp_path):
    write_source(tmp_path / "images")
    keys = [f"{split}-{number:07d}" for split in ("train", "heldout") for number in range(96)]
    lines = ["key,cluster", *(f"{key},{place % 3}" for place, key in enumerate(keys))]
    (tmp_path / "clusters.csv").write_text("\n".join(lines))
    for name, more in (("random", {}), ("file", {"table": {"file": str(tmp_path / "clusters.csv")}})):
        bench = made(tmp_path, name, cluster__clustering={"name": name} | more)
        complaint = f"{name} is clustered by '{name}', which goes by a sample's number or key"
        with pytest.raises(ConfigError, match=complaint):
            made(tmp_path, "new", (), **of(bench.run.root))


def test_clusters_that_are_not_complete_or_damaged_are_refused(copy, tmp_path):
    folder, kept = copy.unit(CLUSTER), tmp_path / "kept"
    partition = folder / "partition.h5"
    content = partition.read_bytes()
    experiment = tiny(tmp_path, **(TINY | of(copy.root)))
    run = RunDir(tmp_path / "run")

    def refused(complaint):
        with pytest.raises(ConfigError, match=f"^cluster.clustering.run: .*{complaint}"):
            with_content_hashes(experiment, run)

    with_content_hashes(experiment, run).cluster.clustering.check_file(3)
    folder.rename(kept)
    refused("cluster/all is .*; next: hpcddm status")
    folder.symlink_to(kept)
    refused("cluster is a link")
    folder.unlink()
    kept.rename(folder)
    partition.write_bytes(content[:-1])
    refused("partition.h5 has .* bytes instead of")
    partition.unlink()
    partition.symlink_to(tmp_path / "elsewhere.h5")
    (tmp_path / "elsewhere.h5").write_bytes(content)
    refused("partition.h5 is a link")
    partition.unlink()
    partition.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=r"partition.h5: its bytes are not those of its manifest"):
        with_content_hashes(experiment, run).cluster.clustering.check_file(3)
    partition.write_bytes(content)
    stored = json.loads(copy.experiment.read_text())
    copy.experiment.write_text(json.dumps(stored | {"seed": 5}))
    refused("cluster/all is stale")


def test_arrays_of_another_clustering_are_one_line(copy, tmp_path):
    """A partition that its own manifest vouches for, and the experiment beside it does not describe."""
    bench = made(tmp_path, "run", ENCODED, **of(copy.root))
    clustering = bench.settings.cluster.clustering
    labels = settings_class("clustering", "labels")(name="labels", groups=[[0, 1], [2], [3]])
    other = clustering.model_copy(update={"fitted_by": labels})
    cluster = bench.settings.cluster.model_copy(update={"clustering": other})
    bench.settings = bench.settings.model_copy(update={"cluster": cluster})
    with pytest.raises(UserError, match=r"partition.h5: not a partition of this clustering \(.*name another run"):
        bench.make(CLUSTER)
