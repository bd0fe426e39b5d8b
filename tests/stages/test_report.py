"""What the report makes of manifests and features: bills, measures, words."""

from types import SimpleNamespace

import pytest

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.evaluation import training_costs
from hpcddm.evaluation.report import protocol, run_summary
from hpcddm.runs.files import list_name
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, MONOLITH, ROUTER, STUDENT, expert_key
from hpcddm.stages.report import report_job
from hpcddm.training import flops_budget
from tests.helpers import changed, tiny


def unit(flops=0, **more):
    """A manifest of a finished unit."""
    return SimpleNamespace(
        results={"train_flops": flops, "images": 64, "samples": 40} | more,
        outputs=[],
        record={"seconds": 60, "world_size": 2},
    )


LISTED = {list_name(expert): {"samples": 20} for expert in (0, 1)}
INPUTS = {
    CATALOG: unit(splits={"train": {"samples": 900}}), EXPERT_LISTS: unit(lists=LISTED), MONOLITH: unit(),
    STUDENT: unit(), ROUTER: unit(), expert_key(0): unit(), expert_key(1): unit(),
}  # fmt: skip
WITHOUT_STUDENT = {key: found for key, found in INPUTS.items() if key != STUDENT}
METRICS = {"extractors": {"own": {"name": "small_cnn", "sha256": "ab" * 32}}, "classifier": {"heldout_accuracy": 0.9}}
METRICS |= {"arms": {"top-1": {"fd@own": 2.0}}}


@pytest.fixture(autouse=True, scope="module")
def counted_once():
    """Count the FLOPs of every network of these tests, but of equal networks once."""
    known = {}

    def remembered(count):
        def counted(experiment, *config):
            model = (config or (experiment.router,))[0].model
            key = (count.__name__, experiment.data.model_dump_json(), model.model_dump_json())
            known[key] = known[key] if key in known else count(experiment, *config)
            return known[key]

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("train_flops", "evaluation_flops", "router_train_flops"):
            patch.setattr(flops_budget, name, remembered(getattr(flops_budget, name)))
        yield


def costs(settings):
    """FLOPs of one image: of a denoiser, and of the teacher of the student; and of the router's whole training."""
    one = flops_budget.train_flops(settings, settings.expert_config())
    teacher = round(flops_budget.teacher_flops(settings)) if settings.distill else 0
    return one, teacher, flops_budget.router_flops(settings)


def test_every_arm_has_its_own_bill_whatever_manifests_say(tmp_path):
    experiment = tiny(tmp_path, distill={"share": 0.5})
    one, teacher, router = costs(experiment)
    dense = flops_budget.training_of(experiment, MONOLITH).settings.images * one
    # Each expert sees half of the 64 images, as does the student.
    expected = {"monolith": dense, "student": 32 * (one + teacher), "ensemble": 64 * one + router}
    assert report_job._train_flops(experiment, INPUTS) == expected
    lies = {key: unit(-(10**15), images=1) for key in (MONOLITH, expert_key(0), ROUTER)}
    assert report_job._train_flops(experiment, INPUTS | lies) == expected
    there = {key: found for key, found in INPUTS.items() if key not in (MONOLITH, STUDENT, expert_key(1))}
    assert report_job._train_flops(experiment, there) == {"ensemble": 32 * one + router}


def test_the_bill_of_a_snapshot_is_that_of_the_images_until_then(tmp_path):
    kept = {"experts__training__snapshots": [32], "evaluate__snapshot": 32}
    experiment = tiny(tmp_path, **kept)
    one, _, router = costs(experiment)
    assert report_job._train_flops(experiment, WITHOUT_STUDENT)["ensemble"] == 32 * one + router
    assert protocol.describe(experiment, METRICS)["Weights"] == "after 32 images of all experts together"
    experiment = tiny(tmp_path, **kept, router__training__snapshots=[16])
    assert report_job._train_flops(experiment, WITHOUT_STUDENT)["ensemble"] == 32 * one + router // 4
    assert "16 images of all clusters" in dict(run_summary.rows(experiment, METRICS, WITHOUT_STUDENT))["Router"]


