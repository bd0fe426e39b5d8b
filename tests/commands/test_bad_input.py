"""Wrong input: one line that names the place and what would do, exit code 2 or 1, and no half-made run."""

import gzip
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcddm.commands.planning import benchmark
from hpcddm.pipeline.unit_graph import STAGE_NAMES
from tests.helpers import hpcddm, write_experiment, write_idx, write_source


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with images and a valid experiment."""
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    return tmp_path


def refused(*arguments, code=2, run="run"):
    """The one line that a refused command prints; nothing may have been made."""
    before = os.path.lexists(run)
    done = hpcddm(*arguments)
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.stdout == "" and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert os.path.lexists(run) == before and not os.path.lexists("runs")
    return done.stderr


def submit(*arguments, experiment="tiny.yaml", site="embedded", run="run", code=2):
    return refused("submit", experiment, "--site", site, "--run-dir", run, *arguments, code=code, run=run)


OVERRIDES = {
    "colour=1": "error: 'colour=1': colour: unknown key; valid keys: name, seed",
    "experts.trainig.images=3": "experts.trainig: unknown key; valid keys: model, objective",
    "experts.model.wdth=3": "experts.model.wdth: unknown key; valid keys: name, size, width, depth, heads, patch",
    "evaluate": "'evaluate': an override is key.key=value, for instance",
    "data.num_classes=3": "data.num_classes: 3, but the train images have class 3",
    "data.num_classes=6": "evaluate.images: 24 balanced images need 4 train images of every class, class 4 has 0",
    "evaluate.images=48": "evaluate.images: 48 balanced images need 12 heldout images of every class, class 0 has 10",
    "evaluators.classifier=null": "evaluators.classifier: this key is needed: the images have classes",
    "data.shards=97": "data: 96 train images cannot fill 97 shards",
    "data.condition={name: text, encoder: {name: words}}": "data.condition: the train images have no captions; name a"
    " sentence for every class as prompts",
    "data.condition.name=caption": "data.condition: unknown name 'caption'; valid names: class_label, none, text",
}


@pytest.mark.parametrize("override, message", OVERRIDES.items(), ids=OVERRIDES)
def test_a_wrong_setting(place, override, message):
    assert message in submit(override)


def test_images_without_classes_are_refused_where_something_needs_them(place):
    condition = ("data.num_classes=null", "data.condition={name: class_label}")
    without = hpcddm("submit", "tiny.yaml", "--run-dir", "run", *condition).stderr
    assert "data.condition: class_label needs data.num_classes" in without
    blind = ("data.num_classes=null", "data.condition.name=none")
    assert "evaluators.classifier: names classes, and data.num_classes is not set" in submit(*blind)
    blind += ("evaluators.classifier=null",)
    compared = submit(*blind, "evaluate.images=48")
    assert "evaluate.images: 48 samples are compared with as many heldout images, there are 40" in compared


KEYS = [*(f"train-{number:07d}" for number in range(96)), *(f"heldout-{number:07d}" for number in range(40))]
SCORED = ("data.filter=score >= 5", "data.table={file: scores.csv}")


def scores(values, ending="", name="scores.csv"):
    """Write a table with the score of every sample; values: other ones, by place."""
    rows = [f"{key},{values.get(place, 6)}{ending}\n" for place, key in enumerate(KEYS)]
    Path(name).write_text("".join(["key,score\n", *rows]))


def test_a_quote_in_a_table_that_is_never_closed(place):
    scores({40: '"12 inch'})
    told = submit(*SCORED, code=1)
    assert "scores.csv: no readable table (line 42: a quote that opens here is never closed; close it" in told


@pytest.mark.parametrize("cell", ["NA", "N/A", "null", "None", "-"])
def test_a_text_among_the_numbers_of_a_table(place, cell):
    scores({0: cell, 50: cell})
    told = submit(*SCORED, code=1)
    assert "data.filter: score is a text, where a number is needed: " in told
    assert f"scores.csv: line 2: '{cell}' is not a number; a missing value is an empty cell of CSV, or null" in told


def test_a_table_without_a_row_for_any_sample(place):
    Path("scores.csv").write_text("key,score\n" + "".join(f"./{key},6\n" for key in KEYS))
    told = submit(*SCORED, code=1)
    assert "scores.csv: no row for any of 136 samples: its first key is './train-0000000', that of a sample" in told
    assert "is 'train-0000000'; write keys into it as samples have them" in told
    Path("scores.csv").write_text("key,score\n")
    assert "scores.csv: no row for any of 136 samples: it has no row, that of a sample is" in submit(*SCORED, code=1)


def test_samples_without_a_row_in_the_table_are_counted_beforehand(place, monkeypatch):
    monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda *question: 60.0)
    commands = [("submit", "--dry-run"), ("plan",)]
    arguments = ("tiny.yaml", "--site", "embedded", "--run-dir", "run", *SCORED)
    line = f"passed over   samples without a row in data.table: 5 ({', '.join((*KEYS[:2], KEYS[-3]))}, ...)\n"
    for command in commands:
        Path("scores.csv").write_text("key,score\n" + "".join(f"{key},6\n" for key in KEYS[2:-3]))
        done = hpcddm(*command, *arguments)
        assert done.exit_code == 0 and line in done.stdout
        scores({})
        assert "passed over" not in hpcddm(*command, *arguments).output


def test_a_cluster_in_a_table_that_is_not_one(place):
    scores({7: "NA"}, name="clusters.csv")
    told = submit("cluster.clustering={name: file, table: {file: clusters.csv}, column: score}", code=1)
    assert "clusters.csv: line 2: score of train-0000000: '6' is not a whole number from 0 to 1" in told


@pytest.mark.parametrize("experiment", ["quickstrat", "missing.yaml"])
def test_an_unknown_experiment(place, experiment):
    assert experiment in submit(experiment=experiment)


def test_an_unknown_site(place):
    message = submit(site="north")
    assert "no site named 'north'; valid names: embedded, slurm, " in message and "or the path of a YAML" in message


UNEVEN = "3 ranks cannot share the batch of 16 of {} evenly"
SITES = {
    "queue: gpu": "queue: unknown key; valid keys: partition, account",
    "stages: {trian: {nodes: 2}}": "stages.trian: unknown stage; valid: shard, catalog, autoencoder, encode",
    "stages: {train: {nodes: 3}}": UNEVEN.format("train/monolith"),
    "stages: {router: {nodes: 3}}": UNEVEN.format("router/all"),
}


@pytest.mark.parametrize("line, message", SITES.items())
def test_a_wrong_site(place, line, message):
    (place / "site.yaml").write_text(f"name: here\nscheduler: local\n{line}\n")
    assert message in submit(site="site.yaml")


def test_an_unknown_stage_to_redo(place):
    assert f"--redo trian: unknown stage; valid: {', '.join(STAGE_NAMES)}" in submit("--redo", "trian")


WRONG_LINES = {
    "sbumit": "sbumit",
    "submit tiny.yaml --redoo train": "--redoo",
    "submit tiny.yaml --site": "--site",
    "logs run": "STAGE/UNIT",
    "sample run --num-images 0": "--num-images",
}


@pytest.mark.parametrize("line, named", WRONG_LINES.items())
def test_a_wrong_command_line(place, line, named):
    assert named in refused(*line.split())


@pytest.mark.parametrize("split", ["train-labels-idx1", "t10k-labels-idx1", "train-images-idx3", "t10k-images-idx3"])
@pytest.mark.parametrize("end, added", [(-30, b""), (0, gzip.compress(b"no IDX", mtime=0)), (0, b"")])
def test_a_file_of_images_that_is_torn_or_none(place, split, end, added):
    path = place / "images" / f"{split}-ubyte.gz"
    path.write_bytes(path.read_bytes()[:end] + added)
    assert f"{path}: no IDX file of unsigned bytes" in submit(code=1)


def test_too_few_heldout_images_of_one_class(place):
    write_idx(place / "images" / "t10k-labels-idx1-ubyte.gz", np.array([0, 1, 2] * 13 + [3]))
    assert "class 3 has 1" in submit()


@pytest.mark.parametrize("run", ["file", "file/run", "/proc/run", "/dev/null"])
def test_a_run_directory_that_cannot_be_made(place, run):
    (place / "file").write_text("")
    assert f"--run-dir {run}: cannot be made" in submit(run=run)


@pytest.mark.parametrize("run, reader", [("100%", "Slurm"), ("12:30", "Python")])
def test_a_run_directory_whose_name_means_something_else(place, run, reader):
    assert f"in a path means something to {reader}" in submit(run=run)
    assert not (place / run).exists()


def test_a_run_directory_that_is_read_only(place):
    (place / "run").mkdir()
    for options in (["--bind", "run", "run"], ["-o", "remount,bind,ro", "run"]):
        if subprocess.run(["mount", *options], capture_output=True).returncode:
            pytest.skip("mounting needs root")
    try:
        assert "--run-dir run: not writable" in submit()
    finally:
        subprocess.run(["umount", "run"], check=True)


def test_a_run_directory_that_another_submit_works_in(place):
    from hpcddm.runs.lease import lease

    with lease(place / "run" / ".submit.lock", "somebody"):
        assert "somebody" in submit(code=1)


def test_slurm_that_is_not_there(place, monkeypatch):
    monkeypatch.setenv("PATH", str(place))
    assert "slurm" in submit(site="slurm", code=1)


VERBS = ["status run", "sample run", "retry run", "run-unit run train/monolith", "logs run train/monolith"]


@pytest.mark.parametrize("line", VERBS)
def test_a_folder_that_holds_no_run(place, line):
    assert "run: no " in refused(*line.split())
