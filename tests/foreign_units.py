"""Units, states and data of somebody else with one thing wrong, whole folders and merged runs: what makes them."""

import json
import math
import os
import pickle
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcddm.files import atomic
from hpcddm.runs import provenance
from tests.foreign_cases import DAMAGED, ESCAPES, SHOWN, UNIT, Beside, edited, replaced, spoil

WEIGHTS, REPORT = f"{UNIT}/weights.safetensors", "report/all"
Entry = tuple[str, str, list[int], bytes]
"""Name, type, shape and bytes of a tensor."""


@dataclass(frozen=True)
class Case:
    """One thing that is wrong."""

    make: Callable[[Beside], object]
    text: str = ""
    """Part of what some command or job says of it; '' where it is taken, or nothing reads it."""
    arguments: tuple[str, ...] = ()
    """Further ones of submit."""
    job: str | None = ""
    """Unit whose job reads it, or the stage of which the first one does, by default draw; None: submit runs it."""
    before_retry: Callable[[Beside], object] = field(default=lambda beside: None)


def entries(path: Path) -> list[Entry]:
    """Read the tensors of a file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    places = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return [(name, own["dtype"], own["shape"], body[slice(*own["data_offsets"])]) for name, own in places]


def written(path: Path, tensors: list[Entry], metadata: dict[str, str] | None = None) -> None:
    """Write tensors as a new file."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end := end + len(content)]}
    text = json.dumps(header).encode()
    replaced(path, struct.pack("<Q", len(text)) + text + b"".join(content for *_, content in tensors))


def fitted(folder: Path, change: Callable[[Any], object] = lambda values: None) -> None:
    """Let the manifest say what is there, as any sender can."""

    def fit(values: Any) -> None:
        for output in values["outputs"]:
            file = folder / output["path"]
            output |= {"size": file.stat().st_size, "sha256": atomic.sha256(file)}
        change(values)

    edited(folder / "manifest.json", fit)


def weights(change: Callable[[list[Entry]], list[Entry]]) -> Callable[[Beside], None]:
    """Change the tensors, and the manifest with them."""

    def make(beside: Beside) -> None:
        written(beside.run / WEIGHTS, change(entries(beside.run / WEIGHTS)))
        fitted(beside.run / UNIT)

    return make


def recast(dtype: str, kind: str) -> Callable[[Beside], None]:
    """Give the tensors another type."""

    def cast(entry: Entry) -> Entry:
        name, own, shape, content = entry
        values = np.frombuffer(content, np.float32).astype(kind) if own == "F32" else None
        return (name, dtype, shape, values.tobytes()) if values is not None else entry

    return weights(lambda tensors: list(map(cast, tensors)))


def content(path: str, made: Callable[[bytes], bytes], fits: bool = True) -> Callable[[Beside], None]:
    """Change the bytes of a file of the unit, and the manifest with them where it fits."""

    def make(beside: Beside) -> None:
        file = beside.run / UNIT / path
        replaced(file, made(file.read_bytes()))
        if fits:
            fitted(beside.run / UNIT)

    return make


def scaled(tensors: list[Entry], prefix: str = "") -> list[Entry]:
    """Multiply tensors by 1.5."""
    return [
        (name, dtype, shape, (np.frombuffer(values, np.float32) * 1.5).tobytes() if name.startswith(prefix) else values)
        for name, dtype, shape, values in tensors
    ]


class Touch:
    """Makes the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.canary}",)


def pickled(beside: Beside) -> None:
    """Put a pickle in the place of the weights."""
    replaced(beside.run / WEIGHTS, pickle.dumps(Touch(beside.canary)))
    fitted(beside.run / UNIT)


def sparse(beside: Beside) -> None:
    """Let the weights be 8 GiB that take no room on the disk."""
    file = beside.run / WEIGHTS
    replaced(file, file.read_bytes())
    os.truncate(file, 8 << 30)
    sizes = {"weights.safetensors": 8 << 30}
    edited(
        file.parent / "manifest.json",
        lambda values: [o.update(size=sizes[o["path"]]) for o in values["outputs"] if o["path"] in sizes],
    )


def of_another(beside: Beside) -> None:
    """Let the weights be a link to those of another expert."""
    (beside.run / WEIGHTS).unlink()
    (beside.run / WEIGHTS).symlink_to("../expert-00/weights.safetensors")
    fitted(beside.run / UNIT)


def strangers(beside: Beside) -> None:
    """Put files beside the outputs that some program may execute or take for others."""
    for name in ("sitecustomize.py", "WEIGHTS.SAFETENSORS", "weights.safetensors\u200b", "payload.pt", ".hidden"):
        (beside.run / UNIT / name).write_text(f"import os; os.system('touch {beside.canary}')")


def linked_unit(beside: Beside) -> None:
    """Let the unit's folder be a link to the user's, which holds a unit made of something else."""
    folder = beside.run / UNIT
    shutil.copytree(folder, beside.victim / "unit", dirs_exist_ok=True)
    shutil.rmtree(folder)
    folder.symlink_to(beside.victim / "unit")
    edited(
        beside.victim / "unit/manifest.json",
        lambda values: values.update(inputs=dict.fromkeys(values["inputs"], "0" * 64)),
    )


def unfinished(change: Callable[[Beside, Path], object]) -> Callable[[Beside], None]:
    """Leave a training with its state alone, and one thing wrong with that; the folder of the state is handed over."""

    def make(beside: Beside) -> None:
        folder = beside.run / UNIT
        for path in folder.iterdir():
            if path.is_file() and path.name != ".lease":
                path.unlink()
        change(beside, max((folder / "state").glob("images-*")))

    return make


def scaled_state(beside: Beside, state: Path) -> None:
    """Scale the averages in a state, and let its description fit."""
    described = json.loads((state / "state.json").read_text())
    for file in described["files"]:
        path = state / file["name"]
        (length,) = struct.unpack("<Q", path.read_bytes()[:8])
        metadata = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
        written(path, scaled(entries(path), "ema"), metadata)
        file |= {"size": path.stat().st_size, "sha256": atomic.sha256(path)}
    replaced(state / "state.json", json.dumps(described))


def in_place_of(name: str, is_file: bool = False) -> Callable[[Beside], None]:
    """Put a link to what the user has in the place of something in the unit's folder."""

    def make(beside: Beside, state: Path) -> None:
        path = beside.run / UNIT / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(beside.victim / "file.txt" if is_file else beside.victim)

    return unfinished(make)


def state_elsewhere(beside: Beside, state: Path) -> None:
    """Let a state name a file outside of its folder."""
    name = json.loads((state / "state.json").read_text())["files"][0]["name"]
    shutil.copy(state / name, beside.victim / "outside.safetensors")
    (state / name).unlink()
    edited(
        state / "state.json", lambda values: values["files"][0].update(name=str(beside.victim / "outside.safetensors"))
    )


def of_code(digest: str | None) -> Callable[[Beside], None]:
    """Put code that makes the canary where code lies: under the digest of this checkout, or under any other."""

    def make(beside: Beside) -> None:
        hashes = provenance.digests(provenance.code_files())
        known = digest or provenance.code_digest(hashes)
        shutil.rmtree(beside.run / "code", ignore_errors=True)
        for path, text in provenance.code_files().items():
            replaced(beside.run / "code" / known / path, text)
        first = beside.run / "code" / known / "hpcddm/__init__.py"
        replaced(first, f"{first.read_text()}\nimport os\nos.system('touch {beside.canary}')\n")
        record = {"digest": known, "commit": None, "modified": False, "made": 9e9, "files": hashes}
        replaced(beside.run / "code" / f"{known}.json", json.dumps(record))
        again(beside)

    return make


def again(beside: Beside) -> None:
    """Leave the report to be made."""
    (beside.run / "report/manifest.json").unlink(missing_ok=True)


def hook(beside: Beside) -> None:
    """Put a hook that makes the canary into the run's copy of the site."""
    for path in (beside.run / "sites").glob("*.json"):
        edited(path, lambda values: values.update(hook=f"touch {beside.canary}"))
    (beside.run / "report/manifest.json").unlink(missing_ok=True)


def template(beside: Beside) -> None:
    """Put a template that makes the canary into the run's copy of it."""
    escape = f"{{{{ cycler.__init__.__globals__.os.system('touch {beside.canary}') }}}}\ntouch {beside.canary}\n"
    for name in ("job.sbatch.j2", "resource_flags.sbatch.j2", "python_env.sh.j2"):
        replaced(beside.run / "template" / name, escape)
    again(beside)


