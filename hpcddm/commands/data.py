"""The verb data: what a folder is, and the experiment that reads it."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddm.commands.options import JSON, PATH
from hpcddm.errors import ExitCode, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo, printable
from hpcddm.loading import data_proposals
from hpcddm.loading.data_proposals import ProposedExperiment

if TYPE_CHECKING:
    from hpcddm.sources.folders.survey import FolderSurvey

QUIET_SECONDS = 1.5
"""Seconds after which a line says what takes so long."""
MAX_KINDS, MAX_NAMES = 12, 8
"""Extensions, and names of classes, that are printed."""
ARCHIVES = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
"""Ends of the names of files that hold others."""
FILE = "mine.yaml"
"""Name of the experiment's file in the next step."""


@click.command()
@click.argument("folder", type=PATH)
@JSON
def data(folder: Path, as_json: bool) -> int:
    """Say what FOLDER is, and print the experiment that reads it.

    It counts all files by their names, up to two million, and opens some hundred at most. Where several readings are
    possible, all are printed. Save the lines of one as a YAML file: submit takes it as it is. FOLDER may also be one
    file, such as a tar, a parquet file or an archive of arrays.

    \b
    Example: hpcddm data /data/photos
    Next:    hpcddm submit mine.yaml
    """
    timer = threading.Timer(QUIET_SECONDS, echo, [f"looking at the files in {folder}"], {"err": True})
    timer.start()
    try:
        survey = data_proposals.survey_path(folder)
        experiments = data_proposals.propose_experiments(survey)
    finally:
        timer.cancel()
    above = "" if survey.only else data_proposals.folder_above(survey.root)
    if as_json:
        print(json.dumps(_content(survey, experiments, above), indent=1))
    else:
        _print(survey, experiments, above)
    if any(one.text for one in experiments):
        return ExitCode.DONE
    for line in dict.fromkeys(f"error: {one.name}: {one.proposal.error}" for one in experiments):
        echo(*line.split("\n"), err=True)
    if not experiments:
        echo(*_unknown(survey), err=True)
    return UserError.exit_code


def _content(survey: "FolderSurvey", experiments: list[ProposedExperiment], above: str) -> dict[str, Any]:
    return {
        "folder": str(survey.root),
        "file": survey.only,
        "files": survey.file_count,
        "is_whole": survey.is_whole,
        "extensions": dict(survey.counts.most_common()),
        "odd": [*_odd(survey), *([above] if above else [])],
        "readings": [_reading(one) for one in experiments],
    }


def _reading(one: ProposedExperiment) -> dict[str, Any]:
    proposal, sample = one.proposal, one.sample
    return {
        "source": one.name,
        "layout": proposal.layout,
        "condition": one.condition or None,
        "images": proposal.images,
        "is_exact": proposal.is_exact,
        "opened": sample.opened,
        "broken": len(sample.broken),
        "widths": _range(sample.widths),
        "heights": _range(sample.heights),
        "class_names": proposal.class_names,
        "captions": proposal.captions or None,
        "example": proposal.example or None,
        "odd": proposal.remarks,
        "error": proposal.error,
        "yaml": one.text or None,
    }


def _range(sides: list[int]) -> list[int] | None:
    return [min(sides), max(sides)] if sides else None


def _print(survey: "FolderSurvey", experiments: list[ProposedExperiment], above: str) -> None:
    name = survey.root / survey.only if survey.only else survey.root
    folders = "" if len(survey.folders) == 1 else f" in {len(survey.folders):,} folders"
    files = "file" if survey.file_count == 1 else "files"
    more = "" if survey.is_whole else "more than "
    echo(f"{name}: {more}{survey.file_count:,} {files}{folders}; {_kinds(survey)}")
    echo(*(f"  odd       {line}" for line in _odd(survey)))
    if above:
        echo(f"  odd       {step('hpcddm', 'data', survey.root.parent, reason=above)}")
    usable = [one for one in experiments if one.text]
    for number, one in enumerate(usable, 1):
        echo("")
        _describe(one, f"reading {number} of {len(usable)}: " if len(usable) > 1 else "")
        echo("")
        # Not by `echo`, which cuts long lines and would join these.
        print(one.text, end="", flush=True)
    if usable:
        echo("")
        echo(step("hpcddm", "submit", FILE, reason=f"save the lines{' of one reading' * (len(usable) > 1)} as {FILE}"))
        refused = [one for one in experiments if not one.text and not usable[0].proposal.is_specific]
        for line in dict.fromkeys(f"not as {one.name}: {one.proposal.error}" for one in refused):
            echo(*line.split("\n"))
    else:
        for one in experiments:
            if one.sample.widths:
                echo("")
                _describe(one, "")


