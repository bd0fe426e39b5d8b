"""The verb evaluate: figures of anybody's samples, by the code that a run measures its own with."""

import csv
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddm.commands.options import PATH
from hpcddm.commands.terminal import UNDERLINED, make_table, plain_text, print_table
from hpcddm.config.image_encoders import ImageEncoderSettings, figure_label
from hpcddm.config.schema import validate
from hpcddm.config.strict_yaml import parse_value
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import echo
from hpcddm.files import atomic

if TYPE_CHECKING:
    from hpcddm.commands.evaluating.run_images import RunImages
    from hpcddm.evaluation.evaluators import ImageEvaluator
    from hpcddm.evaluation.image_sets import FeatureMoments, ImageFiles
    from hpcddm.evaluation.metrics.metric_inputs import ImageSet

FLOOR = "floor"
AS_STATED = " as stated by you"
OWN, DEFAULT = "own", "efficientnet_lite0"
"""The networks that a run trains to measure images, and the extractor where no run has any."""


@click.command()
@click.argument("sets", nargs=-1, metavar="[SAMPLES]...")
@click.option("--samples", "more", multiple=True, metavar="SAMPLES", help="The same as an argument.")
@click.option("--against", metavar="REAL", help="Real images to compare with, of the same kinds, or their statistics.")
@click.option(
    "--extractor",
    "extractors",
    multiple=True,
    metavar="NAME",
    help="A name or a mapping as in evaluate.extractors, or 'own' for the networks that the run of SAMPLES has"
    f" trained. Repeat it for several. Default: own, or {DEFAULT} without a run.",
)
@click.option("--images", type=click.IntRange(min=2), help="Compare so many of every set, at equal distances in it.")
@click.option("--allow-jpeg", is_flag=True, help="Take samples that were stored with loss.")
@click.option(
    "--write", "output", type=PATH, help="Write the samples to X.npz, as other evaluators read them, or PNGs."
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries of a run's metrics.json.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a row for each figure of each set.")
def evaluate(
    sets: tuple[str, ...],
    more: tuple[str, ...],
    against: str | None,
    extractors: tuple[str, ...],
    images: int | None,
    allow_jpeg: bool,
    output: Path | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare sets of samples with real images; nothing is trained or drawn, and no run is needed.

    SAMPLES is a folder of PNGs, or of one folder per class; an npz with arr_0, uint8, (N, H, W, 3); a tar or a folder
    of tars; or RUN:ARM, the samples that a run has drawn. REAL is one of these, RUN:heldout, or an npz with mu and
    sigma, which gives the Frechet distance alone.

    \b
    Example: hpcddm evaluate runs/quickstart:top-1 theirs/ --against runs/quickstart:heldout
             hpcddm evaluate samples.npz --against imagenet_val/ --extractor inception_2015 --images 10000
             hpcddm evaluate runs/quickstart:top-1 --write top-1.npz
    """
    names = (*sets, *more)
    require(bool(names), "name a set of samples, or several")
    require(FLOOR not in names, f"{FLOOR}: figures of training images have this name; write ./{FLOOR}")
    require(bool(against or output), "--against names the real images to compare with; --write writes the samples")
    opened = [_open(name, allow_jpeg) for name in names]
    if output is not None:
        require(len(opened) == 1, "--write: name one set of samples")
        from hpcddm.evaluation.sample_files import write_images

        echo(write_images(opened[0], output))
    if against is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module="hpcddm")
            warnings.showwarning = lambda message, *place: echo(f"warning: {message}", err=True)
            found = _compared(opened, against, extractors, images)
        _print(found, as_json, as_csv)


def _open(name: str, is_lossy_allowed: bool) -> "ImageFiles":
    """Open a set of samples."""
    from hpcddm.evaluation.image_sets import ImageFiles

    found = _open_any(name, is_lossy_allowed)
    if not isinstance(found, ImageFiles):
        raise UserError(f"{name}: has statistics and not samples; name it by --against")
    return found


def _open_any(name: str, is_lossy_allowed: bool) -> "ImageFiles | FeatureMoments":
    from hpcddm.evaluation.image_sets import open_images

    if not Path(name).exists() and Path(name.rpartition(":")[0] or name).is_dir() and ":" in name:
        from hpcddm.commands.evaluating.run_images import RunImages

        return RunImages(name)
    return open_images(name, is_lossy_allowed)


def _compared(
    samples: Sequence["ImageFiles"], against: str, extractors: Sequence[str], images: int | None
) -> dict[str, Any]:
    """Measure all sets with every extractor, and compare them."""
    from hpcddm.evaluation import comparisons, measured_sets
    from hpcddm.evaluation.image_sets import FeatureMoments

    real = _open_any(against, is_lossy_allowed=True)
    is_stated = isinstance(real, FeatureMoments)
    text = f"{against}: does not say which network its features are from; name it by --extractor"
    require(not is_stated or len(extractors) == 1, text)
    sets = [*samples] if isinstance(real, FeatureMoments) else [*samples, real]
    if images is None:
        measured_sets.require_equal_counts(sets)
    train, compared = _training_images(real), {}
    for label, evaluator in _evaluators(sets, extractors):
        found = dict(_measured([*sets, *train], label, evaluator, images))
        arms = {one.name: found[one.name] for one in samples}
        if isinstance(real, FeatureMoments):
            compared[label] = measured_sets.compare_with_moments(label, arms, real)
        else:
            floor = found[train[0].name] if train else None
            compared[label] = measured_sets.compare(label, arms, found[real.name], floor)
    made = comparisons.summarise(compared)
    made |= {"protocol": _protocol(samples, made, against if is_stated else None)}
    stated = f"{AS_STATED}: {', '.join(compared)}" if is_stated else ""
    return made | {"against": f"{against}{stated}", "images": next(iter(made["arms"].values()))["images"]}


def _protocol(samples: Sequence["ImageFiles"], made: Mapping[str, Any], statistics: str | None) -> dict[str, str]:
    """Say of each set that a run has drawn whether its figures may stand beside published ones."""
    from hpcddm.commands.evaluating.run_images import REAL, RunImages
    from hpcddm.evaluation.report.protocol import compare_with_published

    return {
        one.name: compare_with_published(one.run.experiment, made["arms"][one.name]["images"], made, statistics)
        for one in samples
        if isinstance(one, RunImages) and one.arm not in REAL
    }


def _training_images(real: "ImageFiles | FeatureMoments") -> "list[ImageFiles]":
    """Return the training images of a run whose held-out ones are the reference: their figures are the floor."""
    from hpcddm.commands.evaluating.run_images import RunImages
    from hpcddm.runs.ranges import HELDOUT, TRAIN

    is_of_run = isinstance(real, RunImages) and real.arm == HELDOUT
    return [RunImages(f"{real.name.rpartition(':')[0]}:{TRAIN}")] if is_of_run else []


def _measured(
    sets: Sequence["ImageFiles"], label: str, evaluator: "ImageEvaluator", images: int | None
) -> "Iterator[tuple[str, ImageSet]]":
    """Yield what an evaluator measures of every set, with a bar of progress on the terminal."""
    from hpcddm.evaluation.image_sets import every_nth
    from hpcddm.evaluation.measured_sets import measure

    channels = max(one.shape[2] for one in sets)
    for one in sets:
        wanted = images or one.count
        require(wanted <= one.count, f"{one.name}: has {one.count:,} images; --images {wanted} are more")
        with click.progressbar(length=wanted, label=f"{label}: {one.name}", file=sys.stderr) as bar:
            yield one.name, measure(one, every_nth(one.count, wanted), channels, evaluator, bar.update)


def _evaluators(sets: Sequence["ImageFiles"], extractors: Sequence[str]) -> "Iterator[tuple[str, ImageEvaluator]]":
    """Yield the evaluators that the user names, or the default, by label."""
    from hpcddm.evaluation.evaluators import EncoderEvaluator, TrainedEvaluators
    from hpcddm.jobs.devices import current_device

    own = _run_of(sets)
    for text in extractors or ((OWN,) if own is not None else (DEFAULT,)):
        if text == OWN:
            if own is None:
                raise ConfigError(f"--extractor {OWN}: no set is of a run that trained such networks; name another")
            other = next((one for one in sets if one.shape != own.shape), own)
            need = f"--extractor {OWN}: its networks see {own.shape}, and {other.name} has {other.shape}; name another"
            require(other is own, need)
            yield OWN, TrainedEvaluators(own.run.experiment, own.root.unit, current_device())
        else:
            values = parse_value("--extractor", text, "--extractor") if text.startswith("{") else {"name": text}
            settings = validate(ImageEncoderSettings, values, "--extractor")
            label = figure_label(settings)
            yield label, EncoderEvaluator(label, settings)


def _run_of(sets: Sequence["ImageFiles"]) -> "RunImages | None":
    """Return the first set that is of a run which trains networks to measure images."""
    from hpcddm.commands.evaluating.run_images import RunImages
    from hpcddm.stages.training.evaluators import evaluator_keys

    return next((one for one in sets if isinstance(one, RunImages) and evaluator_keys(one.run.experiment)), None)


def _print(found: Mapping[str, Any], as_json: bool, as_csv: bool) -> None:
    if as_json:
        echo(json.dumps(atomic.finite_json(found, []), indent=1))
    elif as_csv:
        _print_csv(found)
    else:
        _print_table(found)


def _print_csv(found: Mapping[str, Any]) -> None:
    """Print a row for each figure of each set."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["samples", "figure", "value", "low", "high", "verdict", "images", "against"])
    for name, intervals in found["intervals"].items():
        values = found["arms"].get(name) or found["floor"]
        for key, ends in intervals.items():
            verdict = found["differences"].get(name, {}).get(key, {}).get("verdict", "")
            writer.writerow([name, key, values[key], *ends, verdict, found["images"], found["against"]])


def _print_table(found: Mapping[str, Any]) -> None:
    from hpcddm.evaluation.report.page import FLOOR as TITLE
    from hpcddm.evaluation.report.page import figure_rows

    columns = [*found["arms"], *([TITLE] if found["intervals"]["floor"] else [])]
    title = f"{found['images']:,} images of each set against {found['against']}, with 95 % intervals"
    rows = ([key, *(cells.get(name, "") for name in columns)] for key, cells in figure_rows(dict(found)).items())
    print_table(make_table(["figure", *columns], rows, ["figure"], title, **UNDERLINED))
    for name, text in found["protocol"].items() if AS_STATED in found["against"] else ():
        echo(f"note: {plain_text(name)}: {text}")
    for label, dimension in found["few_images"].items():
        echo(f"note: {dimension} features of {label} need {2 * dimension:,} images for FD; compare by KID instead")
