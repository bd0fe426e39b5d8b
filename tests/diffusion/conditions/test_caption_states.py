"""States of captions by all ways: as they are read, as a column, in a training's step; and what stands in their way."""

import json
import os
import shutil
from multiprocessing import get_context
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hpcddm.data import run_samples
from hpcddm.data.batch import PixelInputs
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.errors import UserError
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.unit_keys import CAPTIONS, MONOLITH
from hpcddm.stages.data import encode_captions_job
from hpcddm.stages.training import train_job
from hpcddm.training.training_inputs import noisy_batches
from tests import pictures
from tests.stages.adopting import ADOPTED
from tests.stages.routes import Bench

CPU = torch.device("cpu")
WORDS = {"name": "words", "width": 16}
ULP = 2.0**-10
"""Largest distance of neighbouring float16 numbers, as a share of them."""
SUMS = 1e-5
"""Error of sums in float32, which may have any order."""


class Run(Bench):
    """A run on captioned pictures, whose manifests have the settings that they should have."""

    def publish(self, unit, result):
        super().publish(unit, result)
        (planned,) = (one for one in plan_units(self.settings) if one.key == unit.key)
        path = unit.folder / manifest.FILE_NAME
        path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": planned.fingerprint_settings}))

    def make_texts(self):
        """Make all that the states of captions need."""
        self.make(*(unit.key for unit in plan_units(self.settings) if unit.stage in DATA))

    def data(self, **changes):
        """Its settings of data with another condition."""
        condition = self.settings.data.condition.model_copy(update=changes)
        return self.settings.data.model_copy(update={"condition": condition})

    def condition(self, cached, **changes):
        return conditions.create_condition(self.data(cached=cached, **changes), self.run.output)

    def reader(self, split=TRAIN):
        return run_samples.open_reader(self.unit(CAPTIONS), split)


DATA = ("shard", "catalog", "encode_captions")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pictures.write_folder(tmp_path_factory.mktemp("emoji") / "pictures").parent


def run_of(folder, name, shards=2, encoder=WORDS, cached=True, **changes):
    condition = {"name": "text", "encoder": encoder, "tokens": 5, "cached": cached}
    own = {"data__source": {"name": "image_folder", "folder": str(folder / "pictures")}, "data__shards": shards}
    return Run(folder, name, **(ADOPTED | own | {"data__condition": condition} | changes))