def bomb(beside: Beside) -> None:
    """Let the partition have an array that would be unpacked to 2 GiB."""
    path = beside.run / "cluster/partition.h5"
    replaced(path, path.read_bytes())
    with h5py.File(path, "a") as file:
        file.create_dataset("bomb", shape=(1 << 31,), dtype="u1", chunks=(1 << 24,), compression="gzip", fillvalue=0)
    fitted(path.parent)
    shutil.rmtree(beside.run / "assign")


def tar_elsewhere(beside: Beside) -> None:
    """Let the catalog name a tar of the user's."""
    path = beside.run / "catalog/catalog.json"

    def name(values: Any) -> None:
        tar = values["heldout"]["tars"][0]
        shutil.copy(beside.run / tar["file"], beside.victim / "secret.tar")
        tar["file"] = str(beside.victim / "secret.tar")

    edited(path, name)
    fitted(path.parent)


def manifest(change: Callable[[Any], object]) -> Callable[[Beside], None]:
    """Change the unit's manifest."""
    return lambda beside: edited(beside.run / UNIT / "manifest.json", change)


def of_length(text: str) -> Callable[[bytes], bytes]:
    """Make bytes of the same number."""
    return lambda before: text.encode().ljust(len(before))


EMPTY: list[Entry] = [(f"{'x' * 40}{number}", "F32", [0], b"") for number in range(300_000)]
NOT_FINITE = np.float32(math.nan).tobytes()
HEADERS = struct.pack("<Q", 1 << 60) + b"{}" * 64
LIES = {"train_flops": 1, "images": 1}
NOT_ITS_BYTES = "its bytes are not those of its manifest"
START = {"sha256": "0" * 64, "images": 0, "train_flops": 0, "source": f"<img src=x onerror=alert(1)>{ESCAPES}"}

