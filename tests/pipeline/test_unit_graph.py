import pytest

from hpcddm.config import variants
from hpcddm.pipeline.unit_graph import STAGE_NAMES, STAGES, plan_units
from hpcddm.runs.unit_keys import (
    CATALOG,
    CLUSTER,
    CLUSTER_REPORT,
    EXPERT_LISTS,
    MONOLITH,
    OTHER_STAGES,
    REPORT,
    ROUTER,
    STUDENT,
    expert_key,
    unit_name,
)
from hpcddm.stages.evaluation.draw import draw_keys, draw_range
from tests.helpers import JOINED, LATENT_SPACE, REPOSITORY, tiny

NOUNS = {"vocabulary": {"name": "captions"}, "tagger": {"name": "lit", "image": {"name": "pixels"}}}
CLASSES = {"vocabulary": {"name": "labels"}, "tagger": {"name": "labels"}}
"""Concepts of captions, and of classes."""


def test_every_stage_has_its_file_and_every_file_of_a_stage_is_in_the_pipeline():
    files = [file for file in (REPOSITORY / "hpcddm" / "stages").rglob("*.py") if "\ndef run(" in file.read_text()]
    assert {file.stem for file in files} == {f"{stage}_job" for stage in (*STAGE_NAMES, *OTHER_STAGES)}


def test_every_unit_comes_once_and_after_what_it_needs(tmp_path):
    seen = []
    for unit in plan_units(tiny(tmp_path, evaluate__units=3)):
        assert unit.key not in seen and set(unit.inputs) <= set(seen)
        seen.append(unit.key)
    others = {"distill", "probe", "copy_lists", "encode_captions", "autoencoder", "latents", "neighbours"}
    others |= {"reference_statistics"} | {name for name in STAGE_NAMES if name.startswith("concept")}
    assert {key.split("/")[0] for key in seen} == set(STAGE_NAMES) - others


def test_a_stage_names_the_stages_that_it_reads(tmp_path):
    student = {"distill": {"teacher": "router"}, "site": "here", "experts__sites": ["here", "elsewhere"]}
    student |= {"experts__probe": {}}
    changes = student | {"router__samples": {"images": 8, "steps": 2}, "evaluate__perceptual": {"name": "lpips_alex"}}
    changes |= {"evaluate__extractors": [{"name": "pixels", "size": 4}], "evaluate__images": 10_008}
    told = student | {"data__condition": {"name": "text", "encoder": {"name": "words"}, "cached": True}}
    read: dict[str, set[str]] = {name: set() for name in STAGES}
    for experiment in (
        changes | {"data__read_from": {"name": "expert_copy"}},
        changes | {"data__space": LATENT_SPACE},
        told,
        told | {"data__space": LATENT_SPACE, "concepts": NOUNS},
        {"concepts": CLASSES},
    ):
        for unit in plan_units(tiny(tmp_path, **experiment)):
            read[unit.stage] |= {key.split("/")[0] for key in unit.inputs}
    assert {name: set(stage.reads) for name, stage in STAGES.items()} == {name: read[name] - {name} for name in read}


BEGIN, LAST = "shard catalog", "draw measure measure_real compare report"
CLUSTERS, TRAINED = "encode cluster assign", "expert_lists cluster_report train router evaluators"


def planned(folder, **changes):
    return {unit.key: unit for unit in plan_units(tiny(folder, **changes))}


def fingerprints(folder, **changes):
    """The settings that each unit of the tiny experiment is hashed by."""
    return {key: unit.fingerprint_settings for key, unit in planned(folder, **changes).items()}


def stale_units(folder, base=None, **changes):
    """The units, of those of some experiment, that these changes of it make stale."""
    before, after = fingerprints(folder, **base or {}), fingerprints(folder, **(base or {}) | changes)
    return {key for key in before.keys() & after.keys() if before[key] != after[key]}


CHANGES = {"name": "other", "seed": 1, "data__channels": 3, "data__heldout_shards": 2, "encode__encoder__size": 3}
CHANGES |= {"cluster__clustering__fine_clusters": 9, "router__model__depth": 2, "router__training__weight_decay": 0.1}
CHANGES |= {"experts__model__depth": 2, "experts__condition_dropout": 0.2, "experts__other_clusters_share": 0.1}
CHANGES |= {"experts__training__learning_rate": 0.02, "experts__objective__shift": 2.0}
CHANGES |= {"evaluators__classifier__training__images": 32, "evaluators__extractor__model__features": 9}
CHANGES |= {"evaluate__guidance": 2.0, "evaluate__guidance_interval": [0.1, 0.9], "evaluate__shift": 3.0}
CHANGES |= {"evaluate__conversion": {"name": "snr_matched", "x0_clamp": 2.0}, "evaluate__posteriors": "shared"}
CHANGES |= {"evaluate__renormalise": False, "evaluate__route_every_steps": 2, "router__frequency": "balanced"}
CHANGES |= {"router__temperature": "one", "evaluate__steps": 3, "evaluate__strategies": ["full"]}


def test_every_setting_but_a_place_is_under_some_fingerprint(tmp_path):
    before = fingerprints(tmp_path)
    for key, value in CHANGES.items():
        after = fingerprints(tmp_path, **{key: value})
        named = {name for unit in before for name in after[unit] if after[unit][name] != before[unit].get(name)}
        assert any(name.startswith(key.replace("__", ".")) for name in named), key


EXPERTS = {expert_key(0), expert_key(1)}
EVALUATORS = {"evaluators/classifier", "evaluators/extractor"}
STALE = [
    ({"router__training__images": 128}, {ROUTER, MONOLITH}),
    ({"evaluators__classifier__training__images": 128}, {"evaluators/classifier"}),
    ({"evaluators__extractor__seed": 1}, {"evaluators/extractor"}),
    ({"experts__training__images": 128}, {MONOLITH, *EXPERTS}),
    ({"data__order": {"name": "windowed"}}, {MONOLITH, ROUTER, *EXPERTS, *EVALUATORS}),
    ({"data__augmentations": [{"name": "flip"}]}, {MONOLITH, ROUTER, *EXPERTS}),
    ({"experts__other_clusters_share": 0.1}, {EXPERT_LISTS}),
    ({"encode__encoder__size": 2}, {f"encode/{part}" for part in ("train-000", "train-001", "heldout-000")}),
    # What is said is what was meant before; how many experts are enough shapes nothing.
    *(({key: value}, set()) for key, value in (("data__augmentations", []), ("experts__other_clusters_share", 0.0))),
    ({"evaluate__min_experts": 1}, set()),
]


def test_a_setting_makes_stale_what_it_shapes_and_nothing_else(tmp_path):
    found = [(changes, stale_units(tmp_path, **changes)) for changes, _ in STALE]
    assert [pair for pair, expected in zip(found, STALE, strict=True) if pair != expected] == []


def test_an_expert_is_hashed_by_its_own_numbers_and_not_by_that_of_experts(tmp_path):
    twice = {"images": 128, "batch": 32, "ema_halflife_images": 200}
    changes = {f"experts__training__{key}": value for key, value in twice.items()} | {"cluster__experts": 4}
    stale = stale_units(tmp_path, **changes)
    assert not EXPERTS & stale and MONOLITH in stale
    assert fingerprints(tmp_path, **changes)[expert_key(0)]["training.images"] == 32


def test_an_expert_counts_its_own_list_alone_and_nothing_counts_where_samples_lie(tmp_path):
    units = planned(tmp_path, distill={"share": 0.5})
    assert units[expert_key(1)].parts == {CATALOG: "", EXPERT_LISTS: "expert-01"}
    assert units[MONOLITH].parts == {CATALOG: "train", EXPERT_LISTS: ""}
    for unit in units.values():
        assert unit.parts.keys() <= set(unit.requires), unit.key
        if unit.stage in ("router", "distill", "draw", "report"):
            assert unit.parts == {CATALOG: "all", EXPERT_LISTS: "all"}


def counted(unit):
    """Required units that count in a unit's fingerprint, with the part of each that does."""
    return {key: unit.parts.get(key) for key in unit.requires if unit.parts.get(key) != ""}


@pytest.mark.parametrize("name", variants.list_variants("data/readings"))
def test_how_samples_are_read_is_under_no_fingerprint(tmp_path, name):
    joined = {"experts__extra": [JOINED]}
    before, after = planned(tmp_path, **joined), planned(tmp_path, data__read_from={"name": name}, **joined)
    copies = [key for key in after if key not in before]
    listed = ["expert-00", "expert-01", "hats"] if name == "expert_copy" else []
    assert copies == [f"copy_lists/{list_name}" for list_name in listed]
    for key, unit in before.items():
        assert after[key].fingerprint_settings == unit.fingerprint_settings and counted(after[key]) == counted(unit)
    lists = {"hats": "expert_lists/hats"}
    for key in copies:
        assert after[key].parts == {CATALOG: "", lists.get(unit_name(key), EXPERT_LISTS): unit_name(key)}


def test_copies_without_exif_are_other_copies_and_the_same_training(tmp_path):
    copies = ({"name": "expert_copy", "exif": exif} for exif in ("keep", "drop"))
    before, after = (planned(tmp_path, data__read_from=read) for read in copies)
    changed = [key for key in before if after[key].fingerprint_settings != before[key].fingerprint_settings]
    assert changed == ["copy_lists/expert-00", "copy_lists/expert-01"]
    assert all(counted(after[key]) == counted(before[key]) for key in before)


def test_one_ruler_measures_all_seeds_of_an_experiment(tmp_path):
    stale = stale_units(tmp_path, seed=1)
    assert not EVALUATORS & stale and ROUTER in stale


@pytest.mark.parametrize("units", [1, 3, 7])
def test_evaluation_units_part_the_samples_in_whole_batches(tmp_path, units):
    experiment = tiny(tmp_path, evaluate__images=80, evaluate__batch=8, evaluate__units=units)
    ranges = [draw_range(key) for key in draw_keys(experiment)]
    assert len(ranges) == units and ranges[0][0] == 0 and ranges[-1][1] == 80
    assert all(stop == start for (_, stop), (start, _) in zip(ranges, ranges[1:], strict=False))
    assert all(start < stop and (stop - start) % 8 == 0 for start, stop in ranges)
    sizes = [stop - start for start, stop in ranges]
    assert max(sizes) - min(sizes) <= 8


def test_an_evaluation_that_begins_later_has_ranges_of_its_own_and_the_same_fingerprint(tmp_path):
    whole, later = (
        tiny(tmp_path, evaluate__images=images, evaluate__batch=8, evaluate__units=2, evaluate__first_sample=first)
        for images, first in ((80, 0), (40, 40))
    )
    assert draw_keys(later) == ["draw/0000040-0000056", "draw/0000056-0000080"]
    whole, later = ([unit for unit in plan_units(one) if unit.stage == "draw"][0] for one in (whole, later))
    assert whole.fingerprint_settings == later.fingerprint_settings, "a range's samples are the same in both"


def test_the_final_step_wants_the_experts_and_can_do_without_what_it_is_told_to(tmp_path):
    for minimum, enough in ((None, 2), (1, 1), (2, 2)):
        units = {unit.stage: unit for unit in plan_units(tiny(tmp_path, evaluate__min_experts=minimum))}
        for unit, extras in ((units["draw"], []), (units["report"], [CLUSTER_REPORT])):
            assert (list(unit.optional), unit.min_optional) == ([expert_key(0), expert_key(1), *extras], enough)
            assert list(unit.extras) == extras and not unit.missing_inputs(extras)
            assert not unit.optional.keys() & set(unit.requires)
        assert {stage for stage, unit in units.items() if unit.optional} == {"draw", "report"}


COSINE = {"name": "epsilon", "schedule": {"name": "cosine"}}


def test_an_experts_own_settings_make_it_stale_and_the_monolith_whose_bill_they_change(tmp_path):
    model = {"name": "dit", "width": 16, "depth": 1, "heads": 2, "patch": 4}
    for own, others in (
        ({"objective": COSINE}, set()),
        ({"model": model}, {MONOLITH}),
        ({"learning_rate": 0.5}, set()),
        ({"images": 64}, {MONOLITH}),
        ({"batch": 4}, {MONOLITH}),
    ):
        stale = stale_units(tmp_path, experts__overrides=[{"clusters": [1], **own}])
        # What draws samples is told of other objectives and networks.
        trained = {key for key in stale if key.startswith(("train", "router"))}
        assert trained == {expert_key(1), *others}, own
        assert own.keys() & {"objective", "model"} or trained == stale, own


@pytest.mark.parametrize("teacher, asked", [("cluster", False), ("router", True)])
def test_the_student_reads_all_experts_and_the_router_where_it_teaches(tmp_path, teacher, asked):
    units = planned(tmp_path, distill={"teacher": teacher, "share": 0.5})
    assert {expert_key(0), expert_key(1)} <= set(units[STUDENT].requires)
    assert (ROUTER in units[STUDENT].requires) == asked
    assert all(STUDENT in unit.requires for unit in units.values() if unit.stage in ("draw", "report"))


def test_prompts_are_nothing_to_models_that_do_not_read_them(tmp_path):
    text = {"name": "text", "encoder": {"name": "words"}, "prompts": ["a", "b", "c", "d"]}
    stale = stale_units(tmp_path, {"router__model__condition": "none"}, data__condition=text)
    assert {expert_key(0), MONOLITH, REPORT} <= stale
    assert not {ROUTER, CLUSTER, "shard/train-000", "evaluators/classifier"} & stale


@pytest.mark.parametrize("teacher, stale", [("cluster", False), ("router", True)])
def test_how_a_routers_weights_are_read_is_under_the_fingerprints_of_what_asks_it(tmp_path, teacher, stale):
    base = {"router__training": None, "monolith__enabled": False, "distill": {"teacher": teacher, "share": 0.5}}
    base |= {"router__model": {"name": "distance_router"}}
    changed = stale_units(tmp_path, base, router__model={"name": "distance_router", "temperature": 9.0})
    assert {ROUTER, REPORT, "draw/0000000-0000024"} <= changed
    assert (STUDENT in changed) == stale
