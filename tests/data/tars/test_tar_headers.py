"""The walk over a tar's headers, against Python's tarfile and GNU tar, and on torn and changed archives."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcddm.data.tars.tar_headers import BLOCK, Kind, Member, TarHeaders
from hpcddm.errors import UserError
from tests.data.refusals import assert_refused

KINDS = dict.fromkeys((tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE), Kind.FILE)
KINDS |= dict.fromkeys((tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE), Kind.DEVICE)
KINDS |= {tarfile.DIRTYPE: Kind.DIRECTORY, tarfile.LNKTYPE: Kind.HARD_LINK, tarfile.SYMTYPE: Kind.SYMBOLIC_LINK}
KINDS |= {b"V": Kind.OTHER}
WITH_DATA = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, b"V")


def walk(path, require_end=False):
    with TarHeaders(path, require_end) as members:
        return list(members)


def by_tarfile(path):
    with tarfile.open(path, "r:", encoding="utf-8") as file:
        return [
            Member(one.name, one.offset_data, one.size if one.type in WITH_DATA else 0, KINDS[one.type]) for one in file
        ]


def entry(name, size=0, kind=tarfile.REGTYPE, **changes):
    made = tarfile.TarInfo(name)
    made.size, made.type = size, kind
    for key, value in changes.items():
        setattr(made, key, value)
    return made


def write(path, entries, file_format=tarfile.GNU_FORMAT, **options):
    with tarfile.open(path, "w", format=file_format, encoding="utf-8", **options) as file:
        for one in entries:
            file.addfile(one, io.BytesIO(bytes(one.size)))
    return path


FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
SIZES = st.sampled_from([0, 1, 511, 512, 513, 1023, 1024, 1025, 5000]) | st.integers(0, 3000)
NO_UTF_8 = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
LETTERS = st.characters(exclude_characters="\0/", codec="utf-8") | NO_UTF_8
LONG = st.sampled_from(["a" * 70, "b" * 99, "c" * 100, "d" * 101, "鞋" * 33])
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=12) | LONG, min_size=1, max_size=4).map("/".join)
TYPES = st.sampled_from([tarfile.REGTYPE] * 8 + list(KINDS))
ENTRIES = st.tuples(NAMES, SIZES, TYPES, NAMES, st.booleans(), st.integers(0, 1 << 40))
ARCHIVES = st.tuples(
    st.sampled_from(FORMATS),
    st.lists(ENTRIES, max_size=8),
    st.dictionaries(st.sampled_from(["comment", "SCHILY.dev", "mtime"]), st.sampled_from(["7", "12"]), max_size=2),
    st.sampled_from([0, 512, 1024, 10240]),
    st.binary(max_size=20),
)


def compare(archive):
    """Write a random archive and compare the walk with tarfile; what its format cannot hold is left out."""
    file_format, described, common, zeros, behind = archive
    stream = io.BytesIO()
    for name, size, kind, link, renamed, number in described:
        if kind == tarfile.AREGTYPE and name.encode(errors="surrogateescape")[:100].endswith(b"/"):
            continue  # Python's tarfile takes the name that the header cuts for that of a directory.
        one = entry(name, size if kind in WITH_DATA else 0, kind, linkname=link, mtime=number, uid=number % 9999)
        if renamed and file_format == tarfile.PAX_FORMAT:
            one.pax_headers = {"path": f"{name}/renamed", "size": str(one.size)}
        try:
            stream.write(one.tobuf(file_format, "utf-8", "surrogateescape"))
        except (ValueError, UnicodeEncodeError):
            continue
        stream.write(bytes(one.size + -one.size % BLOCK))
    content = stream.getvalue()
    if common and file_format == tarfile.PAX_FORMAT:
        content = tarfile.TarInfo.create_pax_global_header(common) + content
        zeros = max(zeros, BLOCK)
        # A global header needs a member behind it.
        content += entry("last").tobuf(file_format)
    content += bytes(zeros) + (behind if zeros else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tar"
        path.write_bytes(content or bytes(BLOCK))
        assert walk(path) == by_tarfile(path)


QUIET = [HealthCheck.too_slow]


@settings(max_examples=200, deadline=None, suppress_health_check=QUIET, derandomize=True, database=None)
@given(ARCHIVES)
def test_the_walk_finds_what_tarfile_finds(archive):
    compare(archive)


@pytest.mark.parametrize("file_format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_gnu_tar_is_read(tmp_path, file_format):
    folder = tmp_path / "in" / ("f" * 60)
    folder.mkdir(parents=True)
    long = "" if file_format == "v7" else "g" * 60
    for name in ("a.png", f"{long}b.png", "empty"):
        (folder / name).write_bytes(name.encode() * (name != "empty"))
    (folder / "symbolic").symlink_to("a.png")
    (folder / "zz-hard").hardlink_to(folder / "a.png")
    path = tmp_path / "x.tar"
    subprocess.run(["tar", f"--format={file_format}", "-cf", path, "-C", tmp_path / "in", folder.name], check=True)
    assert walk(path) == by_tarfile(path) and len(walk(path)) == 6
    content = path.read_bytes()
    for member in walk(path):
        if member.kind is Kind.FILE and member.size:
            # Whichever name of a file with two comes first is the file, the other one the link.
            name = Path(member.name).name.replace("zz-hard", "a.png")
            assert content[member.offset :][: member.size].decode() == name


SPARSE = [["--format=gnu"]] + [["--format=posix", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0")]


@pytest.mark.parametrize("options", SPARSE)
def test_sparse_files_are_passed_over(tmp_path, options):
    with open(tmp_path / "holes.png", "wb") as file:
        for place in range(0, 60):
            file.seek(place << 17)
            file.write(b"x")
    (tmp_path / "next.png").write_bytes(b"here")
    path = tmp_path / "x.tar"
    subprocess.run(["tar", *options, "-S", "-cf", path, "-C", tmp_path, "holes.png", "next.png"], check=True)
    holes, after = walk(path)
    found = [(one.name, one.kind) for one in (holes, after)]
    assert found == [("holes.png", Kind.SPARSE), ("next.png", Kind.FILE)]
    assert path.read_bytes()[after.offset :][: after.size] == b"here"


def test_sizes_in_base_256_and_behind_8_gigabytes(tmp_path):
    """Files with a hole of 9 GB, one with the size in the header and one with it in a pax record."""
    for file_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path, size = tmp_path / "x.tar", 9 << 30
        head = entry("big", size).tobuf(file_format)
        with open(path, "wb") as file:
            file.write(head)
            file.seek(len(head) + size)
            file.write(entry("next").tobuf(file_format))
        assert [(one.name, one.size) for one in walk(path)] == [("big", size), ("next", 0)]
        assert walk(path) == by_tarfile(path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_archive_that_is_cut_anywhere_is_refused_but_behind_a_whole_member(tmp_path, file_format):
    long = "x" * 90 + "/" + "y" * (90 if file_format == tarfile.USTAR_FORMAT else 110)
    path = write(tmp_path / "x.tar", [entry("a"), entry(long, 513), entry("b", 1)], file_format)
    members = walk(path)
    ends = [member.offset + -(-member.size // BLOCK) * BLOCK for member in members]
    for length in reversed(range(ends[-1] + 2 * BLOCK + 1)):
        os.truncate(path, length)
        if length in ends or length >= ends[-1] + BLOCK:
            assert walk(path) == [member for member, end in zip(members, ends, strict=True) if end <= length]
        else:
            assert_refused(f"^{path}: a torn or foreign tar .*(at byte|empty file)", walk, path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_archive_without_its_end_is_refused_unless_that_is_known(tmp_path, file_format):
    path = write(tmp_path / "x.tar", [entry("a"), entry("b", 513), entry("c", 1)], file_format)
    members = walk(path, require_end=True)
    for member in members:
        end = member.offset + -(-member.size // BLOCK) * BLOCK
        whole = path.read_bytes()
        os.truncate(path, end)
        with pytest.raises(UserError, match=rf"^{path}: a torn .*probably cut.* at byte {end}\); .*require_end: false"):
            walk(path, require_end=True)
        # One block of zeros says as much as two.
        path.write_bytes(whole[:end] + bytes(BLOCK))
        assert walk(path, require_end=True) == [one for one in members if one.offset <= member.offset]
        path.write_bytes(whole)


def test_members_behind_the_end_are_not_passed_over(tmp_path):
    path = write(tmp_path / "x.tar", [entry("a", 700), entry("b", 700), entry("c", 700)])
    whole = path.read_bytes()
    (_, second, third) = walk(path)
    path.write_bytes(whole + whole)
    assert_refused(rf"but a member follows at byte {len(whole)}\); .*--ignore-zeros", walk, path)
    zeroed = bytearray(whole)
    zeroed[second.offset - BLOCK : second.offset] = bytes(BLOCK)
    path.write_bytes(zeroed)
    message = rf"zeros end it at byte {second.offset - BLOCK}, .* at byte {third.offset - BLOCK}"
    assert_refused(message, walk, path)
    path.write_bytes(whole + b"what a tape held before" * 1000)
    assert len(walk(path)) == 3


def test_every_changed_bit_of_a_header_is_detected(tmp_path):
    start, place = 2 * BLOCK, slice(2 * BLOCK + 148, 2 * BLOCK + 156)
    path = write(tmp_path / "x.tar", [entry("a", 1), entry("bücher.png", 1)])
    content, unchanged = path.read_bytes(), 0
    for bit in range(start * 8, (start + BLOCK) * 8):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        # A leading zero that becomes a space, and what ends the digits, change no number.
        digits = changed[place].partition(b"\0")[0].strip().lstrip(b"0")
        if changed[place] != content[place] and digits == content[place].partition(b"\0")[0].lstrip(b"0"):
            unchanged += 1
            assert len(walk(path)) == 2
            continue
        assert_refused(f"bad checksum of the header at byte {start}", walk, path)
    assert unchanged < 24


PAX_HEAD = entry("x", 20, tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
LAST = entry("a").tobuf()


DAMAGED = [
    (b"", "empty file"),
    (b"no tar" * 1000, "bad checksum of the header at byte 0"),
    (LAST + b"x" * BLOCK, "bad checksum of the header at byte 512"),
    (LAST + bytes(100), "the file ends at byte 612, in the header at byte 512"),
    (entry("a", 513).tobuf() + bytes(1023), "before the end at byte 1536 of the member at byte 0"),
    (PAX_HEAD, "the file ends at byte 512, before the end at byte 1024 of the member at byte 0"),
    (PAX_HEAD + bytes(BLOCK), "no member behind the extended header at byte 0"),
    (PAX_HEAD + b"9 path=a\n" + bytes(503), "no member behind the extended header at byte 0"),
    (PAX_HEAD + b"99 path=a\n".ljust(BLOCK, b"\0") + LAST, "a record that is none in .* header at byte 0"),
    (PAX_HEAD + b"9 path=ab\n".ljust(BLOCK, b"\0") + LAST, "a record that is none"),
    (PAX_HEAD + b"9 size=x\n".ljust(BLOCK, b"\0") + LAST, "a size that is not a number .* at byte 1024"),
    (entry("L", 1 << 21, b"L").tobuf() + bytes(1 << 21) + LAST, "2097152 bytes of extended header at byte 0"),
    (entry("a", -5).tobuf(tarfile.GNU_FORMAT) + LAST, "no size in the header at byte 0"),
]


@pytest.mark.parametrize("content, message", DAMAGED)
def test_what_is_wrong_is_said_with_the_byte(tmp_path, content, message):
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    assert_refused(f"^{path}: a torn or foreign tar .*{message}", walk, path)


@pytest.mark.parametrize("name", ["x y.tar.gz", "x.tgz", "x.tar"])
@pytest.mark.parametrize("program", ["gzip", "bzip2", "xz", "zstd"])
def test_a_compressed_tar_is_refused_with_a_command_that_helps(tmp_path, program, name):
    content = write(tmp_path / "plain", [entry("a.png", 5)]).read_bytes()
    compress = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    path = tmp_path / name
    if program == "zstd":
        path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(1000))
    else:
        path.write_bytes(compress[program](content))
    with pytest.raises(UserError, match=f"x.*: compressed by {program}") as refused:
        walk(path)
    command = str(refused.value).partition("decompress: ")[2]
    assert command.startswith(f"{program} -dc < ")
    if program != "zstd" and shutil.which(program):
        subprocess.run(command, shell=True, check=True)
        (plain,) = set(tmp_path.glob("*.tar")) - {path}
        assert plain.read_bytes() == content


def test_only_small_members_are_read_whole(tmp_path):
    path = write(tmp_path / "x.tar", [entry("a.txt", 1 << 20), entry("b.txt", (1 << 20) + 1)])
    with TarHeaders(path) as headers:
        small, large = headers
        assert headers.read(small) == bytes(1 << 20)
        assert_refused(f"{path}: b.txt has 1048577 bytes", headers.read, large)
