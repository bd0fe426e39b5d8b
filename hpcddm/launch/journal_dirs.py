"""Folders that the jobs of a run were submitted from: the run itself, or the folder of its sweep."""

import os
from dataclasses import replace
from pathlib import Path

from hpcddm.runs.journal import Journal, Submission
from hpcddm.runs.run_dir import RunDir


def submissions_of(run: RunDir) -> list[Submission]:
    """List all submissions that hold a unit of this run, oldest first, with its units named as the run names them."""
    return [submission for home in journal_dirs(run) for submission in submissions_in(home, run)]


def journal_dirs(run: RunDir) -> list[RunDir]:
    """List the folders whose journals may name units of this run."""
    return [RunDir(run.root.resolve().parent), run]


def submissions_in(home: RunDir, run: RunDir) -> list[Submission]:
    """List those of one home; units of other runs keep their long names, because an element is a place in the list."""
    if home == run:
        return Journal(run.journal).submissions()
    places = _places(run)
    submissions = []
    for submission in Journal(home.journal).submissions():
        if (units := [_name_in_run(unit, places) for unit in submission.units]) != submission.units:
            cancelled = tuple(_name_in_run(unit, places) for unit in submission.cancelled)
            submissions.append(replace(submission, units=units, cancelled=cancelled))
    return submissions


def _places(run: RunDir) -> dict[str, str]:
    """Map folders of units, relative to the home, to the run's names for them; links lead to units of other runs."""
    folder_name = run.root.resolve().name
    places = {folder_name: ""}
    if not run.root.is_dir():
        return places
    for path in [*run.root.iterdir(), *run.root.glob("*/*")]:
        if path.is_symlink():
            target = os.path.normpath(Path(folder_name, path.parent.relative_to(run.root), os.readlink(path)))
            places[target] = str(path.relative_to(run.root))
    return places


def _name_in_run(name: str, places: dict[str, str]) -> str:
    """Translate a unit's name in the home to that in the run; unchanged if it is none of its units."""
    head = name
    while head:
        if head in places:
            return (places[head] + name[len(head) :]).lstrip("/")
        head = head.rpartition("/")[0]
    return name
