"""Routers of every kind, made by their stage from real images."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.data import run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import Stopped
from hpcddm.models import build_router
from hpcddm.models.calibrated_router import CalibratedRouter
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import EXPERT_LISTS, ROUTER
from hpcddm.runs.unit_training import resolve_training
from hpcddm.sampling import load_ensemble, router_samples
from hpcddm.training import flops_budget, loop
from tests.stages.routes import Bench, write_images

TRAINING = {"batch": 64, "learning_rate": 0.003, "warmup_images": 640, "ema_halflife_images": 500}
TRAINING |= {"images": 3200, "precision": "fp32"}
BF16 = TRAINING | {"images": 640, "precision": "bf16"}
ROUTER_MODEL = {"name": "router_dit", "width": 48, "depth": 2, "heads": 3, "patch": 4}


def trained(images: int = TRAINING["images"], **changes: Any) -> dict[str, Any]:
    """Changes that make the router a trained one."""
    return {"router": {"model": ROUTER_MODEL, "training": TRAINING | {"images": images}} | changes}


SAMPLES = {"images": 25, "steps": 2, "guidance": 2.0}
FREE = {
    "distance": {"model": {"name": "distance_router"}, "temperature": "by_level"},
    "feature": {"model": {"name": "feature_router", "encoder": {"name": "pixels"}}, "temperature": "by_level"},
    "uniform": {"model": {"name": "uniform_router"}, "temperature": "by_level"},
}
ROUTERS = {
    "natural": trained(),
    "balanced": trained(frequency="balanced", temperature="by_level"),
    "samples": trained(samples=SAMPLES, temperature="one", training=BF16),
    **{name: {"router": router} for name, router in FREE.items()},
}
FEWER = {"cluster__experts": 3, "experts__training__batch": 48}
LOW, HIGH = 1, 9
"""Noise levels 0.15 and 0.95."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What is known of routers of every kind, and of the run that they share."""
    root = tmp_path_factory.mktemp("routes")
    write_images(root / "images")
    run = Bench(root, "run")
    run.make_data()
    run.make_experts()
    found = {name: run.route(name, **changes) for name, changes in ROUTERS.items()}
    clusters = run_samples.clusters(open_catalog(run.run, "heldout"))
    found["heldout"] = np.bincount(clusters.gather(range(len(clusters))))
    found["sizes"] = np.array(manifest.read(run.run.unit(EXPERT_LISTS)).results["sizes"])
    return found | {"root": root, "run": run}


@pytest.fixture(scope="module")
def refits(made):
    """Routers of which the head alone was trained, of as many clusters as the one they began with, or of fewer."""
    three = Bench(made["root"], "three", **FEWER)
    three.make_data()
    start = {"weights": str(made["natural"]["folder"] / "weights.safetensors")}
    changes = trained(images=640, refit=start)
    return {4: made["run"].route("refit", **changes), 3: three.route("refit", **FEWER, **trained(refit=start))}


@pytest.fixture
def bench(made):
    return made["run"]


def loaded(made, name):
    """A finished router as the sampler gets it."""
    settings, folder = made["run"].experiment(**ROUTERS[name]), made[name]["folder"]
    return load_ensemble.load_ensemble(settings, lambda key: folder, [ROUTER], torch.device("cpu")).router


def heldout(bench) -> CatalogReader:
    return run_samples.open_reader(bench.unit(ROUTER), "heldout")


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_gives_a_posterior_of_the_sampler(made, bench, name):
    reader, router = heldout(bench), loaded(made, name)
    x0, labels = pixels_to_values(torch.from_numpy(reader.images(range(50)))), reader.labels(range(50))
    for level in (0.0, 0.5, 1.0):
        t = torch.full((50,), level)
        logits = router(LINEAR.perturb(x0, torch.randn_like(x0), t), t, labels)
        assert logits.shape == (50, 4) and logits.dtype == torch.float32
        torch.testing.assert_close(logits.softmax(1).sum(1), torch.ones(50))


@pytest.mark.parametrize("name", ["natural", "balanced", "distance", "feature"])
def test_it_knows_clusters_it_has_not_seen_far_better_than_by_their_sizes(made, name):
    results = made[name]["facts"]
    chance = max(made["heldout"]) / sum(made["heldout"])
    assert results["accuracy"][LOW] > 0.65 > 1.75 * chance
    assert results["accuracy"][LOW] > results["accuracy"][HIGH] > chance - 0.1


def test_the_uniform_router_is_chance_and_says_so(made):
    results = made["uniform"]["facts"]
    assert len(set(results["accuracy"])) == 1 and abs(results["accuracy"][0] - 0.25) < 0.12
    assert results["nll"] == pytest.approx([np.log(4)] * 10) and results["temperatures"] == [1.0] * 10
    assert "calibration.json" not in made["uniform"]["outputs"]


