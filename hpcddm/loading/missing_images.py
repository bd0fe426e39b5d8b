"""Images of an experiment that are not there: which, and how they are to be had."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcddm.config import paths
from hpcddm.config.experiment import Experiment
from hpcddm.config.package_data import find_data_folder
from hpcddm.errors import UserError
from hpcddm.errors.next_step import LABEL, step
from hpcddm.sources.downloads.idx_files import IDX_FILES


def missing_paths(experiment: Experiment) -> list[Path]:
    """List the files and folders of the source that are not there."""
    source = experiment.data.source
    named = [Path(holder[key]) for holder, key in paths.find_paths(source.model_dump(), type(source))]
    return [path for path in named if not path.exists()]


def images_note(name: str) -> str:
    """Return the header's note on the images of a shipped experiment; '' for a user's experiment."""
    file = find_data_folder() / "experiments" / f"{name}.yaml"
    header = file.read_text() if file.is_file() else ""
    note = re.search("^#.*? Data: (.*(\\n#   .*)*)", header, re.MULTILINE)
    return " ".join(note[1].replace("\n#", " ").split()) if note else ""


@contextmanager
def add_remedy(experiment: Experiment) -> Iterator[None]:
    """Add to an error about missing images the command that fetches them, or prints how to get them."""
    try:
        yield
    except UserError as error:
        gone = missing_paths(experiment)
        is_fetched = any(path == one.folder for path in gone for one in IDX_FILES)
        if not gone or not (is_fetched or images_note(experiment.name)) or LABEL in str(error):
            raise
        verb = "this fetches the images" if is_fetched else "this says how to get the images"
        reason = "; ".join([*error.args, verb])
        raise type(error)(str(step("hpcddm", "prefetch", experiment.name, reason=reason))) from None
