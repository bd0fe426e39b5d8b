from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.reader import ArrayReader
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.models import build_classifier as evaluators
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.stages.report import report_job
from hpcddm.stages.training import evaluators_job
from hpcddm.training import flops_budget
from hpcddm.training.loop import TrainingResult
from tests.helpers import SIDE, tiny


@pytest.mark.parametrize("images", [64, 70])
def test_the_experts_together_see_what_the_monolith_sees_without_the_routers_share(tmp_path, images):
    experiment = tiny(tmp_path, experts__training__images=images, experts__training__warmup_images=32)
    one, total = resolve_training(experiment, expert_key(0)).settings, experiment.experts.training
    experts = experiment.cluster.experts
    assert one.batch * experts == total.batch and one.images % one.batch == 0
    assert total.images <= one.images * experts < total.images + total.batch
    assert one.warmup_images * experts == total.warmup_images and one.learning_rate == total.learning_rate


@pytest.mark.parametrize("own_seed", [0, 3])
def test_a_measuring_network_is_trained_from_its_own_seed_and_not_the_experiments(tmp_path, monkeypatch, own_seed):
    tasks = []
    done = TrainingResult([], {}, {})
    monkeypatch.setattr(
        evaluators_job, "train", lambda task, own, unit: tasks.append((own.seed, task.batches.draws)) or done
    )
    images = ArrayReader(np.zeros((1, SIDE, SIDE, 1), np.uint8), np.zeros(1, int), np.zeros(1, int))
    monkeypatch.setattr(run_samples, "training_reader", lambda settings, unit: nullcontext(images))
    unit = SimpleNamespace(key="evaluators/classifier", name="classifier", ranks=SimpleNamespace(rank=1))
    for seed in (0, 1):
        evaluators_job.run(tiny(tmp_path, seed=seed, evaluators__classifier__seed=own_seed), unit)
    # The stream keeps its name, so that its random numbers stay.
    assert [(seed, draws.seed, draws.stream) for seed, draws in tasks] == [(own_seed, own_seed, "critics/judge")] * 2


def test_a_measuring_network_that_is_given_is_taken_as_it_is(tmp_path, monkeypatch):
    file, folder = tmp_path / "ruler.safetensors", tmp_path / "run" / "evaluators" / "classifier"
    folder.mkdir(parents=True)
    network = evaluators.build(tiny(tmp_path), "evaluators/classifier")
    save_file(network.state_dict(), file)
    images = ArrayReader(np.zeros((8, SIDE, SIDE, 1), np.uint8), np.arange(8) % 4, np.zeros(8, int))
    monkeypatch.setattr(run_samples, "open_reader", lambda unit, split: images)
    rank, own = SimpleNamespace(rank=0), RunDir(tmp_path / "run")
    unit = SimpleNamespace(key="evaluators/classifier", folder=folder, run=own, ranks=rank)

    def run(content):
        given = {"weights": str(file), "content_hash": content}
        return evaluators_job.run(tiny(tmp_path, evaluators__classifier__pretrained=given), unit)

    result = run(atomic.sha256(file))
    assert (result.outputs, result.results["images"]) == ([WEIGHTS], 0)
    assert result.results["heldout_accuracy"] == 0.25, "a network that has seen nothing names one class of four"
    assert (folder / WEIGHTS).read_bytes() == file.read_bytes()
    with pytest.raises(UserError, match="has changed since the run was submitted"):
        run("0" * 64)
    save_file({"other": torch.zeros(3)}, file)
    with pytest.raises(UserError, match="not the weights of evaluators.classifier.model"):
        run(None)
    file.unlink()
    with pytest.raises(UserError, match="it is not there"):
        run(None)


def test_a_network_that_is_given_costs_no_training_and_is_under_the_fingerprint(tmp_path):
    file = tmp_path / "ruler.safetensors"
    file.write_bytes(b"weights")
    own, given = tiny(tmp_path), tiny(tmp_path, evaluators__classifier__pretrained={"weights": str(file)})
    hashed = [with_content_hashes(one, RunDir(tmp_path / "run"), "images") for one in (own, given)]
    settings = [{unit.key: unit.fingerprint_settings for unit in plan_units(one)} for one in hashed]
    changed = {key for key in settings[0] if settings[0][key] != settings[1][key]}
    assert changed == {"evaluators/classifier"}
    digest = settings[1]["evaluators/classifier"]["evaluators.classifier.pretrained.content_hash"]
    assert digest == atomic.sha256(file)
    workload = SimpleNamespace(experiment=given, counts={"heldout": 10})
    assert not any(work.is_training for work in evaluators_job.work(workload, "evaluators/classifier"))


