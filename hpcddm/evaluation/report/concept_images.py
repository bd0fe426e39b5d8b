"""Pictures of the concepts that the page shows, chosen among the pictures of all concepts that were drawn."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from hpcddm.files import atomic, hdf5

ConceptImages = dict[int, dict[str, np.ndarray]]
"""Pictures by concept and arm, uint8 (N, H, W, C); an arm that drew none is not there."""


def gather(files: Iterable[Path], wanted: Mapping[int, Sequence[tuple[str, str]]]) -> ConceptImages:
    """Read some concepts' pictures; wanted: the arms of each, by the name that they get, and that in the files."""
    gathered: ConceptImages = {}
    for path in files:
        with hdf5.open_checked(path) as file:
            for concept, arms in wanted.items():
                own = {arm: file[f"{stored}/{concept}"][()] for arm, stored in arms if f"{stored}/{concept}" in file}
                if own:
                    gathered.setdefault(concept, {}).update(own)
    return gathered


def write(pictures: ConceptImages, path: Path) -> None:
    """Write them as `gather` finds them again, under the arms' new names."""
    with atomic.replacing(path, durable=False) as staged, h5py.File(staged, "w") as file:
        for concept, by_arm in pictures.items():
            for arm, images in by_arm.items():
                file.create_dataset(f"{arm}/{concept}", data=images)


def read(path: Path) -> ConceptImages:
    """Read the pictures that `write` has written."""
    with hdf5.open_checked(path) as file:
        wanted: dict[int, list[tuple[str, str]]] = {}
        for arm in file:
            for concept in file[arm]:
                wanted.setdefault(int(concept), []).append((arm, arm))
    return gather([path], wanted)
