import pytest

from hpcddm.config import variants
from hpcddm.errors import ConfigError
from hpcddm.launch.load_experiment import load_experiment
from hpcddm.pipeline.stage import GpuUse, Stage
from hpcddm.pipeline.unit_graph import STAGE_NAMES, STAGES, needed_by, order_stages, plan_units
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
    expert_of,
    unit_name,
)
from hpcddm.stages.evaluation.evaluate import evaluate_keys, evaluate_range
from tests.helpers import DATA_STAGES, JOINED, LATENT_SPACE, REPOSITORY, tiny

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
    others = {"distill", "probe", "copy_lists", "encode_captions", "autoencoder", "latents"}
    others |= {"neighbours", "reference_statistics"}
    others |= {name for name in STAGE_NAMES if name.startswith("concept")}
    assert {key.split("/")[0] for key in seen} == set(STAGE_NAMES) - others


@pytest.mark.parametrize("names", [["scale", "train-000", "train-001", "heldout-000"], ["train-000", "scale"]])
def test_a_unit_that_reads_a_later_or_unknown_one_is_refused(tmp_path, monkeypatch, names):
    latents = type(STAGES["latents"])
    monkeypatch.setattr(latents, "units", lambda self, experiment: [f"latents/{name}" for name in names])
    with pytest.raises(ConfigError, match="latents/scale reads latents/train-00.: unknown, of a stage that"):
        plan_units(tiny(tmp_path, data__space=LATENT_SPACE))


def test_a_stage_with_its_reads_is_needed_up_to_it(tmp_path):
    units = plan_units(tiny(tmp_path, data__space=LATENT_SPACE))
    needed = needed_by("latents", units)
    assert needed == {unit.key for unit in units if unit.stage in ("shard", "catalog", "autoencoder", "latents")}


def test_a_stage_names_the_stages_that_it_reads(tmp_path):
    sites = {"experts__sites": ["here", "elsewhere"], "experts__probe": {}, "site": "here"}
    changes = {
        "distill": {"teacher": "router"},
        "router__samples": {"images": 8, "steps": 2},
        "evaluate__perceptual": {"name": "lpips_alex"},
        "evaluate__extractors": [{"name": "pixels", "size": 4}],
        "evaluate__images": 10_008,
        "monolith": {"enabled": True},
        "data__read_from": {"name": "expert_copy"},
    } | sites
    captions, student = (
        {"name": "text", "encoder": {"name": "words"}, "cached": True},
        {"distill": {"teacher": "router"}} | sites,
    )
    read: dict[str, set[str]] = {name: set() for name in STAGES}
    told = plan_units(tiny(tmp_path, data__condition=captions, **student))
    pixels = plan_units(tiny(tmp_path, **changes))
    concepts = [
        *plan_units(tiny(tmp_path, data__condition=captions, data__space=LATENT_SPACE, concepts=NOUNS, **student)),
        *plan_units(tiny(tmp_path, concepts=CLASSES)),
    ]
    del changes["data__read_from"]
    latents = plan_units(tiny(tmp_path, data__space=LATENT_SPACE, **changes))
    for unit in [*pixels, *told, *latents, *concepts]:
        read[unit.stage] |= {key.split("/")[0] for key in unit.inputs}
    assert {name: {name, *stage.reads} for name, stage in STAGES.items()} == {
        name: {name, *stages} for name, stages in read.items()
    }


BEGIN, END = "shard catalog", "expert_lists cluster_report train router evaluators"
LAST = "measure reference compare report"
LAST_OF_MANY = "measure reference neighbours compare report"
CAPTIONED = f"{BEGIN} encode cluster assign encode_captions {END}"
CONCEPTS = "concept_vocabulary concept_tags concept_counts concept_scores concept_analysis"
ORDERS = {
    "budget": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
    "concepts": f"{CAPTIONED} {CONCEPTS} evaluate {LAST}",
    "emoji": f"{CAPTIONED} evaluate {LAST}",
    "emoji_latents": f"{BEGIN} autoencoder encode cluster assign encode_captions latents {END} evaluate {LAST}",
    "fashion_mnist": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
    "from_seed": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
    "hddm_laion": f"{BEGIN} encode cluster assign encode_captions latents {END} evaluate {LAST_OF_MANY}",
    "imagenet_ddm": f"{BEGIN} encode cluster assign latents {END} evaluate {LAST_OF_MANY}",
    "laion_ddm_24b": f"{BEGIN} encode cluster assign latents {END} evaluate {LAST_OF_MANY}",
    "method": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
    "quickstart": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
    "seed_digits": f"{BEGIN} encode cluster assign {END} evaluate {LAST}",
}


@pytest.mark.parametrize("file", sorted((REPOSITORY / "experiments").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_order_of_the_stages_of_each_shipped_experiment(file, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    units = plan_units(load_experiment(str(file)))
    assert " ".join(dict.fromkeys(unit.stage for unit in units)) == ORDERS[file.stem]


def test_every_stage_follows_all_that_it_reads():
    places = {name: place for place, name in enumerate(STAGE_NAMES)}
    for name, stage in STAGES.items():
        assert all(places[other] < places[name] for other in stage.reads), name


def stage_of_folder(folder, reads=(), gpus=GpuUse.NONE):
    """A stage in some folder of stages/, without units."""
    content = {"__module__": f"stages.{folder}.some", "reads": reads, "gpus": gpus}
    made = type("SomeStage", (Stage,), content)
    made.__abstractmethods__ = frozenset()
    return made()


def test_long_ways_come_first_and_folders_stay_together():
    stages = {
        "page": stage_of_folder("data", ["lists"]),
        "alone": stage_of_folder("data", gpus=GpuUse.NODE),
        "copies": stage_of_folder("data", ["lists"]),
        "lists": stage_of_folder("data"),
        "ruler": stage_of_folder("training", ["lists"], GpuUse.RANKS),
        "train": stage_of_folder("training", ["copies"], GpuUse.RANKS),
        "router": stage_of_folder("training", ["train"], GpuUse.NODE),
        "late": stage_of_folder("data", ["train"]),
        "report": stage_of_folder("report", ["page", "ruler", "router"]),
    }
    assert " ".join(order_stages(stages)) == "lists copies alone page train late ruler router report"
    assert order_stages(dict(reversed(stages.items()))) == order_stages(stages)


@pytest.mark.parametrize(
    "reads, told",
    [
        ({"one": ["two"], "two": ["one"]}, "one.py: reads two: unknown, or reading it in turn"),
        ({"one": ["one"]}, "one.py: reads one: unknown, or"),
        ({"one": [], "two": ["three"]}, "two.py: reads three: unknown"),
    ],
)
def test_stages_that_read_unknown_ones_or_each_other_are_refused(reads, told):
    with pytest.raises(ConfigError, match=told):
        order_stages({name: stage_of_folder("data", others) for name, others in reads.items()})


def test_every_setting_but_a_place_is_under_some_fingerprint(tmp_path):
    changes = {
        "seed": 1,
        "data__channels": 3,
        "data__heldout_shards": 2,
        "encode__encoder__size": 3,
        "cluster__clustering__fine_clusters": 9,
        "experts__model__depth": 2,
        "experts__condition_dropout": 0.2,
        "experts__other_clusters_share": 0.1,
        "experts__training__learning_rate": 0.02,
        "router__model__depth": 2,
        "router__training__weight_decay": 0.1,
        "evaluators__classifier__training__images": 32,
        "evaluators__extractor__model__features": 9,
        "evaluate__guidance": 2.0,
        "evaluate__guidance_interval": [0.1, 0.9],
        "evaluate__shift": 3.0,
        "evaluate__conversion": {"name": "snr_matched", "x0_clamp": 2.0},
        "evaluate__posteriors": "shared",
        "evaluate__renormalise": False,
        "evaluate__route_every_steps": 2,
        "router__frequency": "balanced",
        "router__temperature": "one",
        "experts__objective__shift": 2.0,
        "evaluate__steps": 3,
        "evaluate__strategies": ["full"],
        "name": "other",
    }
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    for key, value in changes.items():
        after = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, **{key: value}))}
        named = {name for unit in before for name in after[unit] if after[unit][name] != before[unit].get(name)}
        assert any(name.startswith(key.replace("__", ".")) for name in named), key


