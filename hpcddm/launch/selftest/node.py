"""Steps that run on the nodes: `python -m hpcddm.launch.selftest.node FOLDER STEP`.

It imports torch for GPUs and collectives only.
"""

import sys
from pathlib import Path

from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.launch.selftest.checks.collective import Collective
from hpcddm.launch.selftest.checks.environment import Environment
from hpcddm.launch.selftest.checks.signals import Signals
from hpcddm.launch.selftest.checks.storage import Storage

SPEC = "spec.json"
"""File beside the folders of the starts: the settings that the jobs read."""
CHECKS = (Collective, Environment, Signals, Storage)
"""Checks that have steps on the nodes."""


def main(folder: Path, step: str) -> None:
    """Run one step inside a job and write its result into the folder of this start of its element."""
    steps = {name: observe for check in CHECKS for name, observe in check.steps.items()}
    if step not in steps:
        raise SystemExit(f"{step}: no such step; valid: {', '.join(steps)}")
    try:
        spec = checked_reads.read_required_json(folder.parent / SPEC)
    except Unreadable as error:
        raise SystemExit(str(error)) from None
    steps[step](folder, spec)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
