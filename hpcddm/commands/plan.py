"""The verb plan: what an experiment will cost at a site, before anything is submitted."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddm.commands.expert_costs import cost_line, expert_costs, override_lines, shift_line, shift_of_space
from hpcddm.commands.options import EXPERIMENT, JSON, OVERRIDES, RUN_DIR, SITE
from hpcddm.commands.terminal import make_table, print_table
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError, require
from hpcddm.errors.printing import echo
from hpcddm.evaluation.result_warnings import few_images_warning
from hpcddm.launch.checks import disk_estimates
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.launch.checks.gpu_requests import gpu_remarks
from hpcddm.launch.load_site import load_site
from hpcddm.loading.content_hashes import add_remedy, with_tar_counts
from hpcddm.loading.run_defaults import load_for_run
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest, passed_over
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_training import images_per_step

if TYPE_CHECKING:
    from hpcddm.commands.planning.planned_collection import PlannedCollection
    from hpcddm.commands.planning.stage_rows import StageRow

LEGEND = (
    "columns   nodes x ranks, CPUs, GPUs: of one unit; FLOPs, CPU-h, GPU-h, bytes, files: of all units of the stage",
    "          a unit takes: the longest one; slots: jobs in a row that it needs, each within the site's time limit;",
    "          none: it starts again in each job and is complete in none",
    "          kept: bytes of results; at work: further bytes while it runs; time from: see `time` below",
)
"""Meanings of the table's columns."""
SAMPLES_IN_A_TAR = 10_000
"""Samples that img2dataset puts into a tar by default."""


@click.command()
@EXPERIMENT
@OVERRIDES
@SITE
@RUN_DIR
@click.option(
    "--flops-per-second", "speed", type=click.FloatRange(min=0, min_open=True), help="Speed of one rank at the site."
)
@click.option(
    "--assume",
    metavar="samples=N[,heldout=N][,tars=N]",
    help="Sizes of a data set that is not here; tars: number of existing tars.",
)
@JSON
def plan(
    name: str,
    overrides: tuple[str, ...],
    site_name: str,
    run_dir: Path | None,
    speed: float | None,
    assume: str | None,
    as_json: bool,
) -> None:
    """Estimate the costs of EXPERIMENT at a site.

    FLOPs, hours, slots and storage are listed per stage; nothing is submitted. Nodes x ranks, CPUs and GPUs are per
    unit; FLOPs, hours, bytes and files are totals of a stage. "A unit takes" is the time of the longest unit; slots are
    the consecutive jobs that it needs within the site's time limit. The key experts.training.batch counts the images
    per step over all experts.

    Times come from --flops-per-second, else from the attempts of the run, else from a short measurement here.

    \b
    Example: hpcddm plan fashion_mnist --site my-cluster
             hpcddm plan laion.yaml --site my-cluster --assume samples=153600000
    Next:    hpcddm submit fashion_mnist --site my-cluster
    """
    experiment, run, defaults = load_for_run(name, overrides, run_dir)
    site = load_site(site_name)
    if not as_json:
        defaults.print()
    print_plan(experiment, run, site, speed, assume, as_json)


def print_plan(
    experiment: Experiment, run: RunDir, site: Site, speed: float | None, assume: str | None, as_json: bool
) -> None:
    """Print what the units of a site will cost; `speed`, `assume` and `as_json` are the options of the verb."""
    if assume is None:
        experiment = with_tar_counts(experiment)
        with add_remedy(experiment):
            counts = disk_estimates.image_counts(experiment, run)
    else:
        experiment, counts = _assumed(experiment, assume)
    units = [unit for unit in plan_units(experiment) if unit.site in (None, site.name)]
    # Torch takes its seconds to import, and no other verb of the login node waits for it.
    from hpcddm.commands.planning.costs import UnitCosts
    from hpcddm.commands.planning.stage_rows import restarting_units, stage_rows
    from hpcddm.commands.planning.training_memory import memory_line, predict_for_units

    costs = UnitCosts(experiment, counts)
    rows, images, estimates = stage_rows(units, costs, site, run, speed)
    experts = expert_costs(experiment, run, site, estimates) if assume is None else []
    missing = [unit for unit in units if manifest.read_if_usable(run.unit(unit.key)) is None]
    idle = gpu_remarks(site, [unit.key for unit in units], experiment)
    numbers, in_memory = override_lines(experiment), predict_for_units([unit.key for unit in units], costs, site)
    warning, cut = few_images_warning(experiment), restarting_units(rows, site)
    left_out = disk_estimates.count_passed_over(experiment, run) if assume is None else {}
    total = _total(rows, disk_estimates.still_needed(missing, experiment, site, run, counts), run)
    if as_json:
        content = {
            "experiment": experiment.name,
            "site": site.name,
            "stages": [asdict(row) for row in rows],
            "collection": asdict(images),
            "total": total,
            "gpu_remarks": idle,
            "experts": [asdict(cost) for cost in experts],
            "own_numbers": numbers,
            "shift_of_space": shift_of_space(experiment),
            "few_images": warning,
            "cut_short": cut,
            "passed_over": left_out,
            "memory": [asdict(own) for own in in_memory],
        }
        # Not by `echo`, which cuts long lines.
        print(json.dumps(content, indent=1))
        return
    echo(f"{experiment.name} at {site.name}: {len(units)} units, {len(units) - len(missing)} of them complete")
    _print(rows, total, run)
    echo(f"batch     {images_per_step(experiment)}", f"times     {shift_line(experiment)}")
    _print_collection(images)
    lines = [f"passed over   {line}" for line in passed_over.count_lines(left_out)]
    lines += [f"clusters  {cost_line(experts)}"] if experts else []
    lines += [f"override  {text}" for text in numbers]
    lines += [f"warning   {text}" for text in (warning, *cut) if text]
    lines += [f"GPUs      {text}" for text in idle]
    echo(*lines, *(f"memory    {memory_line(own)}" for own in in_memory))


