"""GPUs that a site asks for and no rank uses are refused before anything is submitted."""

import json

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.launch.checks.gpu_requests import check_gpus, gpu_remarks
from hpcddm.pipeline.unit_graph import plan_units
from tests.helpers import DATA_STAGES, LATENT_SPACE, hpcddm, tiny, write_experiment, write_source

WITHOUT_GPU = (*DATA_STAGES, "compare")
CPU_STAGES = {stage: {"gpus_per_node": 0} for stage in WITHOUT_GPU}


def check(tmp_path, resources=None, stages=None, changes=None, **keys):
    """Check a site that gives these resources and stages, with some keys of the tiny experiment changed."""
    experiment = tiny(tmp_path, **changes or {})
    site = Site(name="s", scheduler="slurm", resources=resources or {}, stages=stages or {}, **keys)
    check_gpus(site, [unit.key for unit in plan_units(experiment)], experiment)


ONE = {"gpus_per_node": 1}


def test_stages_that_compute_nothing_on_a_gpu_may_not_hold_one(tmp_path):
    """The encoder of the tiny experiment takes means of pixels."""
    with pytest.raises(ConfigError) as error:
        check(tmp_path, ONE)
    words = f"site s: {', '.join(WITHOUT_GPU)}: gpus_per_node: 1, and nothing there uses a GPU; set gpus_per_node: 0 in"
    places = ", ".join(f"stages.{stage}" for stage in WITHOUT_GPU)
    assert str(error.value).startswith(f"{words} {places}; allow_idle_gpus: true")
    check(tmp_path, ONE, CPU_STAGES)
    check(tmp_path, ONE, allow_idle_gpus=True)


def test_a_unit_without_a_gpu_in_a_stage_with_gpus_is_named_by_its_key(tmp_path):
    changes = {"data__condition": {"name": "text", "encoder": {"name": "minilm"}, "cached": True}}
    changes |= {"data__space": LATENT_SPACE, "encode__encoder": {"name": "efficientnet_lite0"}}
    stages = CPU_STAGES | {"encode": {}, "autoencoder": {}}
    places = ("encode_captions/all", "latents/scale")
    with pytest.raises(ConfigError) as error:
        check(tmp_path, ONE, stages, changes)
    assert str(error.value).startswith(f"site s: {', '.join(places)}: gpus_per_node: 1, and nothing there uses a GPU;")
    assert "in stages.encode_captions/all, stages.latents/scale;" in str(error.value)
    check(tmp_path, ONE, stages | dict.fromkeys(places, {"gpus_per_node": 0}), changes)


EIGHT, FOUR_FOR_TWO = {"gpus_per_node": 8}, {"gpus_per_node": 4, "ranks_per_node": 2}
FOUR_EACH = {"gpus_per_node": 4, "ranks_per_node": 4}


TOO_MANY = [
    ("train", EIGHT, "train: gpus_per_node: 8 for ranks_per_node: 1, .*; set ranks_per_node: 8 or"),
    ("train/monolith", {"gpus_per_node": 2}, "train/monolith: .* in stages.train/monolith;"),
    ("evaluators", FOUR_FOR_TWO, "evaluators: gpus_per_node: 4 for ranks_per_node: 2"),
    ("draw", FOUR_EACH, "draw: .* one working rank uses one GPU; set rank"),
    ("draw", ONE | {"nodes": 2}, "draw: gpus_per_node: 1 on 2 nodes, .* set nodes: 1 in sta"),
]


@pytest.mark.parametrize(("stage", "asked", "words"), TOO_MANY)
def test_a_gpu_is_one_ranks(tmp_path, stage, asked, words):
    with pytest.raises(ConfigError, match=words):
        check(tmp_path, stages={stage: asked})
    check(tmp_path, stages={stage: asked}, allow_idle_gpus=True)


def test_what_uses_all_gpus_of_a_node_or_one_for_every_rank_may_have_them_and_no_rank_none(tmp_path):
    stages = {"train": {"nodes": 2, "gpus_per_node": 2, "ranks_per_node": 2}}
    stages |= {"draw": {"gpus_per_node": 4}, "report": {"gpus_per_node": 4}}
    check(tmp_path, stages=stages, changes={"evaluate__placement": {"name": "spread"}})
    with pytest.raises(ConfigError, match="draw, report: .*one working rank"):
        check(tmp_path, stages=stages)
    with pytest.raises(ConfigError, match="train: gpus_per_node: 2 for ranks_per_node: 4; set ranks_per_node: 2 in"):
        check(tmp_path, stages={"train": {"gpus_per_node": 2, "ranks_per_node": 4}}, allow_idle_gpus=True)


def test_submit_refuses_and_plan_and_the_sweeps_table_say_it(tmp_path):
    write_source(tmp_path / "images")
    place, stages = tmp_path / "s.yaml", {**CPU_STAGES, "train": {"gpus_per_node": 2}}
    place.write_text(json.dumps({"name": "s", "scheduler": "slurm", "stages": stages}))
    common = (write_experiment(tmp_path), "--site", place, "--run-dir", tmp_path / "run")
    done = hpcddm("submit", *common, "--dry-run")
    assert done.exit_code == 2 and "train: gpus_per_node: 2 for ranks_per_node: 1" in done.output
    assert not (tmp_path / "run").exists(), "nothing was written"
    done = hpcddm("plan", *common, "--flops-per-second", "1e9")
    assert "GPUs      train: gpus_per_node: 2 for ranks_per_node: 1" in done.output, done.output
    (remark,) = gpu_remarks(Site(name="s", scheduler="slurm", resources=ONE), ["table"])
    assert remark == "table: gpus_per_node: 1, and nothing there uses a GPU; set gpus_per_node: 0 in stages.table"
