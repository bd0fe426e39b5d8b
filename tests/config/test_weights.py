"""Weights that the user has: which files are read, what is said of those that are not there, what proves them."""

import os
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from hpcddm.config import weights
from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.config.weights import SettingsWithWeights, Weights, WeightsLayout
from hpcddm.errors import ConfigError, UserError

LAYOUT = WeightsLayout(
    "config.json", ("net.safetensors", "net-*-of-*.safetensors", "*.bin"), ("config.json",), optional=("words.txt",)
)


class Own(SettingsWithWeights):
    """Settings whose network has a width."""

    package: ClassVar[str] = "encoders/image"
    layout: ClassVar[WeightsLayout] = LAYOUT

    def check_config(self, config):
        if config.get("width") != 3:
            raise ValueError(f"width is 3 and config.json has {config.get('width')}")


def own(folder: Path, **changes: object) -> Own:
    return Own.model_construct(name="mine", weights=Weights(folder=str(folder), **changes), precision="fp32")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "net"
    path.mkdir()
    (path / "config.json").write_text('{"width": 3}')
    (path / "net.safetensors").write_bytes(b"values")
    (path / "README.md").write_text("not read")
    return path


def test_of_a_folder_the_files_of_the_layout_are_read_and_no_others(folder):
    assert weights.list_files(own(folder)) == ["config.json", "net.safetensors"]
    (folder / "words.txt").write_text("a b")
    (folder / "old.bin").write_text("a pickle beside the weights")
    assert weights.list_files(own(folder)) == ["config.json", "net.safetensors", "words.txt"]


def test_parts_are_read_together_and_several_weights_are_not_guessed_among():
    parts = [f"net-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert LAYOUT.select_files(["config.json", *parts]) == ["config.json", *parts]
    with pytest.raises(LookupError, match=r"a.bin, b.bin are several weights; leave one"):
        LAYOUT.select_files(["config.json", "b.bin", "a.bin"])


def test_the_hash_is_that_of_sha256sum_over_the_names(folder):
    command = f"cd {folder} && sha256sum config.json net.safetensors | sha256sum"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert weights.content_hash(own(folder)) == done.stdout.split()[0]


def test_the_hash_follows_bytes_and_names_and_not_the_place(folder, tmp_path):
    before = weights.content_hash(own(folder))
    moved = folder.rename(tmp_path / "moved")
    assert weights.content_hash(own(moved)) == before
    (moved / "net.safetensors").write_bytes(b"valueS")
    os.utime(moved / "net.safetensors", ns=(1, 1))
    changed = weights.content_hash(own(moved))
    (moved / "net.safetensors").write_bytes(b"values")
    (moved / "net.safetensors").rename(moved / "other.bin")
    assert len({before, changed, weights.content_hash(own(moved))}) == 3


def test_the_hash_alone_is_under_the_fingerprint(folder):
    by_path = Weights(folder=str(folder), content_hash="0" * 64)
    by_name = Weights(hub="somebody/net", revision="v1", content_hash="0" * 64)
    assert settings_to_hash(by_path) == settings_to_hash(by_name) == {"content_hash": "0" * 64}


MISSING = {
    ".": "net: weights of mine: no such folder; copy config.json and net.safetensors there, or name ano",
    "config.json": "net: weights of mine: config.json is missing; copy config.json and net.safetensors there",
    "net.safetensors": r"net.safetensors or net-\*-of-\*.safetensors or \*.bin is missing; copy",
}


@pytest.mark.parametrize("name, said", MISSING.items())
def test_what_is_missing_is_named_with_what_to_copy(folder, tmp_path, name, said):
    (folder / name).rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=said):
        weights.verified_folder(own(folder))


UNUSABLE = "config.json holds no usable JSON"


@pytest.mark.parametrize("text, said", [("[1]", UNUSABLE), ("{", UNUSABLE), ("{}", "width is 3")])
def test_a_description_of_another_network_is_an_error(folder, text, said):
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match=f"net: weights of mine: .*{said}"):
        weights.list_files(own(folder))


def test_other_bytes_than_stated_are_an_error_before_anything_is_loaded(folder):
    right = weights.content_hash(own(folder))
    assert weights.verified_folder(own(folder, content_hash=right)) == folder
    (folder / "net.safetensors").write_bytes(b"other!")
    os.utime(folder / "net.safetensors", ns=(1, 1))
    with pytest.raises(UserError, match=rf"SHA-256 over config.json, net.safetensors begins \w+ and not {right[:12]}"):
        weights.verified_folder(own(folder, content_hash=right))


def test_weights_of_the_hub_lie_in_the_cache_and_are_fetched_by_prefetch(monkeypatch, tmp_path):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    of_hub = Weights(hub="somebody/pipeline/vae", revision="1a2b")
    assert of_hub.place == tmp_path / "hub" / "somebody--pipeline--vae@1a2b"
    assert (of_hub.repository, of_hub.subfolder) == ("somebody/pipeline", "vae")
    with pytest.raises(UserError, match="no such folder; on a node with network 'hpcddm prefetch' fetches it"):
        weights.list_files(Own.model_construct(name="mine", weights=of_hub, precision="fp32"))


@pytest.mark.parametrize(
    "values, said",
    [
        ({}, "needs one of the two, 'folder' or 'hub'"),
        ({"folder": "a", "hub": "b/c"}, "needs one of the two"),
        ({"folder": "a", "revision": "v1"}, "revision: a folder has none; remove it"),
        ({"hub": "../../etc"}, "hub: string should match pattern"),
        ({"hub": "a/../b"}, "hub: string should match pattern"),
        ({"hub": "a/b", "revision": "../c"}, "revision: string should match pattern"),
        ({"folder": "a", "content_hash": "abc"}, "content_hash: string should match pattern"),
    ],
)
def test_impossible_places_are_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        validate(Weights, values, "weights")