@pytest.fixture(scope="module")
def run(folder):
    """A finished column of the encoder of words, in two ranges."""
    made = run_of(folder, "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_captions_job, "CAPTIONS_AT_ONCE", 16)
        made.make_texts()
    return made


def states(run, split=TRAIN):
    reader = run.reader(split)
    return run.condition(True).of_samples(reader, np.arange(len(reader)))


def test_a_column_holds_the_states_of_todays_way_rounded(run):
    for split in (TRAIN, HELDOUT):
        reader = run.reader(split)
        numbers = np.arange(len(reader))[::-1].copy()
        read = run.condition(None).of_samples(reader, numbers)
        column = run.condition(True).of_samples(reader, numbers)
        assert read.dtype == torch.float32 and column.dtype == torch.float16
        assert torch.equal(column, read.half())
        assert torch.equal(column, run.condition(False).of_samples(reader, numbers))
        texts_of = reader.captions(numbers)
        fitting = [row for row, caption in enumerate(texts_of) if len(caption.split()) < 4][:20]
        prompts = [texts_of[row] for row in fitting]
        assert torch.equal(column[fitting], run.condition(True).of_prompts(prompts))


def batch(run, cached, size=64):
    settings, reader = run.settings.model_copy(update={"data": run.data(cached=cached)}), run.reader()
    reader._clusters = lambda numbers: np.zeros(len(numbers))
    unit = SimpleNamespace(key=MONOLITH, input=run.run.output)
    read = noisy_batches(settings, unit, reader, PixelInputs(reader)).read(range(size))
    return read, read.to(CPU, create_space(settings.data).to_model)


def test_a_training_sees_the_same_by_all_ways(run):
    (_, read), (_, column), (carried, step) = (batch(run, cached) for cached in (None, True, False))
    assert carried.condition.dtype == torch.int64 and carried.condition.shape[0] == 64
    assert torch.equal(step.condition, column.condition) and torch.equal(column.condition, read.condition.half())
    null = run.condition(True).null(1)[0]
    dropped = (step.condition == null).flatten(1).all(1)
    assert 0 < dropped.sum() < 20, "a tenth of the captions is dropped"


def rows(path):
    with h5py.File(path) as file:
        return file["states/values"][...]


CHANGES = {"experts__training__images": 96, "cluster__clustering": {"name": "random"}}


def train_expert(folder, name, cached):
    """Train an expert, in a process of its own as in a job."""
    run = run_of(folder, name, cached=cached, **CHANGES)
    train_job.run(run.settings, run.unit("train/expert-00"))
    # Interpreter shutdown can abort in gloo's threads.
    os._exit(0)


def test_an_expert_ends_with_the_same_weights_by_the_column_and_by_its_steps(folder, tmp_path):
    some_pictures(folder, tmp_path, captioned=True)
    ends = []
    for cached in (True, False):
        run = run_of(tmp_path, f"trained-{cached}", cached=cached, **CHANGES)
        run.make_data()
        process = get_context("spawn").Process(target=train_expert, args=(tmp_path, f"trained-{cached}", cached))
        process.start()
        process.join(120)
        assert process.exitcode == 0
        ends.append(load_file(run.run.unit("train/expert-00") / "weights.safetensors"))
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    assert ends[0]["trunk.blocks.0.cross.out.weight"].any(), "zero before the training"


def test_a_column_of_another_encoder_is_refused(run):
    complaint = r"encode_captions/000: states of another encoder \(.*tokens 5\), .*tokens 7.*submit"
    with pytest.raises(UserError, match=complaint):
        run.condition(True, tokens=7).of_samples(run.reader(), [0])


def test_a_torn_column_and_a_missing_one_are_named(run, tmp_path):
    def refused(condition, complaint):
        with pytest.raises(UserError, match=complaint):
            condition.of_samples(run.reader(), [0])

    path = run.run.output("encode_captions/001", "states.h5")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(run.condition(True), "encode_captions/001/states.h5: no usable columns")
    path.write_bytes(whole)
    kept = (path.parent / manifest.FILE_NAME).rename(tmp_path / "kept")
    refused(run.condition(True), "encode_captions/001: the states of captions are not complete")
    kept.rename(path.parent / manifest.FILE_NAME)
    elsewhere = conditions.create_condition(run.settings.data, lambda key, name: tmp_path / key / name)
    refused(elsewhere, "the distinct captions are not complete")
    assert elsewhere.null(2).shape == (2, 5, 16), "prompts need no column"


def some_pictures(folder, own, captioned):
    """A run on the first pictures of each split in a folder of its own."""
    for split in ("train", "heldout"):
        there, here = (one / "pictures" / split for one in (folder, own))
        here.mkdir(parents=True)
        rows = (there / "captions.jsonl").read_text().splitlines()[:24]
        for name in (json.loads(row)["file"] for row in rows):
            shutil.copy(there / name, here / name)
        if captioned:
            (here / "captions.jsonl").write_text("\n".join(rows))


@pytest.mark.parametrize(
    "change", [{"samples": 3}, {"ranges": {"../x": [0, 1]}}, {"ranges": {"000": [0, -1]}}, {"captions": None}]
)
def test_an_index_of_captions_that_somebody_else_wrote_is_named(run, tmp_path, change):
    index = {"captions": 1, "samples": {"train": 1}, "ranges": {"000": [0, 1]}}
    (tmp_path / "captions.json").write_text(json.dumps(index | change))
    condition = conditions.create_condition(run.settings.data, lambda key, name: tmp_path / name)
    with pytest.raises(UserError, match="captions.json: holds no usable JSON"):
        condition.of_samples(run.reader(), [0])


def test_only_a_column_needs_the_stage_and_only_other_states_other_trainings(folder):
    plans = {cached: plan_units(run_of(folder, "plan", cached=cached).settings) for cached in (None, True, False)}
    encoding = {key: [unit.key for unit in units if unit.stage == "encode_captions"] for key, units in plans.items()}
    assert encoding == {None: [], True: [CAPTIONS, "encode_captions/000", "encode_captions/001"], False: []}
    (reading,) = (unit for unit in plans[True] if unit.key == "train/expert-00")
    assert {*encoding[True]} <= set(reading.requires)
    assert not reading.counts_in_fingerprint("encode_captions/000") and not reading.counts_in_fingerprint(CAPTIONS)
    hashed = {key: units[-1].fingerprint_settings.get("data.condition.cached") for key, units in plans.items()}
    assert hashed == {None: None, True: True, False: False}


def test_pretrained_states_are_the_same_by_all_ways_to_one_step_of_float16(folder, tmp_path, fetched):
    """And captions that are encoded beside others of other lengths."""
    pytest.importorskip("tokenizers")
    fetched("text", "minilm")
    some_pictures(folder, tmp_path, captioned=True)
    run = run_of(tmp_path, "minilm", encoder={"name": "minilm"})
    run.make_texts()
    reader, numbers = run.reader(), np.arange(24)
    read, column = (run.condition(cached).of_samples(reader, numbers).float() for cached in (None, True))
    assert torch.equal(column.any(2), read.any(2)) and not column[:, -1].any(1).all()
    assert_close(column, read)
    (_, step), (_, cached) = (batch(run, own, 16) for own in (False, True))
    assert_close(step.condition.float(), cached.condition.float())


def assert_close(states, others):
    """One step of float16 apart; of a value near zero the sums' own error is larger."""
    assert ((states - others).abs() <= ULP * others.abs() + SUMS).all()
    assert (states - others).abs().max() > 0
