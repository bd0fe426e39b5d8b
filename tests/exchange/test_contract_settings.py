"""Experiments of many kinds cross between sites: what a contract leaves out is a place of files, and nothing else."""

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.partition import write_arrays
from hpcddm.clustering.random import RandomPartition
from hpcddm.clustering.samples import Samples
from hpcddm.collaboration import contract_settings
from hpcddm.collaboration.agreed_experiment import check_recipes, load_agreed
from hpcddm.collaboration.contract_making import write_partition
from hpcddm.config import variants
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import ConfigError
from hpcddm.exchange.contract import PARTITION
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.sources import webdataset


def test_single_numbers_of_a_partition_cross_as_they_are(shared, tmp_path):
    run, path = RunDir(tmp_path / "run"), tmp_path / PARTITION
    run.unit("cluster/all").mkdir(parents=True)
    write_arrays(run.output("cluster/all", "partition.h5"), RandomPartition(3, 2))
    write_partition(run, path)
    own = {"name": "agreed", "partition": str(path), "content_hash": atomic.sha256(path)}
    settings = validate(ClusteringSettings, own | {"fitted_by": {"name": "random"}}, "contract.json")
    samples, numbers = Samples(open_catalog(RunDir(shared.run), TRAIN), None), np.arange(20)
    partition = variants.create(Clustering, settings).fit(samples, numbers, 2, 0, Workspace())
    assert (partition.assign(samples, numbers) == RandomPartition(3, 2).assign(samples, numbers)).all()


def test_of_clusters_in_a_table_a_site_needs_the_partition_alone(shared, tmp_path):
    contract, run = shared.read(), RunDir(shared.run)
    values = with_absolute_paths(stored_experiment(run), run).model_dump()
    values["cluster"]["clustering"] = {"name": "file", "table": {"file": "/north/clusters.csv", "key": "name"}}
    sent = contract_settings.shared_settings(Experiment.model_validate(values), None)
    assert "/north" not in json.dumps(sent)
    folder = shutil.copytree(shared.contract, tmp_path / "contract")
    save_file({"hashes": np.arange(3, dtype=np.uint64), "clusters": np.array([0, 1, 1], np.uint16)}, folder / PARTITION)
    content = (folder / PARTITION).read_bytes()
    files = contract.files | {PARTITION: ListedFile(len(content), hashlib.sha256(content).hexdigest())}
    changed = replace(contract, experiment=sent, files=files)
    experiment = load_agreed(changed, folder, [f"data.source.folder={shared.images}"])
    experiment = with_content_hashes(experiment, RunDir(tmp_path / "none"))
    check_recipes(contract, experiment, "south")
    assert experiment.cluster.clustering.fitted_by.table.file == str(folder / PARTITION)


def test_of_several_sources_each_has_its_place_at_a_site(shared, tmp_path):
    contract, run = shared.read(), RunDir(shared.run)
    values = with_absolute_paths(stored_experiment(run), run).model_dump()
    values["data"]["source"] = [
        {"name": "webdataset", "folder": f"/north/{name}", "heldout": {"share": 0.5}, "collection": name}
        for name in ("first", "second")
    ]
    sent = contract_settings.shared_settings(Experiment.model_validate(values), None)
    assert "/north" not in json.dumps(sent)
    contract = replace(contract, experiment=sent)
    places = [f"data.source.sources.{number}.folder={tmp_path / str(number)}" for number in range(2)]
    experiment = load_agreed(contract, shared.contract, places)
    assert [source.folder for source in experiment.data.source.sources] == [str(tmp_path / "0"), str(tmp_path / "1")]
    assert contract_settings.changed_settings(contract, experiment) == {}
    other = load_agreed(contract, shared.contract, [*places, "data.source.sources.1.label=null"])
    assert contract_settings.changed_settings(contract, other).keys() == {"data.source.sources"}
    # Also where the setting of this site is the default, and the agreed one is not.
    sent["data"]["source"]["sources"][1]["require_end"] = False
    other = load_agreed(contract, shared.contract, [*places, "data.source.sources.1.require_end=true"])
    assert contract_settings.changed_settings(contract, other).keys() == {"data.source.sources"}


def test_tars_that_differ_in_time_alone_are_explained(shared):
    source = webdataset.WebDatasetTarsSettings(name="webdataset", folder="tars", heldout={"share": 0.1})
    run = RunDir(shared.run)
    experiment = with_absolute_paths(stored_experiment(run), run)
    for data, words in (({"source": source}, "rsync -t"), ({}, "right ones$")):
        data = experiment.data.model_copy(update={"content_hash": "0" * 64} | data)
        with pytest.raises(ConfigError, match=words):
            check_recipes(shared.read(), experiment.model_copy(update={"data": data}), "south")