def test_a_record_that_differs_is_a_contradiction_by_name(tmp_path):
    experiment = tiny(tmp_path, distill={})
    sound = {key: unit(own.train_flops, images=own.images, samples=own.samples)
             for key, own in training_costs.training_costs(experiment, INPUTS).items()}  # fmt: skip
    assert training_costs.contradictions(experiment, INPUTS | sound) == []
    wrong = {expert_key(1): unit(-(10**15), images=1, samples=20), ROUTER: unit("lots", images=64)}
    one, _, router = costs(experiment)
    assert training_costs.contradictions(experiment, INPUTS | sound | wrong) == [
        f"train/expert-01 records images 1 instead of 32, train_flops -1000000000000000 instead of {32 * one}",
        f"router/all records train_flops lots instead of {router}",
    ]
    shown = run_summary.rows(experiment, METRICS | {"contradictions": ["first", "second"]}, INPUTS)
    assert [value for title, value in shown if title == "Contradiction"] == ["first", "second"]


SEED = {"sha256": "cd" * 32, "source": "digits", "images": 12000, "train_flops": 7000}
FOREIGN = {"sha256": "ef" * 32, "source": "DiT.pt", "images": None, "train_flops": None}


def begun(tmp_path, starts):
    """Settings and inputs of units that began with files of these records, by unit."""
    files = {key: {"weights": str(tmp_path / "a"), "content_hash": start["sha256"]} for key, start in starts.items()}
    experts = [expert for expert in (0, 1) if expert_key(expert) in files]
    own = [{"clusters": [expert], "init_from": files[expert_key(expert)]} for expert in experts]
    common = {"experts__init_from": files[MONOLITH]} if MONOLITH in files else {}
    experiment = tiny(tmp_path, distill={}, experts__overrides=own, **common)
    return experiment, INPUTS | {key: unit(start=start) for key, start in starts.items()}


def test_a_start_is_on_the_bill_of_every_arm_and_once(tmp_path):
    keys = (MONOLITH, STUDENT, expert_key(0), expert_key(1))
    plain = report_job._train_flops(tiny(tmp_path, distill={}), INPUTS)

    def more(starts):
        billed = report_job._train_flops(*begun(tmp_path, starts))
        return {arm: billed[arm] - flops for arm, flops in plain.items()}

    assert more(dict.fromkeys(keys, SEED)) == {"monolith": 7000, "student": 7000, "ensemble": 7000}
    other = SEED | {"sha256": "00" * 32, "train_flops": 50}
    assert more(dict.fromkeys(keys, SEED) | {expert_key(1): other})["ensemble"] == 7050
    assert more(dict.fromkeys((MONOLITH, STUDENT), FOREIGN)) == {"monolith": 0, "student": 0, "ensemble": 0}


LIES = [SEED | {"train_flops": -1}, SEED | {"images": "many"}, SEED | {"sha256": "00" * 32}, SEED | {"source": 3}, None]


@pytest.mark.parametrize("lie", LIES)
def test_a_start_that_makes_no_sense_is_on_no_bill_and_a_contradiction(tmp_path, lie):
    settings, inputs = begun(tmp_path, {expert_key(0): SEED})
    plain = report_job._train_flops(settings, inputs)["ensemble"]
    inputs[expert_key(0)] = unit(start=lie)
    assert report_job._train_flops(settings, inputs)["ensemble"] == plain - 7000
    line = next(line for line in training_costs.contradictions(settings, inputs) if line.startswith("train/expert-00"))
    assert line.endswith("other initial weights than the experiment has")
    # And a unit that has begun with random weights has no start.
    inputs[expert_key(1)] = unit(start=SEED)
    lines = training_costs.contradictions(settings, inputs)
    assert any(line.startswith("train/expert-01") and "initial" in line for line in lines)


