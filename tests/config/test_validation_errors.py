"""All mistakes of a file are named at once, each with its line, and those of an override with the override."""

import pytest
import yaml

from hpcddm.config.validation_errors import MAX_LINES
from hpcddm.errors import ConfigError
from hpcddm.launch.load_site import load_site
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import read_sweep
from tests.helpers import write_experiment, write_source

FILE = """\
name: tiny
data:
  source: {name: idx}
  image_siz: 8
  shards: many
experts:
  model: {name: dit, width: 16, dept: 1,
          colour: red}
  training: {images: 64}
router: {model: {name: uniform_router}}
cluster: {experts: 2, clustering: {name: kmeans, fine_clusters: 8}}
encode: {encoder: {name: pixels, size: 4}}
evaluators:
  extractor: {model: {name: small_cnn}, training: {images: 1, batch: 1, learning_rate: 1, ema_halflife_images: 1}}
"""


def mistakes(load, *arguments):
    """Return the lines of a refusal."""
    with pytest.raises(ConfigError) as caught:
        load(*arguments)
    return str(caught.value).split("\n")


def test_missing_unknown_and_wrong_keys_of_all_levels_are_named_at_once_with_their_lines(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(FILE)
    lines = [line.removeprefix(str(path)) for line in mistakes(load_experiment, str(path))]
    assert lines[0] == ":3: data.source.folder: this key is needed"
    unknown = [":4: data.image_siz", ":7: experts.model.dept", ":8: experts.model.colour"]
    assert [line.partition("; valid")[0] for line in lines[1:4]] == [f"{key}: unknown key" for key in unknown]
    assert lines[1].endswith("; did you mean 'image_size'?") and lines[2].endswith("; did you mean 'depth'?")
    many = "input should be a valid integer, unable to parse string as an integer, found 'many'"
    assert lines[4:] == [f":5: data.shards: {many}"]


def test_missing_weights_are_named_with_both_ways_to_give_them(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(FILE.replace("name: pixels, size: 4", "name: dinov2, width: 384"))
    needed = "encode.encoder.weights: this key is needed: {folder: FOLDER}, or {hub: OWNER/NAME}"
    assert [line for line in mistakes(load_experiment, str(path)) if line.endswith(needed)]


def test_combinations_are_named_at_once_too(tmp_path):
    changes = {"cluster__experts": 3, "evaluate__images": 25}
    lines = mistakes(load_experiment, str(write_experiment(tmp_path, **changes)))
    keys = ["experts.training.batch", "evaluate.images", "evaluate.images"]
    assert [line.split(": ")[1] for line in lines] == keys
    text = (tmp_path / "tiny.yaml").read_text().splitlines()
    written = [text[int(line.split(":")[1]) - 1].split(":")[0].strip() for line in lines]
    assert written == [key.split(".")[-1] for key in keys]


BLAMED = {
    "seed=-1": ": seed: input should be greater",
    "colours.red=3": ": colours: unknown key",
    "experts.training.imges=3": ": experts.training.imges: unknown key",
    "experts.extra=[{name: hats}]": ": experts.extra.0: these keys are needed: list, images, batch",
    "experts.model.name=x": ": experts.model: unknown name 'x'",
    "router.model.name=uniform_router": " (with tiny.yaml:DEPTH): router.model.depth: unknown key",
    "cluster.experts=16": " (with tiny.yaml:CLUSTERING): cluster.clustering: fine 8 is less than experts 16",
    "data.image_size=4": " (with tiny.yaml:EXTRACTOR): evaluators.extractor.model: small_cnn needs images of at",
    "seed=1; seed=-1": ": seed: input",
    "experts.training.batch=x; experts.training={images: 0}": ": experts.training.images: input should be greater",
}
"""Overrides, and what follows the last of them: the place in the file beside it, and its mistake."""


@pytest.mark.parametrize("overrides, message", BLAMED.items())
def test_an_override_is_blamed_for_its_mistake_and_the_file_for_its_own(tmp_path, monkeypatch, overrides, message):
    monkeypatch.chdir(tmp_path)
    text = write_experiment(tmp_path).read_text().splitlines()
    clustering = text.index("  clustering:") + 1
    depth = text.index("    depth: 1", text.index("router:")) + 1
    extractor = text.index("  extractor:") + 2
    given = overrides.split("; ")
    lines = mistakes(load_experiment, "tiny.yaml", tuple(given))
    for name, number in {"CLUSTERING": clustering, "DEPTH": depth, "EXTRACTOR": extractor}.items():
        message = message.replace(name, str(number))
    assert any(line.startswith(f"'{given[-1]}'{message}") for line in lines), lines


def test_a_mistake_of_the_file_is_not_blamed_on_an_override_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_experiment(tmp_path, experts__training__images="many")
    number = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if "images: many" in line)
    (line,) = mistakes(load_experiment, "tiny.yaml", ("experts.training.batch=8",))
    assert line.startswith(f"tiny.yaml:{number}: experts.training.images: input should be a valid integer")


def test_a_setting_of_a_sweep_is_blamed_with_the_line_of_its_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    for section, number in (("grid:\n  evaluate.steps: [1, -1]", 4), ("list:\n  - evaluate.steps: -1", 3)):
        (tmp_path / "sweep.yaml").write_text(f"name: trial\nexperiment: tiny.yaml\n{section}\n")
        (line,) = mistakes(read_sweep, "sweep.yaml")
        assert line.startswith(f"sweep.yaml:{number}: setting steps=-1: evaluate.steps: input should be greater than 0")
    settings = "set:\n  seed: -1\ngrid: {evaluate.steps: [1]}\n"
    (tmp_path / "sweep.yaml").write_text(f"name: trial\nexperiment: tiny.yaml\n{settings}")
    assert mistakes(read_sweep, "sweep.yaml")[0].startswith("sweep.yaml:4: set: seed: input should be greater")


def test_of_many_mistakes_every_key_is_named_and_the_first_ones_have_lines_of_their_own(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text("".join(f"key{number}: {number}\n" for number in range(40)))
    lines = mistakes(load_experiment, str(path))
    assert lines[0] == f"{path}: data: this key is needed"
    assert lines[1].startswith(f"{path}:1: key0: unknown key; valid keys: name, seed, site")
    assert lines[2:-1] == [f"{path}:{n + 1}: key{n}: unknown key" for n in range(1, MAX_LINES - 1)]
    rest = [f"key{n}" for n in range(MAX_LINES - 1, 40)]
    assert lines[-1] == f"{path}: and {len(rest)} more: {', '.join(rest)}"


def test_a_site_names_all_mistakes_of_its_stages(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nscheduler: slurm\naccount: 12345\nhas_sacct: 1\n"
        "stages:\n  train: {nodse: 2, minutes: many}\n  train/monolith: {nodes: 0}\n"
    )
    lines = [line.removeprefix(f"{path}:") for line in mistakes(load_site, str(path))]
    assert lines[0].startswith("6: stages.train.nodse: unknown key; valid keys: partition") and "'nodes'?" in lines[0]
    assert sorted(lines[1:]) == [
        "3: account: input should be a valid string, found 12345; put it in quotes",
        "4: has_sacct: needs true or false, found 1",
        "6: stages.train.minutes: input should be a valid integer, unable to parse string as an integer, found 'many'",
        "7: stages.train/monolith.nodes: input should be greater than 0, found 0",
    ]


def test_sources_in_a_list_are_named_by_their_number(tmp_path):
    path = write_experiment(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["data"]["source"] = [{"name": "idx", "folder": "images", "collection": "a"}, {"name": "idx", "foldr": "b"}]
    path.write_text(yaml.safe_dump(values))
    (line,) = mistakes(load_experiment, str(path))
    assert "data.source.1.foldr: unknown key" in line and line.endswith("did you mean 'folder'?")
    number = int(line.removeprefix(f"{path}:").partition(":")[0])
    assert path.read_text().splitlines()[number - 1].strip().startswith(("foldr", "- foldr"))