@pytest.mark.parametrize(
    "changes, stale",
    [
        ({"router__training__images": 128}, {"router/all", MONOLITH}),
        ({"evaluators__classifier__training__images": 128}, {"evaluators/classifier"}),
        ({"evaluators__extractor__seed": 1}, {"evaluators/extractor"}),
        ({"experts__training__images": 128}, {MONOLITH, expert_key(0), expert_key(1)}),
        (
            {"data__order": {"name": "windowed"}},
            {MONOLITH, expert_key(0), expert_key(1), "router/all", "evaluators/classifier", "evaluators/extractor"},
        ),
        ({"data__augmentations": [{"name": "flip"}]}, {MONOLITH, expert_key(0), expert_key(1), "router/all"}),
        ({"data__augmentations": []}, set()),
        ({"experts__other_clusters_share": 0.1}, {EXPERT_LISTS}),
        ({"experts__other_clusters_share": 0.0}, set()),
        ({"encode__encoder__size": 2}, {f"encode/{part}" for part in ("train-000", "train-001", "heldout-000")}),
    ],
    ids=str,
)
def test_a_setting_makes_stale_what_it_shapes_and_nothing_else(tmp_path, changes, stale):
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    assert {
        unit.key for unit in plan_units(tiny(tmp_path, **changes)) if unit.fingerprint_settings != before[unit.key]
    } == stale


def test_an_expert_is_hashed_by_its_own_numbers_and_not_by_that_of_experts(tmp_path):
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    twice = {"images": 128, "batch": 32, "ema_halflife_images": 200}
    changes = {f"experts__training__{key}": value for key, value in twice.items()} | {"cluster__experts": 4}
    after = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, **changes))}
    assert [after[expert_key(expert)] for expert in (0, 1)] == [before[expert_key(expert)] for expert in (0, 1)]
    assert after[expert_key(0)]["training.images"] == 32 and after[MONOLITH] != before[MONOLITH]


def test_an_expert_counts_its_own_list_alone_and_nothing_counts_where_samples_lie(tmp_path):
    units = {unit.key: unit for unit in plan_units(tiny(tmp_path, distill={"share": 0.5}))}
    assert units[expert_key(1)].parts == {CATALOG: "", EXPERT_LISTS: "expert-01"}
    assert units[MONOLITH].parts == {CATALOG: "train", EXPERT_LISTS: ""}
    for unit in units.values():
        assert unit.parts.keys() <= set(unit.requires), unit.key
        if unit.stage in ("router", "distill", "evaluate", "report"):
            assert unit.parts == {CATALOG: "all", EXPERT_LISTS: "all"}


def counted(unit):
    """Required units that count in a unit's fingerprint, with the part of each that does."""
    return {key: unit.parts.get(key) for key in unit.requires if unit.parts.get(key) != ""}


@pytest.mark.parametrize("name", variants.list_variants("data/readings"))
def test_how_samples_are_read_is_under_no_fingerprint(tmp_path, name):
    joined = {"experts__extra": [JOINED]}
    before = {unit.key: unit for unit in plan_units(tiny(tmp_path, **joined))}
    after = {unit.key: unit for unit in plan_units(tiny(tmp_path, data__read_from={"name": name}, **joined))}
    copies = [key for key in after if key not in before]
    listed = ["expert-00", "expert-01", "hats"] if name == "expert_copy" else []
    assert copies == [f"copy_lists/{list_name}" for list_name in listed]
    for key, unit in before.items():
        assert after[key].fingerprint_settings == unit.fingerprint_settings and counted(after[key]) == counted(unit)
    lists = {"hats": "expert_lists/hats"}
    for key in copies:
        assert after[key].parts == {CATALOG: "", lists.get(unit_name(key), EXPERT_LISTS): unit_name(key)}


def test_copies_without_exif_are_other_copies_and_the_same_training(tmp_path):
    before, after = (
        {unit.key: unit for unit in plan_units(tiny(tmp_path, data__read_from={"name": "expert_copy"} | exif))}
        for exif in ({"exif": "keep"}, {"exif": "drop"})
    )
    changed = [key for key in before if after[key].fingerprint_settings != before[key].fingerprint_settings]
    assert changed == ["copy_lists/expert-00", "copy_lists/expert-01"]
    assert all(counted(after[key]) == counted(before[key]) for key in before)


