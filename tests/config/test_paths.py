from pathlib import Path
from typing import ClassVar

from hpcddm.config import paths
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import PathSetting, Positive, StrictModel
from tests.helpers import JOINED, tiny


class Inner(StrictModel):
    not_hashed: ClassVar[frozenset[str]] = frozenset({"speed"})

    folder: PathSetting | None = None
    speed: Positive = 1


class Outer(StrictModel):
    file: PathSetting
    files: list[PathSetting] = []
    caption: str = "a/b"
    inner: Inner = Inner()
    many: list[Inner] = []
    either: Inner | PathSetting | None = None


def test_paths_are_found_wherever_they_stand():
    several = {"files": ["b", "c"], "many": [Inner(), Inner(folder="../e")]}
    settings = Outer(file="a", inner=Inner(folder="d"), either="/f", **several)
    moved = paths.make_absolute(settings, Path("/data/run"))
    assert moved.model_dump() == {
        "file": "/data/run/a",
        "files": ["/data/run/b", "/data/run/c"],
        "caption": "a/b",
        "inner": {"folder": "/data/run/d", "speed": 1},
        "many": [{"folder": None, "speed": 1}, {"folder": "/data/e", "speed": 1}],
        "either": "/f",
    }
    assert settings.file == "a"


def test_an_experiments_paths_are_those_of_its_source_and_of_what_it_starts_from(tmp_path):
    start = {"init_from": {"weights": "seed.safetensors"}}
    overrides = [start | {"clusters": [1]}]
    values = tiny(tmp_path, experts__extra=[JOINED | start], experts__overrides=overrides).model_dump()
    found = [Path(holder[key]).name for holder, key in paths.find_paths(values, Experiment)]
    assert sorted(found) == ["hats.txt", "images", "seed.safetensors", "seed.safetensors"]
