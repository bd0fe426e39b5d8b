"""The verb sample: what it refuses before it draws, and what it needs to draw."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hpcddm.api import open_run
from hpcddm.commands.sample import _changed, _class_of
from hpcddm.config import variants
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.data.catalog import CatalogPart, SplitEntry, catalog_as_json
from hpcddm.data.column_files import write_columns
from hpcddm.errors import ConfigError
from hpcddm.files import atomic
from hpcddm.launch.submission import store_experiment
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, MONOLITH, ROUTER, STUDENT, expert_key, student_keys, train_keys
from hpcddm.sampling.draw_images import RequestedConditions
from hpcddm.stages.training import router_job
from tests.commands.runs import complete_run
from tests.helpers import JOINED, finish, hpcddm, tiny

ROOM = "sampling/strategies"
USAGE = [variants.settings_class(ROOM, name).usage for name in variants.list_variants(ROOM)]
NAMES = f"valid names: {', '.join(USAGE)}, expert-0, expert-1, monolith"


def write_heldout(run, labels, clusters):
    """Write a catalog of held-out samples that lie in no tar."""
    columns = {name: np.zeros(len(labels), dtype=np.uint32) for name in ("tar", "offset", "size", "crc32")}
    columns |= {"label": np.array(labels, dtype=np.int32)}
    write_columns(run.root / "columns.h5", columns)
    write_columns(run.unit("assign/heldout-000") / "clusters.h5", {"cluster": np.array(clusters, dtype=np.uint16)})
    entry = SplitEntry(sorted(columns), [], [CatalogPart("heldout-000", "columns.h5", len(labels), "")])
    atomic.write_json(run.unit(CATALOG) / "catalog.json", catalog_as_json({"heldout": entry}))


def completed(folder, **changes):
    """A complete run whose networks were never trained, and whose held-out images are of classes 0 to 2."""
    run, experiment = complete_run(folder / "run", **changes), tiny(folder, **changes)
    write_heldout(run, [0, 1, 2] * 2, [0, 1] * 3)
    for key in [*train_keys(experiment), ROUTER, *student_keys(experiment)]:
        # A student read the experts as they are now.
        finish([unit for unit in plan_units(experiment) if unit.key == key == STUDENT], run)
        if key == ROUTER:
            network = router_job.build(experiment)
        else:
            network = build_denoiser.build(experiment, experiment.expert_config())
        save_file(network.state_dict(), run.unit(key) / "weights.safetensors")
        outputs = manifest.describe_outputs(run.unit(key), ["weights.safetensors"])
        manifest.publish(run.unit(key), replace(manifest.read(run.unit(key)), outputs=outputs))
    return run


@pytest.fixture
def run(tmp_path):
    return completed(tmp_path)


def refused(run, *arguments, code=2):
    """The one line that a refused command prints; nothing may have been drawn."""
    done = hpcddm("sample", run.root, "--output", run.root / "new" / "grid.png", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.output
    assert not (run.root / "new").exists()
    return done.stderr


def drawn(run, *arguments):
    """The size of the picture that is drawn and removed again, and the lines about it."""
    output = run.root / "new" / "grid.png"
    done = hpcddm("sample", run.root, "--output", output, "--num-images", 3, "--steps", 1, *arguments)
    assert done.exit_code == 0, done.output
    with Image.open(output) as drawing:
        assert drawing.mode == "LA"
        size = drawing.size
    shutil.rmtree(output.parent)
    return size, done.stdout.replace(str(output), "OUTPUT").splitlines()


STRATEGIES = dict.fromkeys(["expert-2", "expert-x", "sample-3", "nucleus-0", "top-" + "9" * 5000, "", "expert-²"], "")
STRATEGIES |= {"best": "unknown", "top-3": "top-3 needs 3 experts"}
STRATEGIES |= {"full-until-0.5-then-per-trajectory": "per-trajectory cannot be switched"}


@pytest.mark.parametrize("word, reason", STRATEGIES.items())
def test_a_strategy_that_means_nothing_here_is_told_why_and_lists_the_valid_ones(run, word, reason):
    message = refused(run, "--strategy", word)
    assert f"--strategy {word}: " in message and reason in message and f"; {NAMES}" in message


def test_a_dense_model_that_is_not_there_is_no_strategy(tmp_path):
    run = RunDir(tmp_path / "run")
    store_experiment(tiny(tmp_path, monolith__enabled=False), run)
    for arm in ("monolith", "student"):
        assert refused(run, "--strategy", arm).endswith("expert-0, expert-1\n")


def named(run, names):
    """Let the manifest of the catalog say what the classes are called, as that of a folder of images does."""
    before = manifest.read(run.unit(CATALOG))
    manifest.publish(run.unit(CATALOG), replace(before, results={"class_names": names}))


ANIMALS, SAME, DIGITS = ["ant", "bee", "cat", "dog"], ["dog", "Dog", "cat", "ant"], ["0", "1", "10", "2"]


@pytest.mark.parametrize(
    "names, word, number",
    [(None, "2", 2), (ANIMALS, "bee", 1), (ANIMALS, "3", 3), (ANIMALS, "Dog", 3), (SAME, "Dog", 1)]
    + [(DIGITS, "10", 2), (DIGITS, "2", 3)],
)
def test_a_class_goes_by_its_name_or_its_number(run, monkeypatch, names, word, number):
    if names:
        named(run, names)
    classes = []

    def request_conditions(*given):
        classes.extend(given[3].classes * given[3].count)
        return RequestedConditions(torch.zeros(3))

    monkeypatch.setattr("hpcddm.api.request_conditions", request_conditions)
    monkeypatch.setattr("hpcddm.sampling.trained_model.draw", lambda *given: np.zeros((3, 8, 8, 1)))
    hpcddm("sample", run.root, "--output", run.root / "grid.png", "--num-images", 3, "--class", word)
    assert classes == [number] * 3


@pytest.mark.parametrize(
    "names, word, message",
    [
        (None, "ant", "--class ant: valid classes are 0 to 3"),
        (None, "4", "--class 4: valid classes are 0 to 3"),
        (ANIMALS, "cap", "cap: unknown; nearest: cat; 4 classes: ant, bee, cat, dog, or 0 to 3"),
        (SAME, "DOG", "--class DOG: several classes differ in case alone: dog, Dog"),
    ],
)
def test_a_class_that_there_is_not_is_refused_with_those_that_there_are(run, names, word, message):
    if names:
        named(run, names)
    assert message in refused(run, "--class", word)


def test_of_a_thousand_classes_those_that_resemble_are_named():
    message = r"nearest: gold_fish; 1,000 classes: gold_fish, fishing-0, fishing-1, \.\.\., fishing-998, or 0 to 999"
    with pytest.raises(ConfigError, match=message) as caught:
        _class_of("goldfish", ["gold_fish", *(f"fishing-{number}" for number in range(999))])
    assert len(str(caught.value)) < 200


def test_the_line_about_the_picture_names_its_class_or_that_of_every_column(run):
    named(run, ["ant", "bee", "cat", "Lady bird"])
    _, one = drawn(run, "--num-images", 8, "--strategy", "full", "--class", "lady bird")
    assert one[-1] == "OUTPUT: 8 images of Lady bird, full, 1 euler steps, guidance 1"
    size, every = drawn(run, "--num-images", 8, "--strategy", "full")
    assert every[-2:] == ["OUTPUT: 8 images, full, 1 euler steps, guidance 1", "columns: ant, bee, cat, Lady bird"]
    assert round(size[0] / size[1]) == 2, "four columns and two rows"


NO_GUIDANCE = "needs a finite number of at least 0"


@pytest.mark.parametrize(
    "options, message",
    [(f"--guidance {value}", f"--guidance {value}: {NO_GUIDANCE}") for value in ("nan", "inf", "-1")]
    + [
        ("--solver rk45", "--solver rk45: unknown name 'rk45'; valid names: ddim, euler, heun, midpoint"),
        ("--solver ddim,eta=2", "--solver ddim,eta=2: eta: input should be less than or equal to 1"),
        ("--solver euler,eta=1", "--solver euler,eta=1: eta: unknown key; valid keys: name"),
        ("--solver ddim", "--solver ddim: ddim walks in one model's own coordinates"),
        ("--prompt hat", "--prompt: the networks of this run see no text (condition class_label); take --class"),
        ("--prompt hat --class 1", "--class and --prompt: name one of the two"),
    ],
)
def test_a_way_of_drawing_that_is_none_is_refused(run, options, message):
    assert message in refused(run, *options.split())


def test_guidance_that_does_not_go_with_the_run_s_conversion_is_refused(run):
    experiment = stored_experiment(run)
    values = experiment.evaluate.model_dump() | {"conversion": {"name": "as_reported"}}
    evaluate = EvaluateSettings.model_validate(values)
    with pytest.raises(ConfigError, match="--guidance 2: .*needs 'posteriors: shared'"):
        _changed(experiment.model_copy(update={"evaluate": evaluate}), "full", {"guidance": 2.0})


def test_one_model_draws_in_its_own_coordinates(run):
    euler, ddim = (drawn(run, "--strategy", "expert-1", "--solver", one)[0] for one in ("euler", "ddim,eta=1"))
    assert euler == ddim
    drawn(run, "--guidance", 2, "--solver", "heun")


OUTPUTS = {
    "grid.jpg": "the name must end in .png",
    "grid": "the name must end in .png",
    "folder.png": "cannot be written (Is a directory)",
    "file/grid.png": "cannot be written (File exists)",
    "file/new/grid.png": "cannot be written (Not a directory)",
    "/proc/grid.png": "cannot be written (No such file or directory)",
    "x" * 300 + ".png": "cannot be written (File name too long)",
    "there.npz": "exists; name another file",
}


@pytest.mark.parametrize("output, message", OUTPUTS.items())
def test_an_output_that_could_not_be_saved_is_refused_before_drawing(run, tmp_path, output, message):
    (tmp_path / "folder.png").mkdir()
    for name in ("file", "there.npz"):
        (tmp_path / name).write_text("")
    assert message in refused(run, "--output", tmp_path / output)


def test_an_array_has_the_images_of_the_run_and_what_drew_them(run, tmp_path):
    options = ("--num-images", "6", "--seed", "3", "--output", tmp_path / "x.npz")
    done = hpcddm("sample", run.root, *options)
    assert done.exit_code == 0 and "6 images" in done.output, done.output
    expected = open_run(run.root).sample(6, "top-1", [0, 1, 2, 3], seed=3)
    assert np.array_equal(np.load(tmp_path / "x.npz")["arr_0"], expected.repeat(3 // expected.shape[3], 3))
    described = json.loads((tmp_path / "x.npz.json").read_text())
    assert described["classes"] == [0, 1, 2, 3, 0, 1] and len(described["names"]) == 4
    assert (described["seed"], described["sampler"]["steps"]) == (3, 2)
    against = ("--against", tmp_path / "x.npz", "--extractor", "{name: pixels, size: 2}", "--json")
    figures = json.loads(hpcddm("evaluate", tmp_path / "x.npz", *against).stdout)["arms"]
    assert abs(next(iter(figures.values()))["fd@pixels-2"]) < 1e-6


EXPERTS = [expert_key(0), expert_key(1)]
NEEDED = {
    "top-1": [*EXPERTS, ROUTER],
    "oracle": [*EXPERTS, EXPERT_LISTS],
    "expert-01": EXPERTS[1:],
    "monolith": [MONOLITH],
    "per-trajectory": [*EXPERTS, ROUTER],
}


@pytest.mark.parametrize("strategy, needed", NEEDED.items())
def test_a_strategy_needs_exactly_what_it_reads(run, strategy, needed):
    for key in [*EXPERTS, MONOLITH, ROUTER]:
        path = run.unit(key) / "weights.safetensors"
        away = path.rename(path.with_suffix(".away"))
        if key in needed:
            message = refused(run, "--strategy", strategy, "--class", 1, code=1)
            assert message.startswith(f"error: {key} is damaged ({path} is missing); next: hpcddm status {run.root}")
        else:
            drawn(run, "--strategy", strategy, "--class", 1)
        away.rename(path)


def test_an_expert_of_another_seed_is_refused(run):
    before = manifest.read(run.unit(expert_key(1)))
    manifest.publish(run.unit(expert_key(1)), replace(before, settings=before.settings | {"seed": 7}))
    message = refused(run, code=1)
    assert f"{expert_key(1)} is stale (" in message and "seed: 7 -> 0" in message
    drawn(run, "--strategy", "expert-0")


ALONE = [
    ({"distill__teacher": "cluster"}, "student", STUDENT, f"{NAMES}, student"),
    ({"experts__extra": [JOINED]}, "hats", "train/hats", NAMES.replace("monolith", "hats, monolith")),
]


@pytest.mark.parametrize("changes, strategy, key, names", ALONE)
def test_a_student_and_an_expert_that_joined_draw_alone(tmp_path, changes, strategy, key, names):
    run = completed(tmp_path, **changes)
    assert refused(run, "--strategy", "best").endswith(f"{names}\n")
    drawn(run, "--strategy", strategy, "--class", 1)
    path = run.unit(key) / "weights.safetensors"
    path.unlink()
    assert f"{key} is damaged ({path} is missing)" in refused(run, "--strategy", strategy, code=1)
    drawn(run, "--strategy", "full", "--class", 1)


@pytest.fixture
def partial(run, tmp_path):
    """The same run, where one expert is enough and the second is not there."""
    store_experiment(tiny(tmp_path, evaluate__min_experts=1), run)
    (run.unit(expert_key(1)) / "manifest.json").unlink()
    return run


@pytest.mark.parametrize("strategy", ["full", "top-2", "oracle"])
def test_an_ensemble_draws_without_a_missing_expert_and_says_so(partial, strategy):
    _, lines = drawn(partial, "--strategy", strategy, "--class", 1)
    assert lines[-1].endswith(f"images, {strategy} without {expert_key(1)}, 1 euler steps, guidance 1")


def test_what_an_ensemble_cannot_do_without_is_named(partial, tmp_path):
    assert f"{expert_key(1)} is missing; next" in refused(partial, "--strategy", "expert-1", code=1)
    store_experiment(tiny(tmp_path, evaluate__min_experts=2), partial)
    assert f"{expert_key(1)} is missing; next" in refused(partial, "--strategy", "top-1", code=1)
    store_experiment(tiny(tmp_path, evaluate__min_experts=1), partial)
    (partial.unit(ROUTER) / "manifest.json").unlink()
    assert f"{ROUTER} is missing; next" in refused(partial, "--strategy", "oracle", code=1)


def test_a_class_without_heldout_images_matters_to_the_oracle_alone(run):
    drawn(run, "--strategy", "top-1", "--class", 3)
    assert "the oracle needs a held-out image of class 3, there is none" in refused_late(run, "--strategy", "oracle")


def refused_late(run, *arguments):
    """The one line of a command that is refused when it has read the run."""
    done = hpcddm("sample", run.root, "--output", run.root / "grid.png", "--num-images", 4, *arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    return done.stderr


TEXT = {"name": "text", "encoder": {"name": "words", "width": 8}, "prompts": ["a hat", "a shoe", "a bag", "a coat"]}


def test_sentences_are_drawn_in_turn_by_networks_that_see_text(tmp_path):
    run = completed(tmp_path, data__condition=TEXT)
    oracle = refused(run, "--prompt", "a hat", "--strategy", "oracle")
    assert "a sentence has no cluster that the oracle could name" in oracle
    two_columns, _ = drawn(run, "--prompt", "a red hat", "--prompt", "a shoe")
    assert two_columns[0] == two_columns[1] > 2 * 8
    done = hpcddm("sample", run.root, "--prompt", "a Red hat", "--num-images", 1, "--output", tmp_path / "red.png")
    assert done.stderr == "warning: red: in none of the training captions (all 4 were read)\n"
    drawn(run, "--class", "1")
    drawn(run)
    late = refused_late(run, "--prompt", "hat " * 200)
    assert "data.condition.tokens: 24 are too few for the 201 of the prompt" in late


def test_images_without_classes_are_drawn_like_the_evaluation_set(tmp_path):
    nothing = {"data__condition": {"name": "none"}, "data__num_classes": None, "evaluators__classifier": None}
    run = completed(tmp_path, **nothing, evaluate__images=24)
    write_heldout(run, [0] * 24, [0] * 24)
    assert "--class: the images of this run have no classes" in refused(run, "--class", "1")
    assert "name neither class nor prompt" in refused(run, "--prompt", "a hat")
    drawn(run)
    drawn(run, "--strategy", "oracle")


def test_a_page_shows_the_decisions_about_the_images_that_are_drawn(run, tmp_path):
    page = tmp_path / "shirts.html"
    done = hpcddm("sample", run.root, "--decisions", page, "--class", "1", "--num-images", "3", "--seed", "5")
    assert done.exit_code == 0, done.output
    assert f"{page}: decisions about 3 images" in done.output and not (tmp_path / "grid.png").exists()
    html = page.read_text()
    assert html.count('class="decided"') == 3 and html.count('type="radio"') == 1 and "<script" not in html
    model = open_run(run.root)
    found = model.decisions(3, "top-1", classes=[1], seed=5)
    assert np.array_equal(found.samples, model.sample(3, "top-1", classes=[1], seed=5))
    for expert, images in found.alone.items():
        assert np.array_equal(images, model.sample(3, f"expert-{expert}", classes=[1], seed=5))
    assert found.posterior.shape == found.weights.shape == (3, len(found.times), 2)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--decisions", "page.png"], "page.png: the name must end in .html"),
        (["--decisions", "page.html", "--strategy", "oracle"], "--decisions: the strategy oracle asks no router"),
        (["--decisions", "page.html", "--strategy", "expert-1"], "--decisions: the strategy expert-1 asks no router"),
        (["--decisions", "page.html", "--num-images", "41"], "--num-images 41: a page shows at most 40"),
        (["--decisions", "page.html", "--output", "x.png"], "--output and --decisions: name one of the two"),
        (["--decisions", "/proc/page.html"], "--decisions /proc/page.html: cannot be written"),
    ],
)
def test_a_page_without_decisions_is_refused(run, options, message):
    done = hpcddm("sample", run.root, *options)
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr
