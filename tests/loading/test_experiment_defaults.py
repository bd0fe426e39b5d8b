"""What an experiment may leave out: `data` alone trains, and a run keeps what the defaults became."""

import json
import re
import shutil

import pytest
import yaml
from PIL import Image

from hpcddm.errors import ConfigError
from hpcddm.launch.checks.gpu_requests import all_resource_keys, gpu_remarks
from hpcddm.launch.load_site import load_site
from hpcddm.loading import experiment_defaults
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import read_sweep
from hpcddm.loading.run_defaults import load_for_run
from hpcddm.runs.manifest import flatten
from hpcddm.runs.run_dir import RunDir
from tests.data.oddities import encoded, write_tar
from tests.helpers import REPOSITORY, hpcddm, write_source
from tests.sources import ilsvrc

CLASSES = {"birds": 60, "boats": 50, "flowers": 40}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """The working directory with a folder of pictures in three folders, and an experiment that names it alone."""
    for number, (name, count) in enumerate(CLASSES.items()):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place in range(count):
            picture = Image.new("RGB", (20, 16), (place, 40 * number, 80))
            picture.save(tmp_path / "photos" / name / f"{place}.jpg")
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, name="my photos.yaml", data=None, **sections):
    """Write an experiment that names its data and what else is given."""
    source = {"name": "image_folder", "folder": "photos"}
    (folder / name).write_text(yaml.safe_dump({"data": {"source": source, **(data or {})}, **sections}))
    return name


def loaded(*overrides):
    return load_experiment("my photos.yaml", overrides)


def with_source(place, /, *overrides, num_classes=None, **source):
    """The experiment that names a source alone, or classes beside it."""
    data = {"source": source} | ({"num_classes": num_classes} if num_classes else {})
    (place / "e.yaml").write_text(yaml.safe_dump({"data": data}))
    return load_experiment(str(place / "e.yaml"), overrides)


def test_data_alone_is_an_experiment(photos):
    experiment = load_experiment("my photos.yaml")
    data, training = experiment.data, experiment.experts.training
    assert experiment.name == "my-photos"
    assert (data.image_size, data.num_classes, data.condition.name, data.shards) == (32, 3, "class_label", 1)
    assert data.source.heldout.share == 0.2
    assert experiment.cluster.experts == 4 and experiment.encode.encoder.name == "pixels"
    assert 4 <= experiment.cluster.clustering.fine_clusters <= 150 // 8, "fewer than the images"
    assert (training.images, training.batch) == (4 * 10_240, 4 * 8)
    assert (training.warmup_images, training.ema_halflife_images) == (2048, 4096)
    assert experiment.evaluators.classifier is not None and experiment.router.training.images == 10_240
    assert experiment.evaluate.images % 3 == 0 and 20 <= experiment.evaluate.images <= 45


def test_the_files_of_the_readme_can_be_loaded(photos):
    blocks = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    names = ("photos.yaml", "my-cluster.yaml", "my-sweep.yaml")
    for name, block in zip(names, blocks, strict=True):
        (photos / name).write_text(block)
    experiment, site = load_experiment("photos.yaml"), load_site("my-cluster.yaml")
    assert (experiment.experts.training.batch, experiment.evaluate.strategies) == (32, ["top-1", "top-2"])
    assert gpu_remarks(site, all_resource_keys(), experiment) == [] and site.resources_for("train").ranks == 8
    assert len(read_sweep("my-sweep.yaml").settings) == 6


SIZES = [(16, 128, 2), (28, 128, 4), (32, 128, 4), (64, 192, 8), (128, 384, 8), (256, 384, 16), (31, 128, 1)]


def test_the_model_follows_from_the_size_of_the_images(photos):
    for side, width, patch in SIZES:
        model = loaded(f"data.image_size={side}").experts.model
        assert (model.name, model.width, model.patch) == ("dit", width, patch), side


