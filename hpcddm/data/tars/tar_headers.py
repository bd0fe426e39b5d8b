"""Walk over the headers of a tar: names and places of its members, without reading data or keeping any object.

Formats: V7, ustar, GNU and pax (POSIX.1-2001, "pax Interchange Format"). Read as Python's `tarfile` reads them, except
that an archive is refused where `tarfile` takes the part before a torn or changed header for the whole, or would
unpack a compressed one; that fields of the GNU format are not taken for the prefix of a name; and that a sparse file
has the place and size of what is stored. As there, one block of zeros ends an archive. One without it has lost what
followed, such as one of a download that was killed, and is refused where the caller does not say otherwise; so is one
behind whose end members follow, as where two were written one behind the other, or a header was overwritten by zeros.

Compared with `tarfile` and a guard for these refusals, the walk takes a quarter of the time per member and keeps no
object for one (tests/benchmarks/indexing.py); collections that are adopted have hundreds of millions of members.
"""

import os
import re
import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple
from zlib import adler32

from hpcddm.errors import UserError, require

BLOCK = 512
MAX_READ_BYTES = 1 << 20
"""Bytes of an extended header, or of a member that is read whole, that are believed."""
NEAR = 32 << 10
"""Bytes between headers up to which it is better to read the data between them than to seek behind it."""
NEAR_READ, FAR_READ = 256 << 10, 4 << 10
"""Bytes read at once where headers lie near each other and where they do not: there, a few small members may follow."""
BEHIND = 1 << 20
"""Bytes after the end that are searched for further members."""
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""Programs by the first bytes of what they compressed."""
ENDS = "gz|bz2|xz|zst"
COMPRESSED_TAR = re.compile(rf"(\.tar\.|\.t)({ENDS})$")
"""The end of the name of a tar that one of them compressed."""
RECORD = re.compile(rb"(\d{1,10}) ([^=]+)=")
"""The beginning of a record of a pax header: its length in all, and its keyword."""
ZEROS = bytes(BLOCK)


class Kind(Enum):
    """Kind of a member, by the types in its header; all but files, sparse files and others have no data."""

    FILE = (b"0", b"\0", b"7")
    DIRECTORY = (b"5",)
    HARD_LINK = (b"1",)
    SYMBOLIC_LINK = (b"2",)
    DEVICE = (b"3", b"4", b"6")
    SPARSE = (b"S",)
    OTHER = ()


class Member(NamedTuple):
    """One member: its name as UTF-8 with other bytes as surrogates; where its data begins, and their size, in bytes."""

    name: str
    offset: int
    size: int
    kind: Kind


KINDS = {kind_byte: kind for kind in Kind for kind_byte in kind.value}
WITHOUT_DATA = frozenset({Kind.DIRECTORY, Kind.HARD_LINK, Kind.SYMBOLIC_LINK, Kind.DEVICE})
PAX, PAX_GLOBAL, LONG_NAME, LONG_LINK = (b"x", b"X"), b"g", b"L", b"K"
EXTENDING = frozenset({*PAX, PAX_GLOBAL, LONG_NAME, LONG_LINK})
"""Types of headers that say something of the member that follows."""


class TarHeaders:
    """The members of one tar, in its order; a context manager, as the file is open meanwhile.

    require_end: False takes a tar whose end is missing behind a whole member for a complete one. Raises `UserError`
    naming the tar, and the byte where it is torn or changed; iterating, too.
    """

    def __init__(self, path: Path, require_end: bool = True) -> None:
        self._path, self._file, self._needs_end = path, _Window(path), require_end

    def __enter__(self) -> "TarHeaders":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Member]:
        everywhere: dict[bytes, bytes] = {}
        records: dict[bytes, bytes] = {}
        start, extended_at = 0, None
        while (header := self._header(start)) is not None:
            kind_byte = header[156:157]
            if kind_byte in EXTENDING:
                records_here, end = self._extension(header, start)
                if kind_byte == PAX_GLOBAL:
                    everywhere |= records_here
                else:
                    # As in `tarfile`, the first of several headers counts.
                    records = records_here | records
                extended_at = start if extended_at is None else extended_at
            else:
                member, end = self._member(header, start, everywhere | records)
                records, extended_at = {}, None
                yield member
            start = end
        if extended_at is not None:
            raise self._torn("no member behind the extended header", extended_at)

    def read(self, member: Member) -> bytes:
        """Read a small member; raises `UserError` for one of more than a MiB."""
        if member.size > MAX_READ_BYTES:
            raise UserError(f"{self._path}: {member.name} has {member.size} bytes, at most {MAX_READ_BYTES} are read")
        return self._file.read(member.offset, member.size)

    def content(self, member: Member) -> bytes:
        """Read a member of any size, such as an image; fewer bytes where the file was cut meanwhile."""
        return os.pread(self._file.descriptor, member.size, member.offset)

    def head(self, member: Member, length: int) -> bytes:
        """Read so many bytes at the beginning of a member; fewer where it has fewer."""
        return self._file.read(member.offset, min(member.size, length))

    def _header(self, start: int) -> bytes | None:
        """Read a header and verify its checksum; None at the end of the archive."""
        header = self._file.read(start, BLOCK)
        if len(header) == BLOCK:
            if _is_sound(header):
                return header
            if header == ZEROS:
                self._refuse_more(start)
                return None
        elif not header and start:
            if self._needs_end:
                advice = "get it again, or set data.source.require_end: false where its writer leaves the end out"
                raise self._torn("probably cut: the zeros are missing that end one", start, advice)
            return None
        if start == 0:
            self._refuse_compressed(header)
        require(header != b"", f"{self._path}: a torn or foreign tar (empty file)")
        if len(header) < BLOCK:
            raise self._torn(f"the file ends at byte {self._file.size}, in the header", start)
        raise self._torn("bad checksum of the header", start)

    def _member(self, header: bytes, start: int, extended: dict[bytes, bytes]) -> tuple[Member, int]:
        """Return the member of a header, and the place of the next header; extended: the member's pax records."""
        name, size, offset = _name(header), self._size(header, start), start + BLOCK
        kind = _kind(header, extended.get(b"path"))
        if kind is Kind.SPARSE:
            offset = self._behind_sparse_map(header, offset)
        if extended:
            name = extended.get(b"GNU.sparse.name") or extended.get(b"path") or name
            size = self._extended_size(extended[b"size"], start) if b"size" in extended else size
            if kind is Kind.FILE and any(keyword.startswith(b"GNU.sparse.") for keyword in extended):
                kind = Kind.SPARSE
        # The first question is the fast one.
        if kind is not Kind.FILE and kind in WITHOUT_DATA:
            name, size = name.rstrip(b"/") if kind is Kind.DIRECTORY else name, 0
        return Member(name.decode(errors="surrogateescape"), offset, size, kind), self._end(start, offset, size)

    def _size(self, header: bytes, start: int) -> int:
        """Return the size of the data, which is in octal digits or, where they are too few, in base 256."""
        field = header[124:136]
        try:
            size = int.from_bytes(field[1:]) if field[0] == 0o200 else _octal(field)
        except ValueError:
            size = -1
        if size < 0:
            raise self._torn("no size in the header", start)
        return size

    def _end(self, start: int, offset: int, size: int) -> int:
        """Return where the next header begins; raises `UserError` unless all before it is there."""
        end = offset + -(-size // BLOCK) * BLOCK
        if end > self._file.size:
            place = f"the file ends at byte {self._file.size}, before the end at byte {end} of the member"
            raise self._torn(place, start)
        return end

    def _extension(self, header: bytes, start: int) -> tuple[dict[bytes, bytes], int]:
        """Return what an extending header says, by keywords of pax, and where the next header begins."""
        size, offset = self._size(header, start), start + BLOCK
        end = self._end(start, offset, size)
        if size > MAX_READ_BYTES:
            raise self._torn(f"{size} bytes of extended header", start)
        data = self._file.read(offset, size)
        if header[156:157] == LONG_NAME:
            return {b"path": data.partition(b"\0")[0]}, end
        return {} if header[156:157] == LONG_LINK else self._pax_records(data, start), end

    def _pax_records(self, data: bytes, start: int) -> dict[bytes, bytes]:
        records, place = {}, 0
        while place < len(data) and data[place]:
            match = RECORD.match(data, place)
            end = place + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
                raise self._torn("a record that is none in the extended header", start)
            records[match[2]] = data[match.end() : end - 1]
            place = end
        return records

    def _extended_size(self, digits: bytes, start: int) -> int:
        if not digits.isdigit() or len(digits) > 20:
            raise self._torn("a size that is not a number in the extended header of the member", start)
        return int(digits)

    def _behind_sparse_map(self, header: bytes, offset: int) -> int:
        """Return where the data of a sparse file of the old GNU format begin: its map may go on in further blocks."""
        more = header[482]
        while more:
            block = self._file.read(offset, BLOCK)
            if len(block) < BLOCK:
                raise self._torn(f"the file ends at byte {self._file.size} in the map of a sparse file", offset)
            more, offset = block[504], offset + BLOCK
        return offset

    def _refuse_more(self, end: int) -> None:
        """Refuse a tar with a header behind its end, in the bytes that are looked at there."""
        start = end + BLOCK
        behind = self._file.read(start, min(BEHIND, max(self._file.size - start, 0)), ahead=False)
        if behind.strip(b"\0"):
            for place in range(0, len(behind) - BLOCK + 1, BLOCK):
                header = behind[place : place + BLOCK]
                if header != ZEROS and _is_sound(header):
                    advice = "write it again; 'tar -x --ignore-zeros' reads all of it"
                    raise self._torn(f"zeros end it at byte {end}, but a member follows", start + place, advice)

    def _torn(self, what: str, start: int, advice: str = "") -> UserError:
        return UserError(f"{self._path}: a torn or foreign tar ({what} at byte {start}){'; ' * bool(advice)}{advice}")

    def _refuse_compressed(self, header: bytes) -> None:
        for magic, program in COMPRESSED.items():
            if header.startswith(magic):
                name = re.sub(rf"(\.tar)?\.t?({ENDS})$", "", str(self._path))
                plain = name.removesuffix(".tar") + (".plain.tar" if name == str(self._path) else ".tar")
                command = f"{program} -dc < {shlex.quote(str(self._path))} > {shlex.quote(plain)}"
                raise UserError(
                    f"{self._path}: compressed by {program}, so no member has a place; decompress: {command}"
                )


class _Window:
    """A file that keeps the bytes it read last; it reads ahead while the requested places are close together.

    Raises `UserError` when it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unreadable(error) from None
        self.size = os.fstat(self.descriptor).st_size
        self._start, self._bytes, self._asked = 0, b"", 0

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, offset: int, length: int, ahead: bool = True) -> bytes:
        """Read bytes; fewer only at the end of the file. ahead: whether more may be asked for."""
        place = offset - self._start
        if place < 0 or place + length > len(self._bytes):
            self._fill(offset, length, ahead)
            place = 0
        self._asked += 1
        return self._bytes[place : place + length]

    def _fill(self, offset: int, length: int, ahead: bool) -> None:
        near = abs(offset - self._start) < self._asked * NEAR
        wanted = max(length, (NEAR_READ if near else FAR_READ) * ahead)
        try:
            self._bytes = os.pread(self.descriptor, wanted, offset)
            # A file system may give less at once.
            while len(self._bytes) < length and (more := os.pread(self.descriptor, wanted, offset + len(self._bytes))):
                self._bytes += more
        except OSError as error:
            raise self._unreadable(error) from None
        self._start, self._asked = offset, 0

    def _unreadable(self, error: OSError) -> UserError:
        return UserError(f"{self._path}: cannot be read ({error.strerror})")


def _kind(header: bytes, whole_name: bytes | None) -> Kind:
    """Return the kind of a member; whole_name: that of its extended header, where the header's may be cut at a '/'."""
    name = whole_name or header[:100].partition(b"\0")[0]
    is_old_directory = header[156] == 0 and name.endswith(b"/")
    return Kind.DIRECTORY if is_old_directory else KINDS.get(header[156:157], Kind.OTHER)


def _name(header: bytes) -> bytes:
    name, prefix = header[:100].partition(b"\0")[0], b""
    # GNU's format has times there.
    if header[345] and header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0] + b"/"
    return prefix + name


def _octal(field: bytes) -> int:
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _is_sound(header: bytes) -> bool:
    """Tell if the checksum fits: the sum of a header's bytes with spaces in its own place."""
    try:
        stored = _octal(header[148:156])
    except ValueError:
        return False
    rest = header[156:]
    total = _byte_sum(header[:148]) + 8 * ord(" ") + _byte_sum(rest[:178]) + _byte_sum(rest[178:])
    # Some old programs took bytes above 127 for negative numbers.
    return stored == total or stored == total - 256 * sum(byte > 127 for byte in header[:148] + rest)


def _byte_sum(part: bytes) -> int:
    """Sum up to 256 bytes; the lower half of Adler-32 is 1 + their sum modulo 65521, which is greater."""
    return (adler32(part) & 0xFFFF) - 1
