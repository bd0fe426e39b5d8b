"""Remainder of a user's quota on a file system, by `quota`, `lfs quota` or `mmlsquota` where they answer."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

TIMEOUT_SECONDS = 10
"""Seconds that a quota command may take; a slower file server counts as one without a quota."""
MOUNTS = Path("/proc/self/mountinfo")
NUMBER = re.compile(r"\[?(\d+)\]?\*?")
"""A count; '*' marks a count over its quota, brackets a count without the share of an unreachable server."""
Remainder = tuple[int | None, int | None]
"""Bytes and files left in the quota; None for an unlimited or unknown quota."""


def remaining_quota(folder: Path) -> Remainder:
    """Return the rest of the user's quota on the file system of `folder`, which must exist."""
    device, place, kind = mount_of(folder, MOUNTS.read_text(errors="replace") if MOUNTS.exists() else "")
    command, parse = COMMANDS.get(kind, COMMANDS["other"])
    arguments = [word.format(user=os.getuid(), device=device, place=place) for word in command]
    try:
        process = subprocess.run(
            arguments, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    return parse(process.stdout, device, place)


def mount_of(folder: Path, mounts: str) -> tuple[str, str, str]:
    """Return device, mount point and type of a folder's file system, from the text of /proc/self/mountinfo."""
    mount = ("", "/", "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if len(before.split()) > 4 and len(after.split()) > 1:
            place = before.split()[4].encode().decode("unicode_escape")
            # Of several that are mounted over each other the last one counts.
            if folder.resolve().is_relative_to(place) and len(place) >= len(mount[1]):
                mount = (after.split()[1], place, after.split()[0])
    return mount


def parse_quota_table(text: str, device: str, place: str) -> Remainder:
    """Parse lines 'FILESYSTEM used quota limit grace files quota limit grace', in KiB, of `quota` and `lfs quota`.

    Lines about neither the device nor the mount point are ignored.
    """
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 9 and fields[0] in (device, place):
            if (remainder := _remainder(fields[1:4], fields[5:8])) is not None:
                return remainder
    return None, None


def parse_mmlsquota(text: str, device: str, place: str) -> Remainder:
    """Parse the output of `mmlsquota -Y`: fields between colons, named by a line HEADER, in KiB."""
    names: list[str] = []
    for line in text.splitlines():
        fields = line.split(":")
        if "HEADER" in fields:
            names = fields
        row = dict(zip(names, fields, strict=False))
        if row.get("quotaType") == "USR" and row.get("filesystemName") in (device, Path(device).name):
            kibibytes, files = (
                [row.get(f"{kind}{what}", "") for what in ("Usage", "Quota", "Limit")] for kind in ("block", "files")
            )
            if (remainder := _remainder(kibibytes, files)) is not None:
                return remainder
    return None, None


COMMANDS: dict[str, tuple[list[str], Callable[[str, str, str], Remainder]]] = {
    "lustre": (["lfs", "quota", "-q", "-u", "{user}", "{place}"], parse_quota_table),
    "gpfs": (["mmlsquota", "-u", "{user}", "-Y", "--block-size", "1K", "{device}"], parse_mmlsquota),
    "other": (["quota", "-u", "-w", "-p", "-v", "{user}"], parse_quota_table),
}
"""Type of the file system -> command, and the parser of its output."""


def _remainder(kibibytes: list[str], files: list[str]) -> Remainder | None:
    """Compute the rest of two triples (used, quota, limit); None if a word is not a number."""
    matches = [NUMBER.fullmatch(word) for word in (*kibibytes, *files)]
    counts = [int(match[1]) for match in matches if match]
    if len(counts) < len(matches):
        return None
    free_kibibytes, free_files = _rest_of_limit(*counts[:3]), _rest_of_limit(*counts[3:])
    return None if free_kibibytes is None else 1024 * free_kibibytes, free_files


def _rest_of_limit(used: int, soft: int, hard: int) -> int | None:
    """Compute what is left of one count: the hard limit counts; where there is none, the quota; 0 means none."""
    limit = hard or soft
    return max(limit - used, 0) if limit else None
