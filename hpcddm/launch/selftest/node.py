"""Steps that run on the nodes: `python -m hpcddm.launch.selftest.node FOLDER STEP`.

It imports torch for GPUs and collectives only.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.launch.selftest.checks import collective, environment, signals, storage

SPEC = "spec.json"
"""File beside the folders of the starts: the settings that the jobs read."""
STEPS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    collective.STEP: collective.observe,
    "environment": environment.observe,
    "meet": storage.observe,
    **{name: partial(signals.observe, name=name) for name in signals.SIGNALS},
}
"""Functions that every rank of a job runs on its node, by the name that the batch script uses; their arguments are the
folder for the files of a step, and the content of the spec that the jobs read."""


def main(folder: Path, step: str) -> None:
    """Run one step inside a job and write its result into the folder of this start of its element."""
    if step not in STEPS:
        raise SystemExit(f"{step}: no such step; valid: {', '.join(STEPS)}")
    try:
        spec = checked_reads.read_required_json(folder.parent / SPEC)
    except Unreadable as error:
        raise SystemExit(str(error)) from None
    STEPS[step](folder, spec)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