@pytest.mark.parametrize("name", ROUTERS)
def test_everything_is_told_by_noise_level(made, name):
    results = made[name]["facts"]
    told = {"accuracy", "accuracy_without_class", "nll", "calibration_error"}
    if ROUTERS[name]["router"].get("temperature"):
        told |= {"scaled_nll", "scaled_calibration_error", "temperatures"}
    assert {key for key, value in results.items() if isinstance(value, list)} == told | {"noise_levels"}
    assert all(len(results[key]) == len(results["noise_levels"]) for key in told)
    assert (results["train_flops"] > 0) == ("training" in ROUTERS[name]["router"])


@pytest.mark.parametrize("name", ["distance", "feature"])
def test_distances_are_too_sure_of_themselves_and_their_temperatures_mend_it(made, name):
    results = made[name]["facts"]
    assert np.mean(results["temperatures"]) > 1.5
    assert np.mean(results["scaled_calibration_error"]) < 0.8 * np.mean(results["calibration_error"])
    assert np.mean(results["scaled_nll"]) < 0.8 * np.mean(results["nll"])


def test_what_was_trained_balanced_carries_the_natural_prior(made):
    shares = made["sizes"] / sum(made["sizes"])
    stored = checked_reads.read_json(made["balanced"]["folder"] / "calibration.json")
    assert stored["log_prior"] == pytest.approx(np.log(shares).tolist(), abs=1e-12)
    router = loaded(made, "balanced")
    assert isinstance(router, CalibratedRouter) and not isinstance(loaded(made, "natural"), CalibratedRouter)
    torch.testing.assert_close(router.log_prior.double(), torch.from_numpy(shares).log(), rtol=0, atol=1e-6)


def test_where_the_image_says_nothing_the_balanced_router_says_how_large_the_clusters_are(made):
    x, t, nobody = torch.randn(400, 1, 28, 28), torch.ones(400), torch.full((400,), 10)
    shares = torch.from_numpy(made["sizes"] / sum(made["sizes"]))
    router = loaded(made, "balanced")
    # Without its temperatures, which few held-out images give: below one they exaggerate the prior, too.
    router.temperatures.fill_(1.0)
    corrected, alone = (one(x, t, nobody).softmax(1).mean(0) for one in (router, router.router))
    assert (corrected - shares).abs().sum() < 0.75 * (alone - shares).abs().sum()


def test_another_calibration_than_the_manifests_is_refused(made):
    file = made["balanced"]["folder"] / "calibration.json"
    before = file.read_text()
    file.write_text(before.replace("levels", "levels "))
    with pytest.raises(UserError, match="calibration.json: its bytes are not those of its manifest"):
        loaded(made, "balanced")
    file.write_text(before)


@pytest.mark.parametrize("experts", [4, 3])
def test_a_refit_changes_the_head_and_nothing_else(made, refits, experts):
    before, after = (load_file(one["folder"] / "weights.safetensors") for one in (made["natural"], refits[experts]))
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith("trunk.")}
    assert after["head.weight"].shape == (experts, 48) and refits[experts]["facts"]["accuracy"][LOW] > 0.6


def test_a_refit_is_billed_without_the_backward_pass_that_it_saves(made, refits):
    full, head = made["natural"]["facts"], refits[3]["facts"]
    assert head["images"] == full["images"] and 0.3 < head["train_flops"] / full["train_flops"] < 0.4


def test_a_refit_from_another_network_names_the_tensor(made, bench, tmp_path):
    # Beside its manifest, a file would be refused by its settings.
    weights = made["natural"]["folder"] / "weights.safetensors"
    start = {"weights": str(shutil.copy(weights, tmp_path))}
    wider = trained(refit=start)
    wider["router"]["model"] = wider["router"]["model"] | {"width": 96}
    settings, unit = bench.router("wider", **wider)
    with pytest.raises(UserError, match=r"refit.weights: .*trunk.embed_patch.weight is \[48, 16\], here it is \[96"):
        build_router.build_initialised(settings, resolve_training(settings, unit.key), unit)
    settings, unit = bench.router("nowhere", **trained(refit={"weights": str(made["root"] / "images" / "none")}))
    with pytest.raises(UserError, match="none: no weights to start from"):
        build_router.build_initialised(settings, resolve_training(settings, unit.key), unit)


def drawer(monkeypatch, stop_at=None, unit=None):
    """Count the batches that are drawn, and tell the unit to leave during one of them."""
    drawn, real = [], router_samples.sample

    def counting(field, seed, numbers, *rest):
        drawn.append(numbers)
        if len(drawn) == stop_at:
            unit.stop.reason = "told to"
        return real(field, seed, numbers, *rest)

    monkeypatch.setattr(router_samples, "sample", counting)
    return drawn


