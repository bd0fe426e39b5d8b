"""Where the jobs of a run were submitted from: the run itself, or the sweep's folder that it lies in."""

from dataclasses import replace

from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir


def submissions_of(run: RunDir) -> list[Submission]:
    """All submissions that hold a unit of this run, oldest first, with its units named as the run names them."""
    return [one for home in homes(run) for one in submissions_in(home, run)]


def homes(run: RunDir) -> list[RunDir]:
    """The folders whose journals may name units of this run."""
    return [RunDir(run.root.resolve().parent), run]


def submissions_in(home: RunDir, run: RunDir) -> list[Submission]:
    """Those of one home; the units of other runs keep their long names, for an element is a place in the list."""
    if home == run:
        return Journal(run.journal).submissions()
    prefix = f"{run.root.resolve().name}/"
    found = []
    for one in Journal(home.journal).submissions():
        if any(unit.startswith(prefix) for unit in one.units):
            own, cancelled = ([unit.removeprefix(prefix) for unit in units] for units in (one.units, one.cancelled))
            found.append(replace(one, units=own, cancelled=tuple(cancelled)))
    return found
