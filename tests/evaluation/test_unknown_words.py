"""Words of prompts that no training caption has."""

import io
from types import SimpleNamespace

import pytest
import webdataset
from PIL import Image

from hpcddm.errors import UserError
from hpcddm.evaluation import unknown_words
from hpcddm.evaluation.unknown_words import read_caption_words
from hpcddm.runs.run_dir import RunDir
from tests.catalogs import catalog_of

CAPTIONS = ["A red fire-engine", "the dog's bowl", "a dog"]


@pytest.fixture
def described(tmp_path, monkeypatch):
    """What is said of a prompt in a run whose training images have three captions."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as tar:
        for number, caption in enumerate(CAPTIONS):
            tar.write({"__key__": f"{number}", "png": picture.getvalue(), "txt": caption})
    catalog = catalog_of(tmp_path, [tmp_path / "a.tar"])
    monkeypatch.setattr(unknown_words, "open_catalog", lambda run, split: catalog)
    experiment = SimpleNamespace(data=SimpleNamespace(condition=SimpleNamespace(reads_captions=True)))
    return lambda *prompts: read_caption_words(experiment, RunDir(tmp_path)).describe_unknown(prompts)


def test_words_are_known_whatever_their_case_and_marks(described):
    assert described("The RED dog", "engine") is None and described("") is None
    text = "zebra, unicorn: in none of the training captions (all 3 were read)"
    assert described("a red zebra", "a unicorn") == text


def test_of_many_captions_some_are_read_and_without_any_nothing_is_said(described, monkeypatch):
    monkeypatch.setattr(unknown_words, "CAPTIONS", 2)
    assert described("a bowl") == "bowl: in none of the training captions (2 of 3 were read)"

    def missing(*run):
        raise UserError("no catalog")

    monkeypatch.setattr(unknown_words, "open_catalog", missing)
    assert described("zebra") is None