def test_facts_name_what_was_started_from(tmp_path):
    def said(settings, inputs):
        return dict(run_summary.rows(settings, METRICS, inputs)).get("Start")

    assert said(tiny(tmp_path), WITHOUT_STUDENT) is None
    words = "digits, SHA-256 cdcdcdcdcdcdcdcd: 12,000 images seen, FLOPs counted for every arm that started from it"
    starts = {expert_key(0): SEED}
    assert said(*begun(tmp_path, starts)) == words
    words += "; DiT.pt, SHA-256 efefefefefefefef: images unknown, FLOPs unknown, not counted"
    assert said(*begun(tmp_path, starts | {expert_key(1): FOREIGN})) == words


def test_facts_say_how_it_was_sampled(tmp_path):
    settings = {"shift": 3.0, "guidance": 2.0, "guidance_interval": [0.1, 0.8], "posteriors": "shared"}
    settings |= {"route_every_steps": 4}
    experiment = tiny(tmp_path, distill={"teacher": "router"}, **{f"evaluate__{k}": v for k, v in settings.items()})
    used = protocol.describe(experiment, METRICS)
    assert used["Guidance"] == "scale 2, at times from 0.1 to 0.8, shared posteriors of its halves"
    assert used["Solver"] == "euler, 2 steps with shift 3"
    # Guidance evaluates the expert twice, but not at the second step, whose time is outside of the interval.
    assert used["Network evaluations per image"] == "top-1 3"
    said = dict(run_summary.rows(experiment, METRICS, INPUTS))
    assert "asked every 4 steps" in str(said)
    assert "the router names" in said["Student"] and "64 images of all clusters, natural" in said["Router"]
    assert said["Process time of all units"] == "14.0 minutes"
    own = tiny(tmp_path, experts__overrides=[{"clusters": [1], "images": 96}])
    own_rows = dict(run_summary.rows(own, METRICS, WITHOUT_STUDENT))
    assert own_rows["Images seen by all experts together"] == "128, some of them by numbers of their own"
    plain = dict(run_summary.rows(tiny(tmp_path), METRICS, WITHOUT_STUDENT))
    assert "Student" not in plain and "every step" in str(plain)


PUBLISHED = {
    "data__num_classes": 1000,
    "data__image_size": 256,
    "data__transform": {"name": "adm_centre_crop"},
    "evaluate__images": 50_000,
}


def with_settings(experiment, settings):
    """The same experiment with other settings, whose data nobody reads."""
    return validate(Experiment, changed(experiment.model_dump(mode="json"), **settings), "test")


INCEPTION = METRICS | {"arms": {"top-1": {"fd@inception-2015": 2.0}}}


def test_figures_are_comparable_with_published_ones_or_every_reason_is_named(tmp_path):
    experiment = tiny(tmp_path)
    own = protocol.describe(experiment, METRICS)["Beside published figures"]
    assert own.startswith("not comparable with ADM-style ImageNet FID-50k, because the networks are not conditional")
    reasons = ("8 pixels a side", "by centre_crop instead of adm", "24 samples instead", "inception_2015", "--against")
    assert all(reason in own for reason in reasons) and own.count(";") == len(reasons)
    published = with_settings(experiment, PUBLISHED)
    said = protocol.compare_with_published(published, 50_000, INCEPTION, "adm.npz")
    assert said.startswith("comparable with") and "balanced" in said and "adm.npz" in said
    drawn = with_settings(published, {"evaluate__labels": "uniform"})
    assert "drawn at random" in protocol.compare_with_published(drawn, 50_000, INCEPTION, "adm.npz")
    assert "not comparable" in protocol.compare_with_published(published, 10_000, INCEPTION, "adm.npz")
    assert "not comparable" in protocol.compare_with_published(published, 50_000, METRICS, "adm.npz")
