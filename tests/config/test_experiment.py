import time

import pytest
import yaml

from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.launch.load_site import load_site
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import STAGE_NAMES, plan_units
from tests.helpers import EXPERIMENT, REPOSITORY, changed, tiny


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("experiments/*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_repository_is_valid(path):
    experiment = load_experiment(str(path))
    assert experiment.name == path.stem and plan_units(experiment)
    assert validate_experiment(experiment.model_dump(mode="json"), "again") == experiment


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("slurm/sites/*.yaml")), ids=lambda path: path.stem)
def test_every_site_of_the_repository_is_valid(path):
    site = load_site(str(path))
    assert site.name == path.stem
    assert {key.split("/")[0] for key in site.stages} <= set(STAGE_NAMES)


HATS = "{{name: {}, list: hats.txt, images: 32, batch: 8}}"
TAKEN = "experts.extra.0.name: {} is taken already; choose another name"
WRONG_PATCH = "{name: dit, width: 8, depth: 1, heads: 2, patch: 3}"
WORDS = "data.condition={name: text, encoder: {name: words}}"
NO_CLASSES = "data.num_classes=null; data.condition={name: none}; evaluators.classifier=null"
WRONG = {
    "colour=1": "colour: unknown key; valid keys: name, seed,",
    "experts.training.image=1": "experts.training.image: unknown key; valid keys: images,",
    "experts.model.widht=8": "experts.model.widht: unknown key; valid keys: name, ",
    "experts.training.images=many": "experts.training.images: input should be a valid integer",
    "experts.model.width=[1]": "experts.model.width: input should be a valid integer",
    "experts.training.batch=-8": "experts.training.batch: input should be greater than 0, found -8",
    "experts.training.learning_rate=.inf": "experts.training.learning_rate: ",
    "experts.training.betas=[0.9]": "experts.training.betas.1: this key is needed",
    "data.source={name: idx}": "data.source.folder: this key is needed",
    "experts.objective.name=flow": "unknown name 'flow'; valid names: epsilon, flow_",
    "router.model={name: dit}": "router.model: unknown name 'dit'; valid names: dist",
    "router.model.condition=text": "router.model.condition: input should be 'given' or 'none', found 'text'",
    "router.training=null": "router.training: this key is needed",
    "router={model: {name: uniform_router}, frequency: balanced}": "router.frequency: uniform_router is not trained",
    "encode.encoder=pixels": "encode.encoder: needs a mapping with 'name', one of: ",
    "encode.encoder.size=9": "encode.encoder: pixel size 9 exceeds image_size 8",
    "name=../up": "name: string should match pattern",
    "cluster.experts=16": "cluster.clustering: fine 8 is less than experts 16",
    "cluster.experts=3": "experts.training.batch: 16 images cannot be divided among 3 experts; take 15 or 18",
    "experts.model.patch=3": "experts.model: patch 3 does not divide the side 8 of x in the space pixels",
    "evaluate.strategies=[best]": "evaluate.strategies: unknown name 'best'; valid names: full, nucleus-0.9, ",
    "evaluate.strategies=[top-9]": "evaluate.strategies: top-9 needs 9 experts, there are 2",
    "evaluate.strategies=[top-1, top1]": "evaluate.strategies: top-1 is listed twice",
    "evaluate.min_experts=3": "evaluate.min_experts: needs 3 experts, there are 2",
    "evaluate.min_experts=0": "evaluate.min_experts: input should be greater than 0",
    "evaluate.images=25": "evaluate.images: 25 cannot be balanced over 4 classes; take 24 or 32",
    "evaluate.images=20": "evaluate.images: 20 is not a multiple of evaluate.batch 8; take 16 or 24",
    "evaluate.images=20; evaluate.units=4": "evaluate.images: 20 is not a multiple of evaluate.batch 8; take 32",
    "evaluate.images=8": "evaluate.images: 8 are too few for the report; needs at least 20",
    "evaluate.units=4": "evaluate.units: 4 units for 3 batches; take at most 3, or a smaller evaluate.batch",
    "evaluate.first_sample=4": "first_sample: 4 is not a multiple of the 4 classes and of evaluate.batch 8; take 8",
    "evaluate.guidance_interval=[0.9, 0.1]": "evaluate.guidance_interval: [0.9, 0.1]: from",
    "evaluate.labels=random": "evaluate.labels: input should be 'balanced' or 'uniform'",
    "evaluate.labels=uniform; evaluate.strategies=[oracle]": "evaluate.labels: a class drawn at random has no cluster",
    f"evaluate.labels=uniform; {NO_CLASSES}": "evaluate.labels: uniform draws classes, and data.num_classes is not set",
    "data.augmentations=[{name: flip}, {name: shift, max_pixels: 1}, {name: flip}]": "0: flip is listed twice",
    "data.augmentations=[{name: blur}]": "data.augmentations.0: unknown name 'blur'; valid names: flip, random_crop",
    "experts.sites=[here]": "experts.sites: names 1 sites for 2 experts",
    f"experts.extra=[{HATS.format('top-2')}]": TAKEN.format("top-2"),
    f"experts.extra=[{HATS.format('student')}]": TAKEN.format("student"),
    f"experts.extra=[{HATS.format('expert-07')}]": TAKEN.format("expert-07"),
    f"experts.extra=[{HATS.format('a')}, {HATS.format('a')}]": "experts.extra.0.name: a is listed 2",
    "experts.extra=[{name: hats, list: hats.txt, batch: 8}]": "experts.extra.0.images: this key is needed",
    f"experts.extra=[{HATS.format('a')}]; experts.sites=[north, south]": "experts.extra.0.site: this key is needed",
    "experts.overrides=[{clusters: [2], precision: fp32}]": "experts.overrides: cluster 2: there are 2, numbered",
    "experts.overrides=[{clusters: [1]}, {clusters: [1]}]": "experts.overrides: cluster 1 is named 2 times",
    "experts.overrides=[{cluster: [1]}]": "experts.overrides.0.cluster: unknown key; valid",
    f"experts.overrides=[{{clusters: [1], model: {WRONG_PATCH}}}]": "experts.overrides.0.model: patch 3 does not",
    "distill={share: 0.03}": "distill.share: 0.03 of a batch of 16 is not a whole",
    "distill={}; evaluate.min_experts=1": "evaluate.min_experts: distill waits for all experts; remove one of the two",
    WORDS.replace("}}", "}, prompts: [a shoe]}"): "data.condition: prompts: 1 for 4 classes",
    f"{WORDS}; router.samples={{images: 10}}": "router.samples: are drawn class by class, and a class does not",
    "data.condition={name: none}; router={model: {name: uniform_router, prior: class}}": "prior class needs condition",
}
"""Settings of the tiny experiment, as overrides, and what is said of them."""


