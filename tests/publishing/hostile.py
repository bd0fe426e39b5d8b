"""What tests of hostile folders share: functions that change one thing in a folder that was published."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hpcddm.config import paths
from tests.publishing.made_runs import document

FILE, FIRST, SECOND = "ensemble.json", "networks/expert-00.safetensors", "networks/expert-01.safetensors"
KEY, AUTOENCODER = "train/expert-00", "autoencoder/all"
Change = Callable[[Path], object]


def changed(**values: Any) -> Change:
    """Set dotted keys of ensemble.json, dots written as '__'; a function is given what is there."""

    def change(folder: Path) -> None:
        content = document(folder)
        for key, value in values.items():
            *parents, last = key.split("__")
            place = paths.value_at(content, ".".join(parents)) if parents else content
            place[last] = value(place.get(last)) if callable(value) else value
        (folder / FILE).write_text(json.dumps(content))

    return change


def settings(**values: Any) -> Change:
    """Set keys of the experiment."""
    return changed(**{f"experiment__{key}": value for key, value in values.items()})


def model(name: str, value: object) -> Change:
    """Set a key of the model of the experts, in the experiment and in each description."""

    def change(folder: Path) -> None:
        settings(**{f"experts__model__{name}": value})(folder)
        changed(networks=lambda networks: {key: described(key, one) for key, one in networks.items()})(folder)

    def described(key: str, one: dict) -> dict:
        return one | {"model": one["model"] | {name: value}} if key.startswith("train/") else one

    return change


def autoencoder(name: str, value: object) -> Change:
    """Set a key of the autoencoder, in the experiment and in its description."""

    def change(folder: Path) -> None:
        settings(**{f"data__space__autoencoder__{name}": value})(folder)
        changed(**{f"networks__{AUTOENCODER}__model__{name}": value})(folder)

    return change


def text(old: str, new: str) -> Change:
    """Replace a text of ensemble.json once."""

    def change(folder: Path) -> None:
        before = (folder / FILE).read_text()
        assert old in before
        (folder / FILE).write_text(before.replace(old, new, 1))

    return change


def whole(content: bytes) -> Change:
    return lambda folder: (folder / FILE).write_bytes(content)


def listed(folder: Path, *names: str) -> None:
    """List files as they are now."""
    content = document(folder)
    for name in names:
        data = (folder / name).read_bytes()
        content["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / FILE).write_text(json.dumps(content))


def tensors(change: Callable[[dict[str, torch.Tensor]], object], name: str = FIRST) -> Change:
    """Change the tensors of a network, and list the file with its new digest."""

    def make(folder: Path) -> None:
        values = load_file(folder / name)
        change(values)
        save_file(values, folder / name)
        listed(folder, name)

    return make


def first(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda values: values.update({min(values): change(values[min(values)]).contiguous()})


def written(name: str, values: object) -> Change:
    """Write a listed JSON file anew."""

    def make(folder: Path) -> None:
        (folder / name).write_text(json.dumps(values))
        listed(folder, name)

    return make


def in_place_of(name: str, make: Callable[[Path], object]) -> Change:
    """Put something else where a file or a folder was, which is still beside the folder."""

    def change(folder: Path) -> None:
        shutil.move(folder / name, folder.parent / "hidden")
        make(folder / name)

    return change


def swapped(folder: Path) -> None:
    (folder / FIRST).rename(folder / "x")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "x").rename(folder / SECOND)


def cut(folder: Path) -> None:
    (folder / FIRST).write_bytes((folder / FIRST).read_bytes()[:-100])
    listed(folder, FIRST)


def network(**values: Any) -> Change:
    return changed(**{f"networks__{KEY}__{name}": value for name, value in values.items()})


def elsewhere(file: str) -> Change:
    """Let a network be in another file, which is listed."""

    def change(folder: Path) -> None:
        network(file=file)(folder)
        changed(files=lambda files: files | {file: files[FIRST]})(folder)

    return change


def linked(name: str) -> Change:
    """Put a link out of the folder where a file or a folder was."""

    def change(folder: Path) -> None:
        in_place_of(name, lambda path: path.symlink_to(folder.parent / "hidden"))(folder)

    return change
