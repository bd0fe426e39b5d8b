"""What the report makes of manifests and features: bills, measures, words."""

from types import SimpleNamespace

import numpy as np
import pytest

from hpcddm.pipeline.keys import CATALOG, MONOLITH, ROUTER, STUDENT, expert_key
from hpcddm.report import run_summary
from hpcddm.stages import report
from tests.helpers import tiny
from tests.metrics.sets import image_set


def unit(flops=0, **more):
    """A manifest of a finished unit."""
    return SimpleNamespace(
        results={"train_flops": flops, "images": 64, "samples": 40} | more,
        outputs=[],
        record={"seconds": 60, "world_size": 2},
    )


INPUTS = {
    CATALOG: unit(splits={"train": {"samples": 900}}), MONOLITH: unit(1000), STUDENT: unit(300), ROUTER: unit(10),
    expert_key(0): unit(400), expert_key(1): unit(500),
}  # fmt: skip
TWO_EXPERTS = SimpleNamespace(
    cluster=SimpleNamespace(experts=2),
    experts=SimpleNamespace(training=SimpleNamespace(ema_halflife_images=100)),
    evaluate=SimpleNamespace(snapshot=None, ema_halflife_images=None, sigma_rel=None),
)
METRICS = {"extractor": {"name": "small_cnn", "sha256": "ab" * 32}, "judge": {"heldout_accuracy": 0.9}}


def test_every_arm_has_its_own_bill():
    assert report._train_flops(TWO_EXPERTS, INPUTS) == {"monolith": 1000, "student": 300, "ensemble": 910}
    there = {key: found for key, found in INPUTS.items() if key not in (MONOLITH, STUDENT, expert_key(1))}
    assert report._train_flops(TWO_EXPERTS, there) == {"ensemble": 410}


def test_the_bill_of_a_snapshot_is_that_of_the_images_until_then(tmp_path):
    kept = {"experts__training__snapshots": [32], "evaluate__snapshot": 32}
    taken = {"32": {"images": 32, "train_flops": 90}}
    inputs = {key: unit(400, snapshots=taken) for key in (MONOLITH, expert_key(0), expert_key(1))}
    inputs |= {CATALOG: INPUTS[CATALOG], ROUTER: unit(10)}
    assert report._train_flops(tiny(tmp_path, **kept), inputs) == {"monolith": 90, "ensemble": 190}
    said = dict(run_summary.rows(tiny(tmp_path, **kept), METRICS, inputs))
    assert said["Weights"] == "after 32 images of all experts together"
    inputs[ROUTER] = unit(10, snapshots={"16": {"images": 16, "train_flops": 4}})
    kept["router__training__snapshots"] = [16]
    assert report._train_flops(tiny(tmp_path, **kept), inputs)["ensemble"] == 184
    assert "16 images of all clusters" in dict(run_summary.rows(tiny(tmp_path, **kept), METRICS, inputs))["Router"]


SEED = {"sha256": "cd" * 32, "source": "digits", "images": 12000, "train_flops": 7000}
FOREIGN = {"sha256": "ef" * 32, "source": "DiT.pt", "images": None, "train_flops": None}


def test_a_start_is_on_the_bill_of_every_arm_and_once():
    begun = {key: unit(100, start=SEED) for key in (MONOLITH, STUDENT, expert_key(0), expert_key(1))}
    assert report._train_flops(TWO_EXPERTS, INPUTS | begun) == {"monolith": 7100, "student": 7100, "ensemble": 7210}
    other = SEED | {"sha256": "00" * 32, "train_flops": 50}
    assert (
        report._train_flops(TWO_EXPERTS, INPUTS | begun | {expert_key(1): unit(100, start=other)})["ensemble"] == 7260
    )
    assert report._train_flops(TWO_EXPERTS, INPUTS | {ROUTER: unit(10, start=other)})["ensemble"] == 960
    assert report._train_flops(TWO_EXPERTS, INPUTS | {MONOLITH: unit(100, start=FOREIGN)})["monolith"] == 100


def test_facts_name_what_was_started_from(tmp_path):
    assert "Start" not in dict(
        run_summary.rows(tiny(tmp_path), METRICS, {k: v for k, v in INPUTS.items() if k != STUDENT})
    )
    begun = INPUTS | {key: unit(100, start=SEED) for key in (MONOLITH, expert_key(0))}
    said = dict(run_summary.rows(tiny(tmp_path, distill={}), METRICS, begun))["Start"]
    words = "digits, SHA-256 cdcdcdcdcdcdcdcd: 12,000 images seen, on the bill of every arm that began there"
    assert said == words
    begun[expert_key(1)] = unit(100, start=FOREIGN)
    said = dict(run_summary.rows(tiny(tmp_path, distill={}), METRICS, begun))["Start"]
    assert said.endswith("; DiT.pt, SHA-256 efefefefefefefef: images unknown, which no bill holds")