@pytest.mark.parametrize("settings, message", WRONG.items())
def test_a_wrong_experiment_is_named_in_one_line_for_each_mistake(settings, message):
    pairs = (setting.partition("=")[::2] for setting in settings.split("; "))
    changes = {key.replace(".", "__"): yaml.safe_load(value) for key, value in pairs}
    with pytest.raises(ConfigError) as caught:
        validate_experiment(changed(EXPERIMENT, **changes), "x.yaml")
    first, *others = str(caught.value).split("\n")
    assert first.startswith("x.yaml: ") and message in first and caught.value.exit_code == 2
    assert len(others) <= 1 and all(line.startswith("x.yaml: ") for line in others)


WRONG_SITES = {
    "queue: gpu": "queue: unknown key; valid keys: partition, account,",
    "scheduler: pbs": "scheduler: input should be 'slurm' or 'local', found 'pbs'",
    "stages: {train: {gpu: 1}}": "stages.train.gpu: unknown key; valid keys: partition,",
    "stages: {train/monolith: {nodes: 0}}": "stages.train/monolith.nodes: input should be gr",
    "stages: {train: {nodes: two}}": "stages.train.nodes: input should be a valid integer",
    "schedular: local": "schedular: unknown key; valid keys: partition, account",
    "stages: {train/expert-02: {cluster: south}}": "cluster: needed here, too, since stages name south",
    "resources: {cpu: 1}": "resources.cpu: unknown key; valid keys: partition,",
}


@pytest.mark.parametrize("keys, message", WRONG_SITES.items())
def test_a_wrong_site_is_named_in_one_line(keys, message):
    scheduler = {} if "schedular" in keys else {"scheduler": "slurm"}
    with pytest.raises(ConfigError) as caught:
        validate(Site, {"name": "here"} | scheduler | yaml.safe_load(keys), "s.yaml")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def fingerprints(folder, **changes):
    return {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(folder, **changes))}


ELSEWHERE = {
    "experts__sites": ["a", "b"],
    "experts__training__checkpoint_minutes": 0.5,
    "experts__training__log_every_images": 7,
    "evaluate__units": 3,
    "data__source__folder": "elsewhere",
}


@pytest.mark.parametrize("key, value", ELSEWHERE.items())
def test_where_and_how_often_is_under_no_fingerprint(tmp_path, key, value):
    before, after = fingerprints(tmp_path), fingerprints(tmp_path, **{key: value})
    assert all(after[key] == before[key] for key in before.keys() & after.keys())


def test_a_transform_is_under_the_fingerprint_of_the_tars_unless_it_is_the_one_of_older_runs(tmp_path):
    before, default = fingerprints(tmp_path), fingerprints(tmp_path, data__transform={"name": "centre_crop"})
    assert before == default and not any("transform" in key for unit in before.values() for key in unit)
    after = fingerprints(tmp_path, data__transform={"name": "resize"})
    changed = {key: after[key].items() - before[key].items() for key in before if after[key] != before[key]}
    assert {key.partition("/")[0] for key in changed} == {"shard"}
    assert all(items == {("data.transform.name", "resize")} for items in changed.values())


LONG = {
    "a cluster": {"experts__overrides": [{"clusters": [0] * 20_000}]},
    "augmentations": {"data__augmentations": [{"name": "flip"}] * 20_000},
    "groups": {
        "data__num_classes": 20_000,
        "cluster__clustering": {"name": "labels", "groups": [list(range(20_000)), [0] * 20_000]},
    },
}


@pytest.mark.parametrize("case", LONG)
def test_long_lists_of_mistakes_are_told_in_time(case):
    """Work that grows with the square of these would take minutes."""
    values, started = changed(EXPERIMENT, **LONG[case]), time.monotonic()
    with pytest.raises(ConfigError):
        validate_experiment(values, "x")
    assert time.monotonic() - started < 20
