"""Folders that nobody should open: each is refused in one line before anything of it is drawn or taken for code."""

import os
import shutil
import time
from pathlib import Path

import pytest
import torch

import hpcddm
from hpcddm.config import variants
from hpcddm.errors import UserError
from tests import helpers
from tests.helpers import LATENT_SPACE, python
from tests.publishing.hostile import (
    FILE,
    FIRST,
    KEY,
    Change,
    autoencoder,
    changed,
    cut,
    elsewhere,
    first,
    in_place_of,
    linked,
    model,
    network,
    settings,
    swapped,
    tensors,
    text,
    whole,
    written,
)
from tests.publishing.made_runs import made_run, published, refusal_of

SECONDS, MEMORY = 2, 1 << 30
"""The longest that a refusal may take, and the most memory, bytes."""
TEXT = {"name": "text", "encoder": {"name": "words", "width": 8}}


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """A folder in latents of its own autoencoder, with named classes and a calibrated router."""
    folder = tmp_path_factory.mktemp("honest")
    changes = {"data__space": LATENT_SPACE, "data__class_names": ["ant", "bee", "cat", "dog"]}
    made = published(made_run(folder / "run", **changes), folder / "ensemble", "--license", "cc0-1.0")
    assert hpcddm.open(made).sample(2, classes=["cat"]).shape == (2, 8, 8, 1)
    return made


@pytest.fixture(scope="module")
def honest_text(tmp_path_factory) -> Path:
    """A folder whose networks see captions."""
    folder = tmp_path_factory.mktemp("honest-text")
    made = published(made_run(folder / "run", data__condition=TEXT), folder / "ensemble")
    assert hpcddm.open(made).sample(1, prompts=["a hat"]).shape == (1, 8, 8, 1)
    return made


@pytest.fixture
def sent(honest, tmp_path) -> Path:
    """An own copy of the honest folder."""
    return Path(shutil.copytree(honest, tmp_path / "sent"))