def test_a_copy_is_made_where_its_expert_is_trained(tmp_path):
    changes = {"data__read_from": {"name": "expert_copy"}, "experts__sites": ["north", "south"], "site": "north"}
    sites = {unit.key: unit.site for unit in plan_units(tiny(tmp_path, **changes))}
    assert sites["copy_lists/expert-00"] == "north" and sites["copy_lists/expert-01"] == "south"


def test_one_ruler_measures_all_seeds_of_an_experiment(tmp_path):
    before, after = ({unit.key: unit for unit in plan_units(tiny(tmp_path, seed=seed))} for seed in (0, 1))
    assert {key for key in before if before[key].fingerprint_settings == after[key].fingerprint_settings} >= {
        "evaluators/extractor",
        "evaluators/classifier",
    }
    assert before[ROUTER].fingerprint_settings != after[ROUTER].fingerprint_settings


@pytest.mark.parametrize("units", [1, 3, 7])
def test_evaluation_units_part_the_samples_in_whole_batches(tmp_path, units):
    experiment = tiny(tmp_path, evaluate__images=80, evaluate__batch=8, evaluate__units=units)
    ranges = [evaluate_range(key) for key in evaluate_keys(experiment)]
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
    assert evaluate_keys(later) == ["evaluate/0000040-0000056", "evaluate/0000056-0000080"]
    settings = [
        next(unit.fingerprint_settings for unit in plan_units(one) if unit.stage == "evaluate")
        for one in (whole, later)
    ]
    assert settings[0] == settings[1], "a range's samples are the same in both"


def test_every_expert_names_its_site_and_the_data_belongs_to_all(tmp_path):
    sites = {
        unit.key: unit.site for unit in plan_units(tiny(tmp_path, experts__sites=["north", "south"], site="north"))
    }
    assert (sites[expert_key(0)], sites[expert_key(1)], sites[MONOLITH]) == ("north", "south", "north")
    assert {site for key, site in sites.items() if key.split("/")[0] in DATA_STAGES} == {None}


def test_without_the_monolith_nothing_waits_for_it(tmp_path):
    units = plan_units(tiny(tmp_path, monolith__enabled=False))
    assert MONOLITH not in {unit.key for unit in units} | {key for unit in units for key in unit.inputs}


def test_the_final_step_wants_the_experts_and_can_do_without_what_it_is_told_to(tmp_path):
    for minimum, enough in ((None, 2), (1, 1), (2, 2)):
        units = {unit.stage: unit for unit in plan_units(tiny(tmp_path, evaluate__min_experts=minimum))}
        for unit, extras in ((units["evaluate"], []), (units["report"], [CLUSTER_REPORT])):
            assert (list(unit.optional), unit.min_optional) == ([expert_key(0), expert_key(1), *extras], enough)
            assert list(unit.extras) == extras and not unit.missing_inputs(extras)
            assert not unit.optional.keys() & set(unit.requires)
        assert {stage for stage, unit in units.items() if unit.optional} == {"evaluate", "report"}


def test_how_many_experts_are_enough_is_under_no_fingerprint(tmp_path):
    before, after = (plan_units(tiny(tmp_path, evaluate__min_experts=minimum)) for minimum in (None, 1))
    assert [unit.fingerprint_settings for unit in before] == [unit.fingerprint_settings for unit in after]


@pytest.mark.parametrize(
    "key, number", [("train/expert-03", 3), ("train/expert-120", 120), ("train/hats", "hats"), (MONOLITH, None)]
)
def test_an_expert_is_known_by_its_key(key, number):
    assert expert_of(key) == number and (number is None or expert_key(number) == key)


def test_inputs_that_a_unit_misses(tmp_path):
    (unit,) = [unit for unit in plan_units(tiny(tmp_path, evaluate__min_experts=1)) if unit.stage == "evaluate"]
    assert unit.missing_inputs([expert_key(0)]) == unit.missing_inputs([expert_key(1)]) == []
    assert unit.missing_inputs([expert_key(0), expert_key(1)]) == [expert_key(0), expert_key(1)]
    assert unit.missing_inputs(["router/all", expert_key(1)]) == ["router/all"]