def _describe(one: ProposedExperiment, title: str) -> None:
    proposal, sample = one.proposal, one.sample
    use = f", trained on {one.condition}" * bool(one.condition)
    echo(f"{title}{proposal.layout} (source {one.name}){use}")
    about = "" if proposal.is_exact else "about "
    number = "unknown number" if proposal.images is None else f"{about}{proposal.images:,}"
    echo(f"  images    {number}; {sample.opened} were opened: {_count(sample.formats.items())}")
    sides = sample.short_sides
    half = f"half of the shorter sides are at least {sides[(len(sides) - 1) // 2]:,}"
    echo(f"  sizes     {_span(sample.widths)} pixels wide, {_span(sample.heights)} high; {half}")
    if names := [printable(name) for name in proposal.class_names]:
        echo(f"  classes   {len(names):,}: {', '.join(names[:MAX_NAMES])}{', ...' * (len(names) > MAX_NAMES)}")
    if proposal.captions:
        echo(f"  captions  {proposal.captions}, such as: {printable(proposal.example, 120)}")
    echo(*(f"  odd       {line}" for line in proposal.remarks))


def _span(sides: list[int]) -> str:
    low, high = min(sides), max(sides)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _count(items: Any) -> str:
    return ", ".join(f"{name or 'pixels'} {count:,}" for name, count in items)


def _kinds(survey: "FolderSurvey") -> str:
    """List the numbers of files by extension, largest first."""
    kinds = [(name or "without extension", count) for name, count in survey.counts.most_common()]
    others = sum(count for _, count in kinds[MAX_KINDS:])
    return _count([*kinds[:MAX_KINDS], *([("others", others)] if others else [])]) or "none"


def _odd(survey: "FolderSurvey") -> list[str]:
    """Describe what is odd about the files, whatever reads them."""
    lines = []
    if not survey.is_whole:
        lines.append("counting stopped there; all numbers are of the first files and folders")
    if survey.lost_links:
        count, first = len(survey.lost_links), survey.lost_links[0]
        lines.append(f"{count:,} links lead nowhere, such as {first}; fetch the files, or remove the links")
    if survey.unreadable:
        lines.append(f"{len(survey.unreadable):,} folders cannot be read, such as {survey.unreadable[0]}")
    for extension, kind in survey.kinds.items():
        what = "pictures in spite of the name" if kind == "picture" else f"{kind}, which is not read; convert them"
        lines.append(f"{survey.counts[extension]:,} files {extension or 'without extension'}: {what}")
    if survey.hidden:
        lines.append(f"{survey.hidden:,} hidden files or folders, or such as .DS_Store, are not read")
    return lines


def _unknown(survey: "FolderSurvey") -> list[str]:
    """Say that nothing reads the files, and what could be read."""
    name = survey.root / survey.only if survey.only else survey.root
    if not survey.file_count:
        return [f"error: {name}: no files; name the folder that holds the images"]
    lines = [f"error: {name}: nothing that hpcddm reads; it has {_kinds(survey)}"]
    if survey.only:
        advice = "unpack it into a folder" if survey.only.lower().endswith(ARCHIVES) else "name its folder"
        lines = [f"error: {name}: one file of no kind that hpcddm reads; {advice}"]
    return [*lines, "hpcddm reads:", *(f"  {line}" for line in data_proposals.what_sources_read())]
