"""The settings of runs on existing tars, and what is in tars and runs."""

import tarfile

from hpcddm.data import run_samples
from hpcddm.runs.unit_keys import MONOLITH
from tests.helpers import CLUSTERING

ADOPTED = {
    "data__image_size": 16,
    "data__channels": 3,
    "data__num_classes": None,
    "data__condition": {"name": "none"},
    "evaluators__classifier": None,
    "encode__encoder": {"name": "pixels", "size": 4},
    "cluster__clustering": CLUSTERING,
    "cluster__experts": 2,
    "experts__training__batch": 12,
    "evaluate__images": 20,
    "evaluate__batch": 10,
}


def members(folder, pattern="*.tar"):
    """All members of the tars, by name."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        with tarfile.open(path) as file:
            found |= {member.name: file.extractfile(member).read() for member in file}
    return found


def keys_of(bench, split):
    reader = run_samples.open_reader(bench.unit(MONOLITH), split)
    return reader.keys(range(len(reader)))
