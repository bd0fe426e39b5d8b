"""Where the jobs of a run were submitted from: the run itself, or the sweep's folder that it lies in."""

import os
from dataclasses import replace
from pathlib import Path

from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir


def submissions_of(run: RunDir) -> list[Submission]:
    """All submissions that hold a unit of this run, oldest first, with its units named as the run names them."""
    return [one for home in journal_dirs(run) for one in submissions_in(home, run)]


def journal_dirs(run: RunDir) -> list[RunDir]:
    """The folders whose journals may name units of this run."""
    return [RunDir(run.root.resolve().parent), run]


def submissions_in(home: RunDir, run: RunDir) -> list[Submission]:
    """Those of one home; the units of other runs keep their long names, for an element is a place in the list."""
    if home == run:
        return Journal(run.journal).submissions()
    places = _places(run)
    found = []
    for one in Journal(home.journal).submissions():
        units = [_own_name(unit, places) for unit in one.units]
        if units != one.units:
            cancelled = tuple(_own_name(unit, places) for unit in one.cancelled)
            found.append(replace(one, units=units, cancelled=cancelled))
    return found


def _places(run: RunDir) -> dict[str, str]:
    """Where units of the run lie as seen from its home -> what the run calls that; other runs share some by links."""
    own = run.root.resolve().name
    found = {own: ""}
    if not run.root.is_dir():
        return found
    for path in [*run.root.iterdir(), *run.root.glob("*/*")]:
        if path.is_symlink():
            target = os.path.normpath(Path(own, path.parent.relative_to(run.root), os.readlink(path)))
            found[target] = str(path.relative_to(run.root))
    return found


def _own_name(name: str, places: dict[str, str]) -> str:
    """A unit of the home as the run calls it, or unchanged if it is none of its units."""
    head = name
    while head:
        if head in places:
            return (places[head] + name[len(head) :]).lstrip("/")
        head = head.rpartition("/")[0]
    return name