def test_what_is_named_stays_and_the_rest_follows_from_it(photos):
    named = {"training": {"images": 96_000, "warmup_images": 0}, "model": {"name": "dit", "size": "B"}}
    experiment = load_experiment(write(photos, "x.yaml", {"image_size": 64}, experts=named, cluster={"experts": 3}))
    model, training = experiment.experts.model, experiment.experts.training
    assert (model.width, model.depth, model.heads, model.patch) == (768, 12, 12, 8)
    assert (training.images, training.warmup_images, training.ema_halflife_images) == (96_000, 0, 9_600)
    assert training.batch == 24 and training.learning_rate == pytest.approx(0.256 / 768, rel=0.02)
    assert experiment.router.training.images == 24_000


def test_images_without_classes_have_no_condition_and_classes_too_small_to_be_measured_are_none(photos):
    (photos / "photos" / "rare").mkdir()
    Image.new("RGB", (16, 16)).save(photos / "photos" / "rare" / "only.jpg")
    assert loaded().data.num_classes is None
    assert loaded("data.num_classes=null").data.condition.name == "none"
    for path in (photos / "photos").glob("*/*.jpg"):
        path.rename(photos / "photos" / f"{path.parent.name}-{path.name}")
    experiment = loaded()
    assert experiment.data.num_classes is None and experiment.data.condition.name == "none"
    assert experiment.evaluators.classifier is None


def test_folders_of_the_splits_count_as_before(photos):
    for split in ("train", "val"):
        (photos / "split" / split).mkdir(parents=True)
        for number in range(24):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(photos / "split" / split / f"{number}.jpg")
    experiment = loaded("data.source.folder=split")
    assert experiment.data.source.heldout is None and experiment.evaluate.images == 24


def imagenet(root, has_val):
    ilsvrc.write_images(root, is_flat=False, of_class=12)
    if not has_val:
        shutil.rmtree(root / "val")


def hub(root, has_validation):
    shutil.copytree(REPOSITORY / "tests" / "fixtures" / "huggingface" / "hub", root)
    if not has_validation:
        next(root.rglob("validation*")).unlink()


@pytest.mark.parametrize("name, write, keys", [("imagenet", imagenet, {}), ("huggingface", hub, {"caption": "text"})])
def test_a_share_is_held_out_where_the_files_say_nothing(tmp_path, name, write, keys):
    for is_there in (True, False):
        write(tmp_path / str(is_there), is_there)
        heldout = with_source(tmp_path, name=name, folder=str(tmp_path / str(is_there)), **keys).data.source.heldout
        assert heldout is None if is_there else heldout.share == 0.2


def test_several_splits_without_a_usual_one_are_an_error(tmp_path):
    hub(tmp_path / "d", True)
    for path in (tmp_path / "d" / "data").glob("validation*"):
        path.rename(path.with_name(path.name.replace("validation", "extra")))
    experiment = with_source(tmp_path, name="huggingface", folder=str(tmp_path / "d"), caption="text")
    assert experiment.data.source.heldout is None
    done = hpcddm("submit", tmp_path / "e.yaml", "--dry-run", "--site", "embedded", "--run-dir", tmp_path / "run")
    assert done.exit_code == 1 and "has no split validation or test, but" in done.stderr


@pytest.mark.parametrize("train, heldout", [(30, 90), (90, 30)])
@pytest.mark.parametrize("name, images", [("image_folder", 30), ("webdataset", 20)])
def test_no_more_images_are_evaluated_than_the_smaller_split_has(tmp_path, name, images, train, heldout):
    source = {"name": name, "folder": str(tmp_path / "d")}
    for split, count in {"train": train, "val": heldout}.items():
        pictures = [(f"{split}{number:04d}.png", encoded(number)) for number in range(count)]
        if name == "webdataset":
            write_tar(tmp_path / "d" / f"{split}.tar", pictures)
            source["heldout"] = {"tars": "val.tar"}
            continue
        (tmp_path / "d" / split).mkdir(parents=True)
        for place, content in pictures:
            (tmp_path / "d" / split / place).write_bytes(content)
    assert with_source(tmp_path, "data.image_size=16", **source).evaluate.images == images