CASES: dict[str, Case] = {
    "honest": Case(lambda beside: None),
    "other bytes": Case(content("weights.safetensors", lambda own: own[:-4] + b"\0\0\0\7", False), NOT_ITS_BYTES),
    "scaled weights": Case(weights(scaled)),
    "NaN in weights": Case(
        weights(lambda own: [*own[:-1], (*own[-1][:3], NOT_FINITE * (len(own[-1][3]) // 4))]), "is not finite"
    ),
    "renamed tensor": Case(weights(lambda own: [(f"{own[0][0]}x", *own[0][1:]), *own[1:]]), "lacks tensor"),
    "further tensor": Case(weights(lambda own: [*own, ("more", "F32", [4], bytes(16))]), "which the network lacks"),
    "F64": Case(recast("F64", "<f8"), " is F64 "),
    "I64": Case(recast("I64", "<i8"), "is I64"),
    "BOOL": Case(recast("BOOL", "?"), "is BOOL"),
    "pickle as weights": Case(pickled, "weights.safetensors: has a"),
    "header of 2^60 bytes": Case(content("weights.safetensors", lambda own: HEADERS), "has a header of"),
    "header of 20 MB": Case(weights(lambda own: [*own, *EMPTY]), "has a header of"),
    "8 GiB of zeros": Case(sparse, "weights.safetensors: has 8,589,934,592 bytes"),
    "link to another expert": Case(of_another, "weights.safetensors is a link"),
    "half of the weights": Case(
        content("weights.safetensors", lambda own: own[: len(own) // 2], False), "bytes instead of"
    ),
    "manifest a pipe": Case(lambda beside: spoil(beside.run / UNIT / "manifest.json", "pipe"), "is a pipe"),
    "manifest a device": Case(lambda beside: spoil(beside.run / UNIT / "manifest.json", "link"), "is a link"),
    "manifest deep": Case(lambda beside: spoil(beside.run / UNIT / "manifest.json", "deep"), "is deeper than"),
    "manifest of 0.9 GB": Case(lambda beside: spoil(beside.run / UNIT / "manifest.json", "huge"), "has more than"),
    "other settings": Case(
        manifest(lambda own: own["settings"].update({"training.learning_rate": 0.5})), "learning_rate"
    ),
    "other list": Case(
        manifest(lambda own: own.update(inputs=dict.fromkeys(own["inputs"], "0" * 64))), "has changed since"
    ),
    "record gone": Case(manifest(lambda own: own.update(record={}))),
    "another's FLOPs": Case(
        manifest(lambda own: own["results"].update(LIES)), "records images 1 instead of", job=REPORT
    ),
    "result gone": Case(manifest(lambda own: own["results"].clear()), "records images None", job=REPORT),
    "no outputs": Case(
        lambda beside: edited(beside.run / "evaluators/classifier/manifest.json", lambda own: own.update(outputs=[])),
        "was made with another evaluators/classifier",
        job=REPORT,
    ),
    "start of markup": Case(
        manifest(lambda own: own["results"].update(start=START)), "other initial weights", job=REPORT
    ),
    "curve of markup": Case(content("curve.json", of_length('[[0, "<script>"]]'), False), NOT_ITS_BYTES, job=REPORT),
    "another curve": Case(content("curve.json", of_length("[[256, 0.001]]"), False), NOT_ITS_BYTES, job=REPORT),
    "curve without end": Case(content("curve.json", lambda own: b"[[1, 1e308], [2, -1e308], [3, 1e-320]]"), job=REPORT),
    "files beside": Case(strangers),
    "folder a link": Case(linked_unit, "is a link"),
    "folder a link, redone": Case(linked_unit, "is a link", ("--redo", "train")),
    "state scaled": Case(unfinished(scaled_state), job=UNIT),
    "state a link": Case(in_place_of("state"), "is a link", job=UNIT),
    "lease a link": Case(in_place_of(".lease", True), "is a link", job=UNIT),
    "tensorboard a link": Case(in_place_of("tensorboard"), "is a link", job=UNIT),
    "state without images": Case(
        unfinished(lambda beside, state: edited(state / "state.json", lambda own: own.pop("images"))),
        "images: Field required",
        job=UNIT,
    ),
    "state elsewhere": Case(unfinished(state_elsewhere), "names a file outside of its folder", job=UNIT),
    "code of this digest": Case(of_code(None), job=None),
    "code to be linked": Case(of_code("0000partner"), job=None),
    "hook": Case(lambda beside: None, "--trust-run", job=None, before_retry=hook),
    "template": Case(template, job=None),
    "partition of 2 GiB": Case(bomb, "is packed by a filter", job="assign/train-000"),
    "tar elsewhere": Case(tar_elsewhere, "names a file outside of its folder", job="encode/heldout-000"),
    **{f"manifest: {name}": Case(make, text) for name, (make, text) in DAMAGED.items()},
    **{f"record: {name}": Case(make, text.partition("{line}")[0]) for name, (make, text) in SHOWN.items()},
}
"""All cases but those of single files."""

MISREAD = ("wrong type", "huge", "link", "pipe")
"""Ways in which every file is wrong once."""
READERS = {
    "shard": "catalog/all",
    "catalog": "expert_lists/all",
    "encode": "cluster/all",
    "cluster": "assign/train-000",
    "assign": "expert_lists/all",
    "evaluators": "measure",
    "measure_real": "compare/own",
    "measure": "compare/own",
}
"""Stages of which another unit than the report reads the outputs."""


def one_of_each(run: Path) -> dict[str, str]:
    """List one file of every name in a run, by the name with all numbers as #; of one training, and of one range.

    Without what only people read, and code, which cases of their own change.
    """
    found: dict[str, str] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        top = name.partition("/")[0]
        is_left_out = top in ("code", "superseded", "jobs") or path.suffix in (".log", ".html") or "tfevents" in name
        is_of_another = top in ("logs", "specs", "train") and UNIT not in name
        if path.is_file() and not is_left_out and not is_of_another:
            plain = re.sub("[0-9]+", "#", name.replace("heldout", "train").replace("classifier", "extractor"))
            found.setdefault(plain, name)
    return found


def misread(name: str, kind: str) -> Callable[[Beside], None]:
    """Spoil one file."""
    return lambda beside: spoil(beside.run / name, kind)


def reader_of(name: str) -> str:
    """Return a unit whose job reads a file, or locks it, or the stage of which the first one does; '' for draw."""
    stage, _, inner = name.partition("/")
    if inner.endswith(".lease"):
        return f"{stage}/{inner.removesuffix('.lease').rstrip('/') or 'all'}"
    if "/state/" in name or stage in ("logs", "specs"):
        return UNIT if stage in ("logs", "specs") else "/".join(name.split("/")[:2])
    is_of_report = stage in ("draw", "compare", "cluster_report", "expert_lists", "router") or inner.endswith(
        "curve.json"
    )
    return REPORT if is_of_report else READERS.get(stage, "")