COSINE = {"name": "epsilon", "schedule": {"name": "cosine"}}


def test_an_expert_of_another_objective_is_nothing_to_the_others(tmp_path):
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    mixed = plan_units(tiny(tmp_path, experts__overrides=[{"clusters": [1], "objective": COSINE}]))
    stale = {unit.key for unit in mixed if unit.fingerprint_settings != before[unit.key]}
    assert {key for key in stale if key.startswith(("train", "router"))} == {expert_key(1)}


def test_an_expert_of_another_size_changes_what_the_monolith_may_cost(tmp_path):
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    model = {"name": "dit", "width": 16, "depth": 1, "heads": 2, "patch": 4}
    mixed = plan_units(tiny(tmp_path, experts__overrides=[{"clusters": [0], "model": model}]))
    stale = {unit.key for unit in mixed if unit.fingerprint_settings != before[unit.key]}
    assert {key for key in stale if key.startswith("train")} == {expert_key(0), MONOLITH}


@pytest.mark.parametrize(
    "own, stale", [({"learning_rate": 0.5}, []), ({"images": 64}, [MONOLITH]), ({"batch": 4}, [MONOLITH])]
)
def test_an_experts_own_numbers_make_it_stale_and_the_monolith_whose_bill_they_change(tmp_path, own, stale):
    plain = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path))}
    overridden = plan_units(tiny(tmp_path, experts__overrides=[{"clusters": [1], **own}]))
    changed = {unit.key for unit in overridden if unit.fingerprint_settings != plain[unit.key]}
    assert changed == {expert_key(1), *stale}


@pytest.mark.parametrize("teacher, asked", [("cluster", False), ("router", True)])
def test_the_student_reads_all_experts_and_the_router_where_it_teaches(tmp_path, teacher, asked):
    units = {unit.key: unit for unit in plan_units(tiny(tmp_path, distill={"teacher": teacher, "share": 0.5}))}
    assert {expert_key(0), expert_key(1)} <= set(units[STUDENT].requires)
    assert (ROUTER in units[STUDENT].requires) == asked
    assert STUDENT in units[REPORT].requires and all(
        STUDENT in units[key].requires for key in units if "evaluate" in key
    )


def test_a_router_of_the_experts_samples_waits_for_them(tmp_path):
    units = {unit.key: unit for unit in plan_units(tiny(tmp_path, router__samples={"images": 10}))}
    assert {expert_key(0), expert_key(1)} <= set(units[ROUTER].requires)


def test_prompts_are_nothing_to_models_that_do_not_read_them(tmp_path):
    blind = {"router__model__condition": "none"}
    before = {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, **blind))}
    text = {"name": "text", "encoder": {"name": "words"}, "prompts": ["a", "b", "c", "d"]}
    told = plan_units(tiny(tmp_path, data__condition=text, **blind))
    stale = {unit.key for unit in told if unit.fingerprint_settings != before[unit.key]}
    assert {expert_key(0), MONOLITH, REPORT} <= stale
    assert not {ROUTER, CLUSTER, "shard/train-000", "evaluators/classifier"} & stale


@pytest.mark.parametrize("teacher, stale", [("cluster", False), ("router", True)])
def test_how_a_routers_weights_are_read_is_under_the_fingerprints_of_what_asks_it(tmp_path, teacher, stale):
    changes = {"router__training": None, "monolith__enabled": False, "distill": {"teacher": teacher, "share": 0.5}}
    one, other = (
        {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, router__model=model, **changes))}
        for model in ({"name": "distance_router"}, {"name": "distance_router", "temperature": 9.0})
    )
    changed = {key for key in one if one[key] != other[key]}
    assert {ROUTER, REPORT, *(key for key in one if key.startswith("evaluate"))} <= changed
    assert (STUDENT in changed) == stale


def test_a_size_and_the_numbers_that_it_means_are_the_same_setting(tmp_path):
    named = {"name": "dit", "size": "S", "patch": 4}
    written = {"name": "dit", "width": 384, "depth": 12, "heads": 6, "patch": 4}
    fingerprint_settings = [
        [unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, experts__model=model))]
        for model in (named, written)
    ]
    assert fingerprint_settings[0] == fingerprint_settings[1]
