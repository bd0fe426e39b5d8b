"""Crafted bundles: every kind of name, file, header, JSON and key that must not pass, and odd ones that may."""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from hpcddm.collaboration.bundle_checks import imported_bundle
from hpcddm.exchange import signing
from hpcddm.exchange.bundle import FILE, MAX_BYTES
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import KEY, Agreed, train
from tests.exchange.hostile import (
    WEIGHTS,
    encode_header,
    grow_while_read,
    listed,
    refusal_of,
    refused,
    sign_bytes,
    sign_file,
    sign_list,
    split_header,
    tree,
)
from tests.helpers import hpcddm

SIGNATURE, SNAPSHOT, OWN = f"{FILE}.sig", "images-000000000032.safetensors", "train/expert-00"
pytestmark = pytest.mark.usefixtures("limits")


@pytest.fixture(scope="module")
def standing(agreed, tmp_path_factory) -> Iterator[Agreed]:
    """Runs whose home refuses every case, and is after all of them as it was."""
    folder = tmp_path_factory.mktemp("standing") / "agreed"
    shutil.copytree(agreed.home.root.parent, folder)
    own = replace(agreed, home=RunDir(folder / "home"), partner=RunDir(folder / "partner"))
    honest = own.pack("honest")
    yield own
    assert tree(own.home) == tree(agreed.home)
    assert own.take(honest).exit_code == 0


@pytest.fixture
def sent(standing, tmp_path) -> Path:
    """An own copy of the honest bundle."""
    return Path(shutil.copytree(standing.home.root.parent / "honest", tmp_path / "sent"))


def to_hidden(path):
    path.symlink_to(path.parent.parent / "hidden")


def bind(path):
    # Names of sockets are short.
    before = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(path.name)
    os.chdir(before)