@pytest.mark.filterwarnings("ignore:Frechet")
def test_real_against_itself_is_perfect_and_a_collapsed_arm_is_not():
    random = np.random.default_rng(0)
    real = image_set(random.standard_normal((80, 6)) + 3 * (np.arange(80) % 4)[:, None])
    same = report._measures(real, real)
    perfect = {"fd": 0, "kid": same["kid"], "agreement": 0.8, "precision": 1, "recall": 1, "density": 1, "coverage": 1}
    assert same == pytest.approx(perfect | {"diversity": 1, "images": 80}, abs=1e-9)
    # Of each class always the same image, nearly.
    copies = np.tile(real.features[:4], (20, 1)) + 0.01 * random.standard_normal((80, 6))
    collapsed = report._measures(image_set(copies), real)
    assert collapsed["diversity"] < 0.02 and collapsed["recall"] < 0.1 and collapsed["coverage"] < 0.5
    assert collapsed["precision"] == 1


def test_a_router_shows_what_was_measured_of_it_and_nothing_else():
    assert report._router({"images": 3}) is None
    measured = {"noise_levels": [0.1], "accuracy": [0.9], "calibration_error": [0.1], "nll": [0.2], "images": 3}
    shown = report._router(measured)
    assert shown.accuracy == {"with condition": [0.9]}
    assert shown.calibration == {"as made": [0.1]} and shown.surprise == {"as made": [0.2]}
    scaled = report._router(measured | {"scaled_calibration_error": [0.01], "accuracy_without_class": [0.5]})
    assert scaled.calibration == {"as made": [0.1], "with temperature": [0.01]}
    assert scaled.accuracy["without condition"] == [0.5]


def test_a_variant_in_words_is_its_name_and_what_is_not_as_by_default(tmp_path):
    experiment = tiny(tmp_path, encode__encoder={"name": "pixels", "size": 4})
    assert run_summary.brief(experiment.encode.encoder) == "pixels (size 4)"
    assert run_summary.brief(type(experiment.encode.encoder)(name="pixels")) == "pixels"
    objectives = [{"name": "flow_matching"}, {"name": "epsilon", "schedule": {"name": "linear_beta"}, "shift": 2.0}]
    words = [run_summary.brief(tiny(tmp_path, experts__objective=one).experts.objective) for one in objectives]
    assert words == ["flow_matching", "epsilon (schedule linear_beta, shift 2.0)"]


def test_each_denoiser_is_shown_with_its_own_config(tmp_path):
    small = {"name": "dit", "width": 8, "depth": 1, "heads": 1, "patch": 4}
    mixed = [{"clusters": [1], "objective": {"name": "epsilon"}, "model": small, "precision": "bf16"}]
    rows = run_summary.trained_denoisers(tiny(tmp_path, experts__overrides=mixed, distill={}), INPUTS)
    assert [row.unit for row in rows] == [MONOLITH, STUDENT, expert_key(0), expert_key(1)]
    assert [row.objective.split()[0] for row in rows] == [*["flow_matching"] * 3, "epsilon"]
    assert [row.precision for row in rows] == ["fp32"] * 3 + ["bf16"] and [row.flops for row in rows][1] == 300
    assert {row.passes for row in rows} == {1.6} and {row.rank_hours for row in rows} == {1 / 30}
    assert rows[0].parameters == rows[2].parameters > 2 * rows[3].parameters > 0


def test_facts_say_how_it_was_sampled(tmp_path):
    settings = {
        "shift": 3.0,
        "guidance": 2.0,
        "guidance_interval": [0.1, 0.8],
        "posteriors": "shared",
        "route_every": 4,
    }
    experiment = tiny(tmp_path, distill={"teacher": "router"}, **{f"evaluate__{k}": v for k, v in settings.items()})
    said = dict(run_summary.rows(experiment, METRICS, INPUTS))
    assert said["Guidance"] == "scale 2 at times from 0.1 to 0.8, shared posteriors of its two halves"
    assert said["Solver"] == "euler, 2 steps with shift 3" and "asked every 4 steps" in str(said)
    assert "the router names" in said["Student"] and "64 images of all clusters, natural" in said["Router"]
    assert said["Process time of all units"] == "12.0 minutes"
    own = tiny(tmp_path, experts__overrides=[{"clusters": [1], "images": 96}])
    own_rows = dict(run_summary.rows(own, METRICS, {key: INPUTS[key] for key in INPUTS if key != STUDENT}))
    assert own_rows["Images seen by all experts together"] == "128, some of them by numbers of their own"
    plain = dict(run_summary.rows(tiny(tmp_path), METRICS, {key: INPUTS[key] for key in INPUTS if key != STUDENT}))
    assert "Student" not in plain and plain["Guidance"].startswith("scale 1, ") and "every step" in str(plain)
