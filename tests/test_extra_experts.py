"""Experts that join a run later: units more, and no other unit's fingerprint changes."""

from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import initial_weights
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS
from tests.helpers import EXPERIMENT, JOINED, tiny


def test_an_expert_that_joins_is_two_units_more_and_changes_no_other(tmp_path):
    before, after = (
        plan_units(tiny(tmp_path, distill={"share": 0.5}, **more)) for more in ({}, {"experts__extra": [JOINED]})
    )
    new = {unit.key: unit for unit in after if unit not in before}
    assert [unit for unit in after if unit.key not in new] == before
    assert list(new) == ["expert_lists/hats", "train/hats"]
    own, trained = new.values()
    assert own.requires == [CATALOG] and own.parts == {CATALOG: "train"}
    assert trained.requires == [CATALOG, EXPERT_LISTS, "expert_lists/hats"]
    assert trained.parts == {CATALOG: "", EXPERT_LISTS: "", "expert_lists/hats": "hats"}


def test_an_expert_that_joins_is_hashed_by_its_own_numbers(tmp_path):
    def units(**changes):
        return {unit.key: unit for unit in plan_units(tiny(tmp_path, **{"experts__extra": [JOINED]} | changes))}

    before, more = units(), units(cluster__experts=4)
    assert before["train/hats"] == more["train/hats"] and before["expert_lists/hats"] == more["expert_lists/hats"]
    assert before[EXPERT_LISTS] != more[EXPERT_LISTS]
    settings = before["train/hats"].fingerprint_settings
    # Half of the common batch; what it does not name lasts as many steps.
    assert (settings["training.images"], settings["training.batch"]) == (32, 8)
    assert settings["training.ema_halflife_images"] == 50 and settings["training.warmup_images"] == 0
    longer = units(experts__extra=[JOINED | {"images": 64}], experts__training__images=640)["train/hats"]
    changed = {key for key, value in longer.fingerprint_settings.items() if settings[key] != value}
    assert changed == {"training.images"}, "a longer training begins as the shorter one"
    named = units(experts__extra=[JOINED | {"images": 33, "warmup_images": 5, "ema_halflife_images": 7}])
    settings = named["train/hats"].fingerprint_settings
    keys = ("images", "warmup_images", "ema_halflife_images")
    assert [settings[f"training.{key}"] for key in keys] == [40, 5, 7]


def test_an_expert_that_joins_has_a_network_a_site_and_a_list_of_its_own(tmp_path):
    own = {"model": EXPERIMENT["experts"]["model"] | {"width": 8}, "precision": "bf16", "site": "south"}
    experiment = tiny(tmp_path, experts__extra=[JOINED, JOINED | {"name": "bags"} | own])
    units = {unit.key: unit for unit in plan_units(experiment)}
    hats, bags = units["train/hats"], units["train/bags"]
    assert (hats.site, bags.site, units["expert_lists/bags"].site) == (None, "south", None)
    assert (hats.fingerprint_settings["experts.model.width"], bags.fingerprint_settings["experts.model.width"]) == (
        16,
        8,
    )
    assert bags.fingerprint_settings["training.precision"] == "bf16"
    assert initial_weights.expert_setting_key(experiment, "bags", "model") == "experts.extra.1.model"
    assert initial_weights.expert_setting_key(experiment, "hats", "model") == "experts.model"
    content = {"experts__extra": [JOINED | {"content_hash": "another"}]}
    changed = {unit.key: unit for unit in plan_units(tiny(tmp_path, **content))}
    assert changed["expert_lists/hats"].fingerprint_settings == {"experts.extra.content_hash": "another"}
    assert changed["train/hats"] == hats
