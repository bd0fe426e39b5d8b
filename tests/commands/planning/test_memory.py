"""Memory that is predicted beside what lives in real training steps."""

import json
import os
import subprocess
import sys

import pytest
import torch

from hpcddm.commands.planning import memory
from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.commands.planning.live_memory import LiveBytes
from hpcddm.commands.planning.training_memory import memory_line, predict_for_units
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.training import compile_choice
from tests.helpers import REPOSITORY, tiny
from tests.models import examples

NAMES = ["small-0", "small-1", "small-2", "small-3"]
COUNTS = {"train": 96, "heldout": 40}
KEYS = ["train/monolith", "train/expert-00", "train/expert-01", "router/all", "draw/part-000"]


@pytest.mark.parametrize("name", ["dit", "mmdit", "router_dit", "small_cnn"])
@pytest.mark.parametrize("every", [0, 1])
def test_a_pass_on_no_memory_counts_what_lives_in_a_real_one(name, every):
    inputs = (torch.rand(6, 2, 8, 8),) if name == "small_cnn" else examples.batch(6)
    model = examples.trained(name).train()
    prepare_blocks(model, every, Compilation())
    with LiveBytes([*model.parameters(), *model.buffers(), *inputs]) as live:
        before = live.now
        model(*inputs).float().square().mean().backward()
    expected = memory.peak_of_pass(lambda: examples.fresh(name), inputs, "fp32", every, keeps=True, on_gpu=False)
    assert live.peak - before == pytest.approx(expected, rel=0.02)


def test_fused_attention_keeps_no_scores_and_gradients_that_go_take_no_memory():
    def of(on_gpu, keeps=True):
        return memory.peak_of_pass(lambda: examples.fresh("dit", patch=1), examples.batch(6), "fp32", 0, keeps, on_gpu)

    assert of(on_gpu=True) < of(on_gpu=False) and of(False, keeps=False) < of(False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """What the benchmark says of small networks."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", *NAMES]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-4000:]
    results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return {found["name"]: found for found in results}


@pytest.mark.parametrize("name", NAMES)
def test_live_tensors_of_real_steps_are_predicted_in_every_stage(compared, name):
    assert abs(compared[name]["off"]["live"]) < 0.1, compared[name]


def test_a_plan_knows_the_memory_of_every_training_and_whether_the_site_has_it(tmp_path):
    def planned(**resources):
        site = {"name": "here", "scheduler": "local", "resources": {"memory_gb": 1} | resources}
        return predict_for_units(KEYS, UnitCosts(tiny(tmp_path), COUNTS), validate(Site, site, "here"))

    one, shared = planned(), planned(ranks_per_node=2, micro_batch=2, checkpoint_blocks=1, memory_gb=4)
    assert [own.stage for own in one] == [own.stage for own in shared] == ["train/monolith", "train", "router"]
    assert all(own.parts.moments > other.parts.moments for own, other in zip(one, shared, strict=True))
    assert [own.images_at_once for own in shared] == [2, 2, 2] and shared[0].peak < one[0].peak
    assert "memory_gb" not in memory_line(one[0]) and "zero_stage 1" in memory_line(one[0])
    assert "memory_gb: 1 is less than these 1.4" in memory_line(planned(ranks_per_node=2)[0])


def test_a_plan_says_on_gpus_if_blocks_are_compiled_and_why(tmp_path, monkeypatch):
    def planned(**resources):
        site = validate(Site, {"name": "here", "scheduler": "local", "resources": resources}, "here")
        costs = UnitCosts(tiny(tmp_path), COUNTS)
        return memory_line(predict_for_units(["train/expert-00"], costs, site)[0])

    assert "compile" not in planned() + planned(gpus_per_node=1, compile_blocks=False)
    reason = "compile_blocks: auto, about 0 minutes at 100 TFLOP/s per GPU"
    assert planned(gpus_per_node=1).endswith(f"; blocks not compiled ({reason} are less than 10)")
    monkeypatch.setattr(compile_choice, "MIN_MINUTES", 0)
    assert planned(gpus_per_node=1).endswith(f" compiled blocks ({reason})")
    assert planned(gpus_per_node=1, zero_stage=3).endswith(
        "; blocks not compiled (compile_blocks: auto, zero_stage: 3)"
    )


def test_every_further_average_takes_memory_and_room_in_the_copy_of_a_state(tmp_path):
    def planned(**training):
        changes = {f"experts__training__{key}": value for key, value in training.items()}
        site = validate(Site, {"name": "here", "scheduler": "local"}, "here")
        return predict_for_units(["train/expert-00"], UnitCosts(tiny(tmp_path, **changes), COUNTS), site)[0]

    one, four = planned(), planned(power_ema=[0.05, 0.1, 0.2])
    assert four.parts.averages == 4 * one.parts.averages
    assert four.peak - one.peak == four.parts.state_copy - one.parts.state_copy == 3 * one.parts.averages