def device(path):
    try:
        os.mknod(path, 0o20600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


SPECIAL = {
    "a link": (to_hidden, "is a link"),
    "a link to nowhere": (lambda path: path.symlink_to("/nowhere"), "is a link"),
    "a link to itself": (lambda path: path.symlink_to(path), "is a link"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "is a link"),
    "a folder": (Path.mkdir, "is a folder"),
    "a pipe": (os.mkfifo, "is a pipe"),
    "a socket": (bind, ""),
    "a device": (device, "is a device"),
}


@pytest.mark.parametrize("kind, name", [*product(SPECIAL, (FILE, WEIGHTS)), ("a link", SIGNATURE)])
def test_what_is_not_a_file_is_not_opened(standing, sent, kind, name):
    make, reason = SPECIAL[kind]
    (sent / name).rename(sent.parent / "hidden")
    make(sent / name)
    refused(standing, sent, reason)
    refused(standing, sent, name)


@pytest.mark.parametrize("kind", [kind for kind in SPECIAL if kind != "a folder"])
def test_a_folder_that_is_something_else_holds_no_bundle(standing, sent, kind):
    other = sent.parent / "other"
    (sent.parent / "hidden").touch()
    SPECIAL[kind][0](other)
    refused(standing, other, "other")


def test_hard_links_and_a_linked_folder_are_the_same_files(runs):
    sent = runs.pack("sent")
    for path in list(sent.iterdir()):
        os.link(path, sent.parent / f"second-{path.name}")
    (sent.parent / "linked").symlink_to(sent)
    assert runs.take(sent.parent / "linked").exit_code == 0
    assert runs.home.output(KEY, WEIGHTS).stat().st_nlink == 1


@pytest.mark.parametrize("name", [FILE, SIGNATURE, WEIGHTS, SNAPSHOT])
def test_ten_terabytes_of_nothing_are_not_read(standing, sent, name):
    try:
        os.truncate(sent / name, 10 << 40)
    except OSError:
        pytest.skip("the file system has no file of ten terabytes")
    started = time.monotonic()
    refused(standing, sent, name)
    assert time.monotonic() - started < 10


def test_verify_hashes_no_file_that_is_larger_than_any_expert(standing, sent):
    os.truncate(sent / WEIGHTS, 10 << 40)
    sign_list(sent, standing, files=listed(sent, size=10 << 40))
    started = time.monotonic()
    assert "more than 1,099,511,627,776" in refusal_of(hpcddm("site", "verify", sent))
    assert time.monotonic() - started < 10


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "longer": lambda content: content + b"x",
    "flipped at the beginning": lambda content: flipped(content, 0),
    "flipped": lambda content: flipped(content, len(content) // 2),
    "flipped at the end": lambda content: flipped(content, len(content) - 2),
}


@pytest.mark.parametrize("change, name", [*product(DAMAGE, (WEIGHTS, FILE, SIGNATURE)), ("flipped", SNAPSHOT)])
def test_a_file_that_was_damaged_is_refused(standing, sent, name, change):
    (sent / name).write_bytes(DAMAGE[change]((sent / name).read_bytes()))
    refused(standing, sent, "")


def test_a_file_that_grows_while_it_is_copied(standing, sent, monkeypatch):
    grow_while_read(sent / WEIGHTS, monkeypatch)
    refused(standing, sent, "others were signed")


@pytest.mark.parametrize("count", [2000, pytest.param(200_000, marks=pytest.mark.long)])
def test_many_files_are_not_listed(standing, sent, count):
    for number in range(count):
        os.close(os.open(sent / f"x{number}", os.O_CREAT))
    started = time.monotonic()
    refused(standing, sent, "refused")
    assert time.monotonic() - started < 10


NAMES = {
    "upper case": "Weights.safetensors",
    "the Kelvin sign": "weights.safetensors".replace("w", "\u212a"),
    "a full-width letter": "\uff57eights.safetensors",
    "a combining mark": "weights\u0301.safetensors",
    "no width": "weights\u200b.safetensors",
    "right to left": "weights\u202e.safetensors",
    "a space": "weights.safetensors ",
    "a line break": "weights.safetensors\n",
    "an escape": "\x1b[2Jweights.safetensors",
    "bytes that are not UTF-8": os.fsdecode(b"weights\xff.safetensors"),
    "an option": "-rf",
    "hidden": ".weights.safetensors",
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_that_looks_like_another(standing, sent, kind):
    shutil.copy(sent / WEIGHTS, sent / NAMES[kind])
    refused(standing, sent, "is not listed in what was signed")


PATHS = ["/etc/passwd", "../weights.safetensors", "a/b", ".", "..", "", "a" * 65, "snapshots/../weights.safetensors"]


@pytest.mark.parametrize("name", [*NAMES.values(), *PATHS], ids=ascii)
def test_a_listed_name_is_plain_and_leads_nowhere(standing, sent, name):
    if name in NAMES.values():
        (sent / WEIGHTS).rename(sent / name)
    files = listed(sent)
    sign_list(sent, standing, files={name if own == WEIGHTS else own: entry for own, entry in files.items()})
    refused(standing, sent, "bundle.json: " if name in NAMES.values() else "files.")


def text_of(**changes):
    """A text of JSON in the place of the signed list, which holds `@` where a raw text goes."""

    def make(folder):
        (key, raw), values = next(iter(changes.items())), json.loads((folder / FILE).read_text())
        return json.dumps(values | {key: "@"}).replace('"@"', raw).encode()

    return make


def padded(folder):
    content = (folder / FILE).read_bytes()
    return content + b" " * (MAX_BYTES + 1 - len(content))


JSON = {
    "a level too deep": (text_of(curve="[" * 33 + "]" * 33), "deeper"),
    "a hundred thousand levels": (text_of(curve="[" * 100_000 + "]" * 100_000), "deeper"),
    "objects in objects": (text_of(word='{"a":' * 50_000 + "1" + "}" * 50_000), "deeper"),
    "a mebibyte and one": (padded, "more than 1,048,576 bytes"),
    "a key twice": (lambda folder: b'{"unit": "train/all",' + (folder / FILE).read_bytes()[1:], "appears twice"),
    "a hundred thousand keys, the last twice": (
        text_of(word="{" + ",".join(f'"{number}":0' for number in range(90_000)) + ',"89999":0}'),
        "'89999' appears twice",
    ),
    "a file twice": (
        lambda folder: (folder / FILE).read_bytes().replace(b'"files": {', b'"files": {"x": 1, "x": 1,'),
        "'x' appears twice",
    ),
    "a number of 21 digits": (text_of(number="1" * 21), "number"),
    "a number of a million digits": (text_of(number="1" * 1_000_000), "digits"),
    "a long fraction": (text_of(curve="[[1, 0." + "3" * 100_000 + "]]"), "digits"),
    "1e999": (text_of(curve="[[1, 1e999]]"), "too large"),
    "NaN": (text_of(curve="[[1, NaN]]"), "NaN is not JSON"),
    "Infinity": (text_of(curve="[[1, -Infinity]]"), "-Infinity is not JSON"),
    "NaN as a text": (text_of(curve='[[1, "NaN"]]'), "curve.0.1"),
    "a number as a text": (text_of(number='"1"'), "number: "),
    "true for a number": (text_of(number="true"), "number: "),
    "a fraction for a number": (text_of(number="1.0"), "number: "),
    "a hundred thousand points": (
        text_of(curve="[" + "[1,1]," * 150_000 + "[1,1]]"),
        "more than 250,000 keys and values",
    ),
    "a point too many": (text_of(curve="[" + "[1,1]," * 2000 + "[1,1]]"), "curve: "),
    "an unknown key": (text_of(shell='"id"'), "shell: "),
    "a missing key": (lambda folder: (folder / FILE).read_bytes().replace(b'"number": 1,', b""), "number: "),
    "a text of 4097 letters": (text_of(word=f'{{"gpu": "{"x" * 4097}"}}'), "too long"),
    "a hash in capitals": (text_of(files=f'{{"x": {{"size": 0, "sha256": "{"A" * 64}"}}}}'), "sha256"),
    "a line break in a text": (text_of(word=r'{"gpu": "a\nb"}'), "not printable ASCII"),
    "an escape in a text": (text_of(word=r'{"gpu": "\u001b[2J"}'), "not printable ASCII"),
    "half a surrogate": (text_of(word=r'{"gpu": "\ud800"}'), "not printable ASCII"),
    "a key that is not ASCII": (
        text_of(word=r'{"versions": {"\u0442orch": "1"}}'),
        "not printable ASCII, '\\u0442orch'",
    ),
    "a mark of byte order": (lambda folder: b"\xef\xbb\xbf" + (folder / FILE).read_bytes(), ""),
    "UTF-16": (lambda folder: (folder / FILE).read_text().encode("utf-16"), ""),
    "two values": (lambda folder: (folder / FILE).read_bytes() * 2, ""),
    "null": (lambda folder: b"null", "null"),
    "a list": (lambda folder: b"[]", ""),
    "nothing": (lambda folder: b"", ""),
    "hours below zero": (text_of(word='{"gpu_hours": -1}'), "word.gpu_hours"),
    "a loss below zero": (text_of(word='{"probe_losses": [[0.5, -1]]}'), "word.probe_losses"),
    "losses of a million clusters": (text_of(word=f'{{"probe_losses": [{"[]," * 100_000}[]]}}'), "word.probe_losses"),
    "losses in losses": (text_of(word='{"probe_losses": [[[1]]]}'), "word.probe_losses"),
    "a size below zero": (text_of(files='{"weights.safetensors": {"size": -1, "sha256": "' + "0" * 64 + '"}}'), "size"),
}


@pytest.mark.parametrize("case", JSON)
def test_a_signed_list_that_is_not_plain(standing, sent, case):
    make, reason = JSON[case]
    sign_bytes(sent, standing, make(sent))
    refused(standing, sent, reason)


def entries(content):
    return json.loads(split_header(content)[0])


def with_header(change):
    """The weights with another header, signed by the site itself."""

    def make(content):
        header = entries(content)
        change(header)
        return encode_header(json.dumps(header).encode(), split_header(content)[1])

    return make


def moved(first=0, last=0):
    """Offsets of the second tensor moved."""

    def change(header):
        name = sorted(header, key=lambda own: header[own]["data_offsets"])[1]
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = [begin + first, end + last]

    return with_header(change)


def of_first(**changes):
    return with_header(lambda header: next(iter(header.values())).update(changes))


def renamed(name):
    def change(header):
        header[name] = header.pop(min(header))

    return with_header(change)


def other_tensors(change):
    """The weights with tensors added, removed or replaced."""

    def make(content):
        tensors = load(content)
        change(tensors)
        return save(tensors)

    return make


def raw(text):
    return lambda content: encode_header(text.encode(), split_header(content)[1])


HEADERS = {
    "overlapping": (moved(first=-4, last=-4), "begins at byte"),
    "a gap": (moved(first=4, last=4), "begins at byte"),
    "longer than its shape": (moved(last=4), "has no usable header"),
    "backwards": (of_first(data_offsets=[4, 0]), "has no usable header"),
    "negative": (of_first(data_offsets=[-4, 0]), "no usable shape or place"),
    "beyond 2^64": (of_first(data_offsets=[0, 1 << 70]), "has no usable header"),
    "a shape of 2^80 values": (of_first(shape=[1 << 20] * 4), "has no usable header"),
    "a shape that is a text": (of_first(shape="x"), "no usable shape"),
    "nine dimensions": (of_first(shape=[1] * 9), "no usable shape"),
    "true as a length": (of_first(shape=[True]), "no usable shape"),
    "a fraction as a length": (of_first(shape=[1.0]), "no usable shape"),
    "an unknown type": (of_first(dtype="F8_E4M3"), "unknown type"),
    "a type that is a list": (of_first(dtype=["F32"]), "unknown type"),
    "integers of the same size": (of_first(dtype="I32"), "instead of F32"),
    "a key more": (of_first(more=1), "other entries"),
    "another name": (renamed("renamed"), "lacks tensor"),
    "a name with an escape": (renamed("\x1b[2J"), "lacks tensor"),
    "a name of a mebibyte": (renamed("x" * (1 << 20)), "lacks tensor"),
    "metadata that are no texts": (with_header(lambda header: header.update(__metadata__={"a": 1})), "metadata"),
    "metadata that are a list": (with_header(lambda header: header.update(__metadata__=[])), "metadata"),
    "a name twice": (lambda content: raw('{"a": 1, "a": 1}')(content), "appears twice"),
    "a million names, the last twice": (
        lambda content: raw("{" + ",".join(f'"{number}":0' for number in range(1_000_000)) + ',"999999":0}')(content),
        "appears twice",
    ),
    "a million levels": (lambda content: raw('{"a":' * 1_000_000)(content), "no usable header"),
    "a million lists": (lambda content: raw("{" + '"a":[' + "[]," * 1_000_000 + "[]]}")(content), "no usable header"),
    "a list": (raw("[]"), "not a mapping"),
    "no JSON": (raw("\x00" * 100), "no usable header"),
    "a tensor more": (other_tensors(lambda own: own.update(more=torch.zeros(1))), "has a tensor 'more', which the net"),
    "a tensor less": (other_tensors(lambda own: own.pop(min(own))), "lacks tensor"),
    "another shape": (other_tensors(lambda own: own.update({min(own): own[min(own)][None]})), "instead of F32"),
    "another type": (other_tensors(lambda own: own.update({min(own): own[min(own)].double()})), "instead of F32"),
    "a pickle": (lambda content: b"\x80\x04cos\nsystem\n(S'true'\ntR.", "refused"),
    "nothing": (lambda content: b"", "too few for tensors"),
    "no header": (raw(""), "no usable header"),
    "a header longer than the file": (lambda content: (1 << 20).to_bytes(8, "little") + b"{}", "fewer than its header"),
    "a header of 2^60 bytes": (lambda content: (1 << 60).to_bytes(8, "little") + content[8:], "more than 16,777,216"),
    "a header of 2^64 - 1 bytes": (lambda content: b"\xff" * 8 + content[8:], "more than 16,777,216"),
    "bytes behind the last tensor": (lambda content: content + b"\0" * 4, "as its header says"),
    "bytes too few": (lambda content: content[:-4], "as its header says"),
    "seven bytes": (lambda content: content[:7], "too few"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_signed_header_that_does_not_fit(standing, sent, case):
    make, reason = HEADERS[case]
    (sent / WEIGHTS).write_bytes(make((sent / WEIGHTS).read_bytes()))
    sign_file(sent, standing)
    refused(standing, sent, reason)


BITS = ("0000c07f", "010080ff", "0000807f", "000080ff", "ffffffff")


@pytest.mark.parametrize("bits, name", [*product(BITS, (WEIGHTS,)), ("0000c07f", SNAPSHOT)])
def test_no_value_is_infinite_or_not_a_number(standing, sent, name, bits):
    content = (sent / name).read_bytes()
    (sent / name).write_bytes(content[:-4] + bytes.fromhex(bits))
    sign_file(sent, standing, name)
    refused(standing, sent, "infinite or not numbers")


def signed(**changes):
    return lambda folder, runs: sign_list(folder, runs, **changes)


def with_files(change):
    """The list of files changed, and signed by the site itself."""
    return lambda folder, runs: sign_list(folder, runs, files=change(folder))


NOTHING = {"size": 0, "sha256": "0" * 64}
NOT_AGREED = {
    "signed by another site": (signed(signer="uni-a"), "is not that of uni-b in the contract"),
    **{
        f"signed for the purpose {name!r}": (signed(namespace=name), "a signature for ")
        for name in (signing.CONTRACT, signing.SITE, "file", "bundle@hpcddm ", "")
    },
    "of another site": (signed(signer="uni-a", site="uni-a"), "is of uni-a, but train/expert-01 is of uni-b"),
    "of another contract": (signed(contract="1" * 32), "is of another contract"),
    "of another recipe": (signed(recipe="1" * 64), "by another recipe"),
    "of another expert": (signed(unit="train/expert-00"), "by another recipe"),
    "of an expert of one's own": (
        lambda folder, runs: sign_list(folder, runs, unit=OWN, recipe=runs.contract.experts[OWN].digest),
        "is of uni-b, but train/expert-00 is of uni-a",
    ),
    "of an unknown expert": (signed(unit="train/all"), "train/all is not an expert of the contract"),
    "of a path as expert": (signed(unit="train/../x"), "unit"),
    "without a snapshot": (with_files(lambda folder: {WEIGHTS: listed(folder)[WEIGHTS]}), f"does not list {SNAPSHOT}"),
    "with a file more": (
        with_files(lambda folder: listed(folder) | {"x": NOTHING}),
        "lists x, which the contract does not want",
    ),
    "of ten terabytes": (with_files(lambda folder: listed(folder, size=10 << 40)), "more than"),
    "of a curve that goes back": (signed(curve=[[16, 0.5], [8, 0.4]]), "curve: its images do not ascend to at most 32"),
    "of a curve beyond the end": (signed(curve=[[33, 0.5]]), "curve: its images do not ascend to at most 32"),
    "a file more": (lambda folder, runs: (folder / "sitecustomize.py").touch(), "sitecustomize.py is not listed"),
}


@pytest.mark.parametrize("case", NOT_AGREED)
def test_what_was_not_agreed_on_is_refused_in_one_line(standing, sent, case):
    change, reason = NOT_AGREED[case]
    change(sent, standing)
    refused(standing, sent, reason)


def test_the_signature_of_another_bundle(runs):
    sent = runs.pack("sent")
    train(runs, runs.partner, seed=2)
    shutil.copy(runs.pack("newer") / SIGNATURE, sent)
    refused(runs, sent, "the signature does not fit the file")


def test_files_of_an_older_bundle_under_a_newer_list(runs):
    sent = runs.pack("sent")
    train(runs, runs.partner, seed=2)
    newer = runs.pack("newer")
    shutil.copy(sent / WEIGHTS, newer)
    refused(runs, newer, "others were signed")


def test_an_older_bundle_under_a_newer_number_is_a_newer_one_by_its_site_alone(runs):
    sent = runs.pack("sent")
    assert runs.take(sent).exit_code == 0
    sign_list(sent, runs, signer="uni-a", number=7)
    refused(runs, sent, "is not that of uni-b", "--replace")
    sign_list(sent, runs, number=7)
    assert runs.take(sent, "--replace").exit_code == 0 and imported_bundle(runs.home, KEY).number == 7