def test_images_to_evaluate_are_whole_rounds_of_the_classes(tmp_path):
    write_tar(tmp_path / "d" / "0.tar", [(f"{number:04d}.png", encoded(number)) for number in range(40)])
    source = {"name": "webdataset", "folder": str(tmp_path / "d"), "heldout": {"share": 0.5}}
    for classes, images in ((3, 21), (6, 24), (10, 20), (30, 60)):
        evaluate = with_source(tmp_path, num_classes=classes, **source).evaluate
        assert evaluate.images == images and images % evaluate.batch == 0, classes


def test_images_that_are_not_there_are_named_by_the_command_and_not_by_the_defaults(photos):
    done = hpcddm("submit", "my photos.yaml", "data.source.folder=gone", "--dry-run", "--site", "embedded")
    assert done.exit_code == 1 and f"{photos / 'gone'}" in done.stderr and done.stderr.count("\n") == 1


def test_submit_prints_what_the_defaults_became_and_the_run_keeps_them(photos, monkeypatch):
    done = hpcddm("submit", "my photos.yaml", "--dry-run", "--site", "embedded", "--run-dir", "run")
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if line.startswith("  experts: "))
    printed = yaml.safe_load(line)["experts"]
    assert printed["model"] == {"name": "dit", "width": 128, "depth": 4, "heads": 4, "patch": 4}
    assert printed["training"]["ema_halflife_images"] == 4096
    run = RunDir(photos / "run")
    run.root.mkdir(exist_ok=True)
    experiment, _, chosen = load_for_run("my photos.yaml", (), run.root)
    chosen.store(run)
    monkeypatch.setattr(experiment_defaults, "EXPERT_IMAGES", 999_424)

    def again(*overrides, root=run.root):
        return load_for_run("my photos.yaml", overrides, root)[0]

    assert again() == experiment
    named = again("data.class_names=[a bird, a boat, a flower]")
    assert named.data.class_names == ["a bird", "a boat", "a flower"] and named.experts == experiment.experts
    larger = again("data.image_size=64").experts
    assert larger.model.width == 192 and larger.training.images == 4 * 10_240
    assert again(root=photos / "other").experts.training.images == 4 * 999_424


CHANGES = [
    ("experts.training.images=2048", "experts", {"warmup_images": 102, "ema_halflife_images": 204}),
    ("experts.training.images=2048", "router", {"images": 512, "warmup_images": 25, "ema_halflife_images": 51}),
    ("experts.training.images=400000", "experts", {"warmup_images": 20_000, "ema_halflife_images": 40_000}),
    ("experts.model.width=256", "experts", {"learning_rate": 0.001}),
    ("cluster.experts=8", "experts", {"images": 81_920, "batch": 64, "warmup_images": 4096}),
    ("router.training.images=64", "router", {"warmup_images": 3, "ema_halflife_images": 6}),
    ("evaluators.extractor.training.images=4096", "evaluators.extractor", {"warmup_images": 204}),
    ("evaluators.classifier.training.images=4096", "evaluators.classifier", {"warmup_images": 204}),
    ("evaluate.images=24", "evaluate", {"batch": 24}),
    ("cluster.experts=1", "evaluate", {"strategies": ["top-1"]}),
]
"""An override, the section of the values that follow from it, and some of these."""
UNITS = {"experts": "train/monolith", "router": "router", "evaluators.extractor": "evaluators/extractor"}
UNITS |= {"evaluators.classifier": "evaluators/classifier"}


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """The working directory with a source that opens fast, and an experiment that names it alone."""
    write_source(tmp_path / "digits")
    (tmp_path / "e.yaml").write_text("data: {source: {name: idx, folder: digits}}\n")
    monkeypatch.chdir(tmp_path)
    return RunDir(tmp_path / "run")


def begin(run, *overrides):
    """Keep the defaults of a run, as its first submission does."""
    run.root.mkdir()
    of_run(run, *overrides)[2].store(run)


def of_run(run, *overrides):
    return load_for_run("e.yaml", overrides, run.root)