MARKS = "\u202edog.exe"
HUGE = b'{"a": "' + b"x" * 50_000_000 + b'"}'
CALIBRATION = {"log_prior": [0.0, 0.0], "levels": [0.0, 1.0], "temperatures": [1.0, 1.0]}
CASES: dict[str, tuple[Change, str]] = {
    "no description": (lambda folder: (folder / FILE).unlink(), "no run here"),
    "no JSON": (whole(b"\x00\xffensemble"), FILE),
    "100,000 brackets": (whole(b"[" * 100_000 + b"]" * 100_000), "deeper than"),
    "100,000 brackets in the settings": (text('"seed": 0', f'"seed": {"[" * 100_000}{"]" * 100_000}'), "deeper than"),
    "50 MB": (whole(HUGE), "has more than"),
    "300,000 values": (text('"left_out": []', f'"left_out": [{"1," * 300_000}1]'), "more than 250,000"),
    "a key twice": (text('"license"', '"name": "a", "license"'), "'name' appears twice"),
    "an unknown key": (changed(code="import os"), "code: "),
    "an unknown setting": (settings(code="import os"), "code: "),
    "another version of the format": (changed(format="hpcddm ensemble 2"), "format: "),
    "a list": (whole(b"[]"), FILE),
    "names of classes in a file": (settings(data__class_names="names"), "may name a file"),
    "two networks in one file": (
        changed(networks=lambda own: own | {KEY: own[KEY] | {"file": own["train/expert-01"]["file"]}}),
        "two have the same file",
    ),
    "no settings": (changed(experiment={}), "cluster.experts"),
    "settings that are a text": (changed(experiment="tiny"), "experiment"),
    "not a number": (settings(evaluate__guidance=float("nan")), "NaN is not JSON"),
    "a number of 1,000 digits": (text('"seed": 0', f'"seed": {"1" * 1000}'), "1000 digits"),
    "a number of 1,000 digits as a text": (settings(seed="1" * 1000), "seed"),
    "a billion classes": (settings(data__num_classes=10**9), "class_names"),
    "a million classes without names": (settings(data__num_classes=10**6), "class_names"),
    "a million experts": (settings(cluster__experts=10**6), "cluster.experts"),
    "a thousand experts, of which two are here": (settings(cluster__experts=1000), "cluster.experts"),
    "experts that are a text": (settings(cluster__experts="2"), "cluster.experts"),
    "a million blocks": (model("depth", 10**6), "depth"),
    "a thousand blocks": (model("depth", 1000), FIRST),
    "a width of a million": (model("width", 10**6), FIRST),
    "images of 8,192 pixels in patches of one": (
        lambda folder: (settings(data__image_size=8192)(folder), model("patch", 1)(folder)),
        "",
    ),
    "images of a million pixels": (settings(data__image_size=10**6), "image_size"),
    "an autoencoder of a million blocks": (
        autoencoder("blocks", 10**6),
        "networks/autoencoder.safetensors",
    ),
    "an autoencoder of a width of a million": (
        autoencoder("width", 10**6),
        "networks/autoencoder.safetensors",
    ),
    "a million channels": (settings(data__channels=10**6), ""),
    "a path that leads out": (settings(data__source__folder="images/../../x"), "leads out"),
    "an absolute path": (settings(data__source__folder="/etc"), "leads out"),
    "a path of a home": (settings(data__source__folder="~root/.ssh"), "leads out"),
    "a path that is a number": (settings(data__source__folder=5), "folder"),
    "a network beside the folder": (elsewhere("../expert-00.safetensors"), "file"),
    "a network at an absolute path": (elsewhere("/etc/passwd"), "file"),
    "a network that is not listed": (network(file="networks/x.safetensors"), f"{KEY}: its file is not listed"),
    "a network that is missing": (lambda folder: (folder / FIRST).unlink(), f"{FIRST}: is missing"),
    "a network that is a link": (linked(FIRST), "is a link"),
    "a folder of networks that is a link": (linked("networks"), "networks: is a link"),
    "a network that is a pipe": (in_place_of(FIRST, os.mkfifo), "is a pipe"),
    "a network that is a folder": (in_place_of(FIRST, Path.mkdir), "is a folder"),
    "a network that is a device": (in_place_of(FIRST, lambda path: path.symlink_to("/dev/zero")), "is a link"),
    "a description that is a pipe": (in_place_of(FILE, os.mkfifo), "no run here"),
    "a description that is a link": (linked(FILE), "is a link"),
    "a tensor less": (tensors(lambda values: values.pop(min(values))), "holds"),
    "a tensor more": (tensors(lambda values: values.update(more=torch.zeros(1))), "has a tensor 'more'"),
    "another shape": (tensors(first(lambda values: values[None])), "instead of F32"),
    "another type": (tensors(first(torch.Tensor.double)), "instead of F32"),
    "half the bytes": (tensors(first(torch.Tensor.bfloat16)), "instead of F32"),
    "a value that is not finite": (tensors(first(lambda values: values / 0)), "is not finite"),
    "a router that is not finite": (
        tensors(first(lambda values: values * float("nan")), "networks/router.safetensors"),
        "is not finite",
    ),
    "another precision": (network(precision="bf16"), "instead of BF16"),
    "an unknown precision": (network(precision="fp8"), "precision"),
    "experts changed places": (swapped, f"its bytes are not those of {FILE}"),
    "a file that is cut": (cut, FIRST),
    "a calibration of three experts": (written("calibration.json", CALIBRATION | {"log_prior": [0.0] * 3}), "experts"),
    "a calibration that is not finite": (
        written("calibration.json", CALIBRATION | {"temperatures": [1.0, float("inf")]}),
        "calibration.json",
    ),
    "a calibration of no levels": (written("calibration.json", CALIBRATION | {"levels": []}), "calibration.json"),
    "a scale of three channels": (
        written("latent-scale.json", {"shift": [0.0] * 3, "scale": [1.0] * 3}),
        "latent-scale",
    ),
    "a scale of zero": (written("latent-scale.json", {"shift": [0.0] * 4, "scale": [0.0] * 4}), "NaN"),
    "an autoencoder with a tensor less": (
        tensors(lambda values: values.pop(min(values)), "networks/autoencoder.safetensors"),
        "networks/autoencoder.safetensors: holds",
    ),
    "an autoencoder that is not finite": (
        tensors(first(lambda values: values / 0), "networks/autoencoder.safetensors"),
        "is not finite",
    ),
    "an autoencoder of other bytes": (
        lambda folder: (folder / "networks/autoencoder.safetensors").write_bytes(b"x" * 100),
        "networks/autoencoder.safetensors: has a header",
    ),
    "a module of Python as a variant": (model("name", "os"), "name 'os'"),
    "a path as a variant": (model("name", "../../os"), "leads out"),
    "a variant of a private file": (model("name", "__init__"), "__init__"),
    "a network without its model": (network(model={}), f"{KEY}: has other settings"),
    "a network of another width": (network(model=lambda own: own | {"width": 32}), f"{KEY}: has other settings"),
    "a network of another objective": (network(objective={"name": "epsilon"}), f"{KEY}: has other settings"),
    "a network of nobody": (
        changed(networks=lambda own: {"train/expert-07" if key == KEY else key: one for key, one in own.items()}),
        "train/expert-07 is not a network",
    ),
    "a network without a number": (
        changed(networks=lambda own: {"train/expert-x" if key == KEY else key: one for key, one in own.items()}),
        FILE,
    ),
    "an expert that is not mentioned": (changed(networks=lambda own: own.pop(KEY) and own), "cluster.experts"),
    "no networks": (changed(networks={}), "networks"),
    "no strategies": (changed(strategies=[]), "strategies"),
    "an escape in the name": (changed(name="\x1b[2Jtiny"), "not printable"),
    "an escape in the name of an experiment": (settings(name="\x1b]0;owned\x07"), "not printable"),
    "a name from right to left": (changed(name=MARKS), "not printable"),
    "a class from right to left": (changed(class_names=["ant", "bee", "cat", MARKS]), "not printable"),
    "a license with an escape": (changed(license="\x1b[31mcc0"), "not printable"),
    "terms of two lines": (changed(terms="none\nerror: all is well"), "not printable"),
    "an escape in a key": (changed(**{"\x1b[2J": 1}), "not printable"),
    "half a surrogate": (text('"license": "cc0-1.0"', r'"license": "\ud800"'), "not printable"),
    "a name of 100,000 letters": (changed(name="x" * 100_000), "too long"),
}