def test_an_interrupted_drawing_goes_on_where_it_was(bench, monkeypatch):
    settings, unit = bench.router("whole", **trained(samples=SAMPLES))
    whole = drawer(monkeypatch)
    reader, plan = router_samples.draw_missing(settings, unit)
    monkeypatch.undo()
    settings, unit = bench.router("stopped", **trained(samples=SAMPLES))
    before = drawer(monkeypatch, 3, unit)
    with pytest.raises(Stopped, match="told to"):
        router_samples.draw_missing(settings, unit)
    monkeypatch.undo()
    _, unit = bench.router("stopped", **trained(samples=SAMPLES))
    after = drawer(monkeypatch)
    again, _ = router_samples.draw_missing(settings, unit)
    assert before == whole[:3] and after == whole[3:] and len(whole) == len(plan.batches())
    numbers = [number for batch in whole for number in batch]
    assert len(set(numbers)) == len(numbers) == sum(plan.images) and min(numbers) >= router_samples.FIRST_NUMBER
    rows = range(len(reader))
    assert np.array_equal(again.images(rows), reader.images(rows)) and reader.images(rows).std() > 10
    router_samples.draw_missing(settings, bench.router("stopped", **trained(samples=SAMPLES))[1])
    assert after == whole[3:]
    assert not list(unit.state.glob("drawn-*"))


def test_two_ranks_share_the_drawing_and_nothing_changes(bench, monkeypatch):
    settings, unit = bench.router("one-rank", **trained(samples=SAMPLES))
    whole = drawer(monkeypatch)
    reader, _ = router_samples.draw_missing(settings, unit)
    monkeypatch.undo()
    settings, first = bench.router("two-ranks", **trained(samples=SAMPLES))
    ranks = [replace(first, ranks=Ranks(rank, rank, 2, 1, "me")) for rank in range(2)]
    monkeypatch.setattr(router_samples, "POLL_SECONDS", 0.01)
    shared = drawer(monkeypatch)
    with ThreadPoolExecutor() as pool:
        read = [one.result()[0] for one in [pool.submit(router_samples.draw_missing, settings, unit) for unit in ranks]]
    assert sorted(map(str, shared)) == sorted(map(str, whole))
    rows = range(len(reader))
    assert all(np.array_equal(one.images(rows), reader.images(rows)) for one in read)


def test_samples_of_another_expert_are_not_taken_for_these(bench, monkeypatch):
    settings, unit = bench.router("changed", **trained(samples=SAMPLES))
    first = drawer(monkeypatch)
    router_samples.draw_missing(settings, unit)
    batches = len(first)
    key = "train/expert-02"
    found = unit.inputs[key]
    unit.inputs[key] = type(found)(**vars(found) | {"outputs": [type(found.outputs[0])("weights.safetensors", 1, "x")]})
    stored = checked_reads.read_json(unit.folder / "samples.json")
    assert router_samples.SamplePlan.of(settings, unit.inputs).key != stored["key"]
    with pytest.MonkeyPatch.context() as patch:
        # Its weights are the old ones, which loading would notice.
        patch.setattr(loop.manifest, "recorded_digest", lambda folder, name: None)
        router_samples.draw_missing(settings, unit)
    assert len(first) == 2 * batches


def test_experts_draw_in_proportion_to_their_clusters_and_classes_as_in_their_own(made, bench):
    drawn = checked_reads.read_json(made["samples"]["folder"] / "samples.json")
    counts, sizes = np.array(drawn["counts"]), made["sizes"]
    assert counts.sum() == 4 * SAMPLES["images"]
    assert np.abs(counts.sum(1) - counts.sum() * sizes / sizes.sum()).max() < 1
    reader = run_samples.open_reader(bench.unit(ROUTER), "train")
    labels, clusters = (ask(range(len(reader))).numpy() for ask in (reader.labels, reader.clusters))
    for expert in range(4):
        own = np.bincount(labels[clusters == expert], minlength=10)
        assert np.abs(counts[expert] - counts[expert].sum() * own / own.sum()).max() < 1
    images = np.load(made["samples"]["folder"] / "samples.npy")
    assert images.shape == (100, 28, 28, 1) and images.dtype == np.uint8


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_drawing_is_billed_as_it_is_counted_while_it_happens(bench, guidance):
    settings, unit = bench.router(f"billed-{guidance}", **trained(samples=SAMPLES | {"guidance": guidance}))
    with FlopCounterMode(display=False) as counter:
        _, plan = router_samples.draw_missing(settings, unit)
    assert flops_budget.router_samples_flops(settings, plan.images) == counter.get_total_flops() > 0
    assert flops_budget.router_flops(settings) == flops_budget.router_fit_flops(settings) + counter.get_total_flops()