SMALL = {"name": "dit", "width": 8, "depth": 1, "heads": 1, "patch": 4}


OWN = {"clusters": [1], "images": 101, "batch": 24, "learning_rate": 0.5}


@pytest.mark.parametrize(
    "mixed",
    [[], [{"clusters": [1], "model": SMALL}], [OWN | {"model": SMALL}]],
    ids=["alike", "of two sizes", "of two numbers of images"],
)
def test_all_arms_cost_the_same(tmp_path, mixed):
    experiment = tiny(tmp_path, router__training__images=1600, experts__overrides=mixed)
    monolith = flops_budget.training_of(experiment, MONOLITH).settings
    flops = [flops_budget.train_flops(experiment, experiment.expert_config(expert)) for expert in (0, 1, None)]
    experts = sum(resolve_training(experiment, expert_key(expert)).settings.images * flops[expert] for expert in (0, 1))
    ensemble = experts + flops_budget.router_flops(experiment)
    assert abs(monolith.images * flops[2] - ensemble) <= flops[2] * monolith.batch / 2
    assert monolith.images % monolith.batch == 0


def test_an_expert_has_its_own_rate_batch_and_images(tmp_path):
    warm = {"warmup_images": 32, "schedule": "cosine", "decay_images": 48, "snapshots": [32, 64]}
    changes = {f"experts__training__{key}": value for key, value in warm.items()}
    experiment = tiny(tmp_path, experts__overrides=[OWN | {"precision": "bf16"}], **changes)
    first, second = (resolve_training(experiment, expert_key(expert)).settings for expert in (0, 1))
    plain = tiny(tmp_path, **changes)
    assert first == resolve_training(plain, expert_key(0)).settings == resolve_training(plain, expert_key(1)).settings
    assert (second.images, second.batch, second.learning_rate, second.precision) == (120, 24, 0.5, "bf16")
    # As many steps of warm-up and half-life as the others have; the rate ends at 48 / 64 of its own images.
    assert (second.warmup_images, second.decay_images, second.ema_halflife_images) == (48, 76, 150)
    assert first.snapshots == [16, 32] and second.snapshots == [72, 120]
    batch_alone = tiny(tmp_path, experts__overrides=[{"clusters": [1], "batch": 5}], **changes)
    second = resolve_training(batch_alone, expert_key(1)).settings
    assert (second.images, second.snapshots, second.learning_rate) == (35, [20, 35], 0.01)


def test_own_numbers_that_end_before_the_rate_has_risen_are_refused(tmp_path):
    course = {"experts__training__warmup_images": 32, "experts__training__schedule": "cosine"}
    experiment = tiny(tmp_path, experts__overrides=[{"clusters": [1], "images": 16}], **course)
    with pytest.raises(ConfigError, match="the 16 images of expert 1 end, .* within its warm-up of 16"):
        resolve_training(experiment, expert_key(1))


def test_the_report_says_which_experts_are_missing_and_what_the_oracle_makes_of_their_samples(tmp_path, monkeypatch):
    experiment = tiny(tmp_path, evaluate__strategies=["top-1", "oracle"], evaluate__min_experts=1)
    reader = ArrayReader(np.zeros((4, 8, 8, 1), np.uint8), np.arange(4), np.array([1, 0, 0, 0]))
    monkeypatch.setattr(evaluation_set, "evaluation_samples", lambda unit, settings: np.arange(4))
    monkeypatch.setattr(run_samples, "open_reader", lambda unit, split: reader)
    there = SimpleNamespace(inputs={expert_key(0): None})
    said = report_job._remark(experiment, there)
    assert said.startswith("1 of 2 experts, without train/expert-01: ")
    assert said.endswith("; oracle leaves to the router the 25.0% of the samples whose own is missing")
    routed = experiment.model_copy(update={"evaluate": experiment.evaluate.model_copy(update={"strategies": ["full"]})})
    assert report_job._remark(routed, there).endswith("the FLOPs are theirs and the router's")
    assert report_job._remark(experiment, SimpleNamespace(inputs=dict.fromkeys(map(expert_key, (0, 1))))) == ""
