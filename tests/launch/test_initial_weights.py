"""Weights to start from are looked at when a run is submitted."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from safetensors.numpy import save_file

from hpcddm.errors import UserError
from hpcddm.launch.submission import check_experiment, decide_units, store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import initial_weights
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.helpers import DATA_STAGES, finish, tiny, write_source
from tests.launch.queues import Queue


@pytest.fixture
def run(tmp_path):
    """An empty run."""
    return RunDir(tmp_path / "run")


def seeded(folder, tensors=None, own=None, **changes):
    """A run whose images are sharded and whose experts and monolith start from a file; the experiment."""
    experiment = tiny(folder, experts__init_from={"weights": "seed.safetensors"}, **changes)
    if tensors is not None:
        save_file(tensors, folder / "seed.safetensors", {"hpcddm": json.dumps(own)} if own else None)
    return experiment


def parameters(count):
    return {"trunk.embed_patch.weight": np.zeros(count, dtype=np.float32)}


def starts_checked(experiment, run):
    finish([unit for unit in plan_units(experiment) if unit.stage == "shard"], run)
    check_experiment(experiment, Queue(run).site, decide_units(experiment, run, Queue(run)))


def size_of(experiment):
    return experiment.experts.model.parameters(experiment.data)


def test_weights_to_start_from_are_looked_at_before_the_data_stages(run, tmp_path, capsys):
    size = size_of(tiny(tmp_path))
    starts_checked(seeded(tmp_path, parameters(size)), run)
    assert "seed.safetensors says nothing of itself" in capsys.readouterr().err
    words = f"seed.safetensors: holds {size - 1:,} parameters and experts.model has {size:,}"
    with pytest.raises(UserError, match=words):
        starts_checked(seeded(tmp_path, parameters(size - 1)), run)
    (tmp_path / "seed.safetensors").write_bytes((tmp_path / "seed.safetensors").read_bytes()[:-9])
    with pytest.raises(UserError, match="seed.safetensors: no weights to start from .*put it back"):
        starts_checked(seeded(tmp_path), run)
    with pytest.raises(UserError, match="router.safetensors: no weights to start from"):
        starts_checked(tiny(tmp_path, router__refit={"weights": "router.safetensors"}), run)


@pytest.mark.parametrize("key, field, there", [("model", "heads", 2), ("objective", "name", "epsilon")])
def test_weights_of_another_network_are_refused_at_submit(run, tmp_path, key, field, there):
    experts, size = tiny(tmp_path).experts, size_of(tiny(tmp_path))
    own = {"model": experts.model.model_dump(), "objective": experts.objective.model_dump()}
    starts_checked(seeded(tmp_path, parameters(size), own), run)
    own[key][field] = there
    with pytest.raises(UserError, match=f"experts.{key}.{field} is .* and the file's is {there}; .*hpcddm convert"):
        starts_checked(seeded(tmp_path, parameters(size), own), run)


def test_weights_of_another_space_are_refused_though_their_shapes_fit(run, tmp_path):
    changes = {"data__space": {"name": "latents"}, "experts__model__patch": 2, "router__model__patch": 2}
    in_pixels, in_latents = tiny(tmp_path), tiny(tmp_path, **changes)
    assert size_of(in_pixels) == size_of(in_latents)
    experts = in_latents.experts
    own = {"model": experts.model.model_dump(), "objective": experts.objective.model_dump()}
    refused = pytest.raises(UserError, match="data.space is .*latents.* and the file's is")
    for space, expected in (({"name": "pixels"}, refused), (in_latents.data.space.model_dump(), nullcontext())):
        with expected:
            described = own | {"data": {"space": space}}
            starts_checked(seeded(tmp_path, parameters(size_of(in_pixels)), described, **changes), run)


def test_a_start_that_is_gone_is_missed_only_by_what_has_yet_to_run(run, tmp_path):
    write_source(tmp_path / "images")
    run.root.mkdir()
    experiment = with_content_hashes(seeded(tmp_path, parameters(size_of(tiny(tmp_path)))), run)
    store_experiment(with_relative_paths(experiment, run), run)
    (tmp_path / "seed.safetensors").unlink()
    again = with_content_hashes(seeded(tmp_path), run)
    assert again.experts.init_from.content_hash == experiment.experts.init_from.content_hash
    with pytest.raises(UserError, match="seed.safetensors: no weights to start from"):
        starts_checked(again, run)
    finish([unit for unit in plan_units(again) if unit.stage in (*DATA_STAGES, "train")], run)
    starts_checked(again, run)


WRONG = [5, [], {"model": []}, {"data": None}, {"data": {"channels": "x"}}, {"images": -1}, {"source": 3}]


@pytest.mark.parametrize("description", WRONG)
def test_a_file_that_describes_itself_by_other_types_is_one_line(tmp_path, description):
    save_file({"a": np.zeros(1)}, tmp_path / "a.safetensors", {"hpcddm": json.dumps(description)})
    with (
        initial_weights.open_weights(tmp_path / "a.safetensors") as file,
        pytest.raises(UserError, match=r"a.safetensors: no weights to start from \("),
    ):
        initial_weights.read_description(file)