@pytest.mark.parametrize("override, section, values", CHANGES)
def test_a_default_follows_a_changed_key_until_it_is_trained_with(digits, monkeypatch, override, section, values):
    begin(digits, *(["experts.training.images=8192"] if "=400000" in override else []))
    follow = load_experiment("e.yaml", (override,))
    place = f"{section}.training" if section in UNITS else section
    expected = {f"{place}.{key}": value for key, value in values.items()}

    def now(*overrides):
        """The experiment, the keys in question of it, and those that are left."""
        experiment, _, defaults = of_run(digits, *overrides)
        flat = flatten(experiment.model_dump())
        return experiment, {key: flat[key] for key in expected}, defaults.left

    # The run keeps its shares, whatever today's are.
    monkeypatch.setattr("hpcddm.loading.run_defaults.SHARES", experiment_defaults.Shares(2, 2, 2))
    assert now(override) == (follow, expected, {})
    kept = json.loads(digits.defaults.read_text())["values"]
    for name in ("state/images-0000002048/state.json", "manifest.json") if section in UNITS else ():
        file = digits.root / UNITS[section] / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
        experiment, found, left = now(override)
        if override.startswith(("cluster.", f"{section}.model.")):
            assert experiment == follow and not left, "another network, which goes on from nothing"
            continue
        assert expected.items() <= left.items() and found == {key: kept[key] for key in expected}
        assert now(override, *(f"{key}={value}" for key, value in left.items()))[1:] == (expected, {})
        shutil.rmtree(digits.root / UNITS[section])


def test_submit_warns_once_of_values_that_stay_and_prints_the_line_that_takes_them(digits):
    begin(digits)
    state = digits.root / "train/expert-00/state/images-0000002048/state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    fewer = "experts.training.images=2048"
    done = hpcddm("submit", "e.yaml", fewer, "--dry-run", "--run-dir", "run", "--site", "embedded")
    (note,) = [line for line in done.stderr.splitlines() if "append" in line]
    assert note.endswith("append experts.training.warmup_images=102 experts.training.ema_halflife_images=204")
    defaults = of_run(digits, fewer)[2]
    defaults.store(digits)
    assert of_run(digits, fewer)[2].left == defaults.left, "as long as nobody has decided"
    shutil.rmtree(digits.root / "train")
    experiment, _, defaults = of_run(digits, "experts.training.images=400000")
    assert experiment.experts.training.warmup_images == 20_000 and not defaults.left


def test_a_run_that_was_moved_keeps_its_defaults(digits, monkeypatch, tmp_path_factory):
    begin(digits)
    before = of_run(digits)[0]
    moved = RunDir(digits.root.rename(tmp_path_factory.mktemp("elsewhere") / "run"))
    monkeypatch.setattr(experiment_defaults, "IMAGES_OF_A_SHARD", 10)
    assert of_run(moved)[0] == before


def test_one_expert_needs_no_router_and_a_setting_of_a_sweep_has_the_defaults_of_its_own_values(photos):
    experiment = loaded("cluster.experts=1")
    assert experiment.router.model.name == "uniform_router" and experiment.router.training is None
    assert experiment.evaluate.strategies == ["top-1"]
    grid = {"data.image_size": [32, 64]}
    (photos / "s.yaml").write_text(yaml.safe_dump({"name": "s", "experiment": "my photos.yaml", "grid": grid}))
    widths = {label: own.experts.model.width for label, own in read_sweep("s.yaml").experiments.items()}
    assert widths == {"image_size=32": 128, "image_size=64": 192}


WRONG = ["data:", "data: photos", "experts:", "experts: {model: dit}", "experts: {training: [1]}"]
WRONG += ["cluster: {experts: x}", "router: {model: {name: [1]}}", "evaluators: 3", "evaluate: {images: -1}"]
WRONG += ["cluster: {clustering: kmeans}"]


@pytest.mark.parametrize("section", WRONG)
def test_what_is_wrong_is_named_in_one_line_and_not_filled_over(photos, section):
    data = "" if section.startswith("data") else "data: {source: {name: image_folder, folder: photos}}\n"
    (photos / "wrong.yaml").write_text(f"{data}{section}\n")
    with pytest.raises(ConfigError) as caught:
        load_experiment("wrong.yaml")
    assert str(caught.value).startswith(f"wrong.yaml:{2 if data else 1}: {section.partition(':')[0]}"), caught.value
