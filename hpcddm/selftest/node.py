"""Steps that run on the nodes: `python -m hpcddm.selftest.node FOLDER STEP`; torch for GPUs and collectives only."""

import sys
from pathlib import Path

from hpcddm.rundir import atomic
from hpcddm.selftest.checks import collective, environment, rendezvous, signals, storage

SPEC = "spec.json"
"""File beside the folders of the starts: the settings that the jobs read."""


def main(folder: Path, step: str) -> None:
    """Run one step inside a job and write its result into the folder of this start of its element."""
    spec = atomic.read_json(folder.parent / SPEC)
    if step == "environment":
        environment.observe(folder, spec)
    elif step in signals.SIGNALS:
        signals.observe(folder, step)
    elif step == "meet":
        storage.observe_scratch(folder, spec)
        with rendezvous.observe(folder, spec) as circle:
            storage.observe(folder, circle)
    elif step == collective.STEP:
        collective.observe(folder, spec)
    else:
        raise SystemExit(f"{step}: no such step")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