def _assumed(experiment: Experiment, text: str) -> tuple[Experiment, dict[str, int]]:
    """Return the experiment of a data set with given numbers, and the numbers of images by split."""
    numbers: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in ("samples", "heldout", "tars") or not value.isdecimal() or not int(value):
            raise ConfigError(f"--assume {text}: {part}: name samples=N, heldout=N, tars=N, with N of 1 and more")
        numbers[key] = int(value)
    require("samples" in numbers, f"--assume {text}: samples=N is missing, the number of training images", ConfigError)
    counts = {TRAIN: numbers["samples"], HELDOUT: numbers.get("heldout", experiment.evaluate.images)}
    if experiment.data.source.uses_existing_tars:
        tars = {"shards": numbers.get("tars", -(-counts[TRAIN] // SAMPLES_IN_A_TAR))}
        tars["heldout_shards"] = -(-counts[HELDOUT] * tars["shards"] // counts[TRAIN])
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update=tars)})
    return experiment, counts


def _total(rows: list["StageRow"], needed: DiskSpace, run: RunDir) -> dict[str, Any]:
    """Sum the known costs, and add needed and free space of the run's file system."""
    free_bytes, free_files = disk_estimates.free_space(run.root)
    return {key: sum(getattr(row, key) or 0 for row in rows) for key in ("flops", "cpu_hours", "gpu_hours")} | {
        "bytes_still_needed": needed.kept,
        "files_still_needed": needed.files,
        "bytes_free": free_bytes,
        "files_free": free_files,
    }


def _print(rows: list["StageRow"], total: dict[str, Any], run: RunDir) -> None:
    cells = [_cells(row) for row in rows]
    print_table(make_table(cells[0], (row.values() for row in cells), ["stage"]))
    echo(*LEGEND)
    incomplete = " without the stages of unknown time" if any(row.unit_hours is None for row in rows) else ""
    hours = f"{_hours(total['cpu_hours'])} CPU-hours, {_hours(total['gpu_hours'])} GPU-hours"
    echo(f"together  {total['flops']:.3g} FLOPs, {hours}{incomplete}")
    for detail in dict.fromkeys((row.time_source, row.time_detail) for row in rows):
        stages = ", ".join(row.stage for row in rows if (row.time_source, row.time_detail) == detail)
        echo(f"time      {detail[0]} ({detail[1]}): {stages}")
    free_files = "inodes are not counted" if total["files_free"] is None else f"{total['files_free']:,} inodes free"
    echo(
        f"storage   at most {format_bytes(total['bytes_still_needed'])} and {total['files_still_needed']:,} files still"
        f" to write in {run.root}, {format_bytes(total['bytes_free'])} and {free_files}"
    )


def _cells(row: "StageRow") -> dict[str, object]:
    """Format a row by column."""
    return {
        "stage": row.stage,
        "units": row.units,
        "nodes x ranks": f"{row.nodes} x {row.ranks_per_node}",
        "CPUs": row.nodes * row.ranks_per_node * row.cpus_per_rank,
        "GPUs": row.nodes * row.gpus_per_node,
        "FLOPs": f"{row.flops:.2e}" if row.flops else "-",
        "a unit takes": _duration(row.unit_hours),
        "CPU-h": _hours(row.cpu_hours),
        "GPU-h": _hours(row.gpu_hours),
        "slots": "-" if row.slots is None else row.slots or "none",
        "kept": format_bytes(row.bytes_kept),
        "at work": format_bytes(row.bytes_working),
        "files": f"{row.files:,}",
        "time from": row.time_source,
    }


def _print_collection(images: "PlannedCollection") -> None:
    size = "of unknown size" if images.bytes is None else format_bytes(images.bytes)
    counted = " and ".join(f"{count:,} {split}" for split, count in images.samples.items())
    index = "unknown" if images.index_hours is None else f"{_duration(images.index_hours)} for the longest"
    echo(f"images    {images.files:,} files, {size}, {counted} samples; index: {images.index_units:,} units, {index}")
    epoch = "unknown" if images.epoch_hours is None else _duration(images.epoch_hours)
    echo(f"reading   an epoch of one expert, {images.epoch_samples:,} samples: {epoch} ({images.epoch_detail})")
    from hpcddm.commands.planning.read_amplification import advice

    if recommended := images.bytes_per_byte and advice(images.bytes_per_byte):
        echo(f"reading   {recommended}")


def _duration(hours: float | None) -> str:
    if hours is None:
        return "-"
    seconds = 3600 * hours
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.1f} min" if hours < 1.5 else f"{hours:,.1f} h"


def _hours(hours: float | None) -> str:
    if hours is None:
        return "-"
    return "<0.01" if 0 < hours < 0.01 else f"{hours:,.2f}"