def refused(folder: Path, output: Path, *options: object) -> str:
    """Return the line that says why no image is drawn; it comes soon."""
    begun = time.process_time()
    done = helpers.hpcddm("sample", folder, "--num-images", 1, "--output", output / "grid.png", *options)
    said, seconds = refusal_of(done), time.process_time() - begun
    assert seconds < SECONDS and not (output / "grid.png").exists(), (seconds, said)
    return said


@pytest.mark.parametrize("case", CASES)
def test_a_folder_that_is_not_what_publish_writes(sent, tmp_path, case):
    change, reason = CASES[case]
    change(sent)
    said = refused(sent, tmp_path / "new")
    assert reason in said and len(said) < 1000, said


@pytest.mark.parametrize("case", ["an unknown key", "a tensor less", "a scale of three channels", "another precision"])
def test_python_refuses_it_with_an_error_of_its_own(sent, case):
    CASES[case][0](sent)
    with pytest.raises(UserError, match=str(sent)):
        hpcddm.open(sent).sample(1, classes=[0])


TEXT_CASES = {
    "sentences of terabytes": settings(data__condition__tokens=10**6, data__condition__encoder__width=10**6),
    "weights beside the folder": settings(
        data__condition__encoder={"name": "minilm", "weights": {"folder": "x/../.."}}
    ),
}


@pytest.mark.parametrize("case", TEXT_CASES)
def test_a_folder_of_networks_that_see_captions(honest_text, tmp_path, case):
    sent = Path(shutil.copytree(honest_text, tmp_path / "sent"))
    TEXT_CASES[case](sent)
    assert f"{FILE}: data.condition" in refused(sent, tmp_path / "new", "--prompt", "a hat").replace("experiment.", "")


def test_a_variant_of_whoever_opens_it_is_not_run(sent, tmp_path, monkeypatch):
    """Nor may others choose which of their own code runs."""
    own = tmp_path / "own" / "models"
    own.mkdir(parents=True)
    source = (Path(variants.PACKAGE_ROOT) / "models/dit.py").read_text()
    (own / "mine.py").write_text(source.replace("class DiTSettings", "class MineSettings"))
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(own.parent))
    variants.list_variants.cache_clear()
    model("name", "mine")(sent)
    said = refused(sent, tmp_path / "new")
    variants.list_variants.cache_clear()
    assert "'mine' is a variant of yours" in said


MEASURED = r"""
import re, sys
from pathlib import Path
from hpcddm.cli import main
code = None
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
# Not getrusage, which counts the process before exec, too.
print(code, "torch" in sys.modules, re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.parametrize("case", ["50 MB", "300,000 values", "a thousand experts, of which two are here"])
def test_a_description_is_refused_with_little_memory_and_without_torch(sent, case):
    CASES[case][0](sent)
    done = python(MEASURED, "sample", sent, "--output", sent / "grid.png")
    code, has_torch, kilobytes = done.stdout.split()
    assert (code, has_torch, done.stderr.count("\n")) == ("1", "False", 1), done.stderr
    assert int(kilobytes) * 1024 < MEMORY
