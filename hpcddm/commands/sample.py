"""The verb sample: draws images with the trained networks of a run."""

import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from hpcddm.commands.options import PATH
from hpcddm.config.class_names import are_numbers, class_number
from hpcddm.config.conditions import ConditionForm
from hpcddm.config.cross_checks import weights_conflict
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import SamplerSettings, SolverSettings, parse_strategy
from hpcddm.config.schema import validate
from hpcddm.config.strict_yaml import parse_value
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import echo
from hpcddm.files import atomic
from hpcddm.loading.ensemble_document import EnsembleDocument, read_ensemble
from hpcddm.pipeline.required_units import missing_experts, single_models, units_of_strategy
from hpcddm.runs.published_files import is_published
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import EXPERT_LISTS
from hpcddm.runs.weights_files import selected_weights

COLUMNS, MAX_COLUMNS = 8, 16
"""Columns of the picture; and the most where every column is one class, or one prompt."""
PICTURE, ARRAY, PAGE = ".png", ".npz", ".html"
NUM_IMAGES, NUM_DECISIONS, MAX_DECISIONS = 64, 20, 40
"""Numbers of images: of a picture, and of a page of decisions by default and at most."""
KEPT_WEIGHTS = {"sigma_rel": "--sigma-rel", "snapshot": "--snapshot"}


@click.command()
@click.argument("folder", type=PATH, metavar="RUN")
@click.option(
    "--strategy",
    help="full, top-2, sample-1, oracle, ..., or one model: expert-N, an extra expert, monolith, student.  [default:"
    " top-1; of a published ensemble its first one]",
)
@click.option(
    "--class",
    "name",
    metavar="NAME",
    help="A class's name, in upper or lower case, or its number; a class called 3 comes before class number 3."
    " Default: all classes in turn, in their order.",
)
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="A sentence; repeat it for several in turn.")
@click.option(
    "--num-images", type=click.IntRange(min=1), help=f"Default: {NUM_IMAGES}, with --decisions {NUM_DECISIONS}."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Image i depends on (seed, i) only.")
@click.option("--steps", type=click.IntRange(min=1), help="Default: as in the evaluation.")
@click.option("--guidance", type=float, help="Default: as in the evaluation.")
@click.option("--solver", help="euler, heun, midpoint; for one model also ddim, and ddim,eta=1. Default as above.")
@click.option("--snapshot", type=int, metavar="IMAGES", help="Weights after so many images. Default: as above.")
@click.option("--sigma-rel", type=float, help="Use the average with this relative length, one of power_ema.")
@click.option("--output", type=PATH, help="One PNG, or X.npz for other evaluators.  [default: grid.png]")
@click.option(
    "--decisions",
    type=PATH,
    metavar="PAGE",
    help="Instead of the picture, write a page (.html) with the router's posterior, the experts evaluated and the"
    " estimate of every image over time, and what each expert alone draws.",
)
def sample(
    folder: Path,
    output: Path | None,
    decisions: Path | None,
    strategy: str | None,
    name: str | None,
    prompts: tuple[str, ...],
    num_images: int | None,
    seed: int,
    **changes: Any,
) -> None:
    """Draw images with the trained networks of RUN into one PNG, an npz for other evaluators, or a page of decisions.

    RUN is the folder of a run, or one that 'hpcddm publish' wrote.

    \b
    Example: hpcddm sample runs/fashion_mnist --strategy top-2 --class "Ankle boot" --steps 25 --output boots.png
    Next:    compare with one model alone: --strategy monolith
    """
    run = RunDir(folder)
    document, experiment, names = _read_model(run)
    if strategy is None:
        strategy = document.strategies[0] if document else "top-1"
    units = units_of_strategy(experiment, strategy, "--strategy")
    _check_request(experiment, name, prompts, is_oracle=EXPERT_LISTS in units)
    classes = [] if name is None else [names[_class_of(name, names)]]
    experiment = _changed(experiment, strategy, changes)
    left_out = [key for key in units if document is not None and key in document.left_out]
    missing = missing_experts(experiment, run, units) if document is None else left_out
    if decisions is not None:
        require(output is None, "--output and --decisions: name one of the two", ConfigError)
        _check_decisions(strategy, num_images, experiment)
    output = _checked_output(output or Path("grid.png"), decisions)
    from hpcddm.api import PublishedEnsemble, Run

    model = Run(run, experiment) if document is None else PublishedEnsemble(folder, document, experiment)

    if not classes and not prompts and not experiment.data.condition.reads_captions:
        classes = names
    without = f" without {', '.join(missing)}" if missing else ""
    if decisions is not None:
        with _shown_warnings():
            found = model.decisions(num_images or NUM_DECISIONS, strategy, classes, prompts, seed)
        how = f"{run.root}, {strategy}{without}, seed {seed}, {_how(experiment)}"
        _save_decisions(found, how, classes or prompts, bool(classes), output)
        return
    num_images = num_images or NUM_IMAGES
    with click.progressbar(length=num_images, label=strategy) as bar, _shown_warnings():
        images = model.sample(num_images, strategy, classes, prompts, seed, bar.update)
    if output.suffix.lower() == ARRAY:
        _save_array(images, f"{run.root}:{strategy}", experiment, (classes, names), prompts, seed, output)
    else:
        period = len(prompts) or len(classes)
        _save(images, period if 1 < period <= MAX_COLUMNS else COLUMNS, output)
    named = [] if are_numbers(names) else classes
    of_class = f" of {named[0]}" if len(named) == 1 else ""
    echo(f"{output}: {num_images} images{of_class}, {strategy}{without}, {_how(experiment)}")
    if 1 < len(named) <= MAX_COLUMNS:
        echo(f"columns: {', '.join(named)}")


def _read_model(run: RunDir) -> tuple[EnsembleDocument | None, Experiment, list[str]]:
    """Read the document of a published ensemble, None for a run, with the experiment and the names of the classes."""
    if is_published(run.root):
        document, experiment = read_ensemble(run.root)
        return document, experiment, document.class_names
    experiment = with_absolute_paths(stored_experiment(run), run)
    return None, experiment, stored_class_names(experiment, run)


def _how(experiment: Experiment) -> str:
    """Describe the sampler and the weights."""
    evaluate, weights = experiment.evaluate, str(selected_weights(experiment))
    sampler = f"{evaluate.steps} {evaluate.solver.name} steps, guidance {evaluate.guidance:g}"
    return sampler + (f", weights {weights}" if weights else "")


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Print each warning of this package on a line."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="hpcddm")
        warnings.showwarning = lambda message, *place: echo(f"warning: {message}", err=True)
        yield


def _check_request(experiment: Experiment, name: str | None, prompts: tuple[str, ...], is_oracle: bool) -> None:
    """Raise `ConfigError` for a class or prompts that the run's networks do not support, naming the valid ones."""
    condition = experiment.data.condition
    if name is not None and prompts:
        raise ConfigError("--class and --prompt: name one of the two")
    if prompts and condition.form is not ConditionForm.TEXT:
        instead = "take --class" if condition.form is ConditionForm.CLASS else "name neither class nor prompt"
        raise ConfigError(f"--prompt: the networks of this run see no text (condition {condition.name}); {instead}")
    if prompts and is_oracle:
        raise ConfigError("--prompt: a sentence has no cluster that the oracle could name; take another --strategy")
    if name is not None and condition.reads_captions:
        raise ConfigError("--class: the networks of this run see captions, not classes; take --prompt")
    if name is not None and experiment.data.num_classes is None:
        raise ConfigError("--class: the images of this run have no classes")


def _class_of(name: str, names: list[str]) -> int:
    """Return the number of a class, given its name or number; raises `ConfigError` with the valid ones."""
    try:
        return class_number(name, names)
    except ValueError as error:
        raise ConfigError(f"--class {name}: {error}") from None


def _changed(experiment: Experiment, strategy: str, changes: dict[str, Any]) -> Experiment:
    """Return the experiment with other settings of the evaluation.

    Raises `ConfigError` naming the option.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    guidance = changes.get("guidance", 1.0)
    require(0 <= guidance < math.inf, f"--guidance {guidance:g}: needs a finite number of at least 0", ConfigError)
    if solver := changes.get("solver"):
        changes["solver"] = _solver(f"--solver {solver}", solver)
    experiment = experiment.model_copy(update={"evaluate": experiment.evaluate.model_copy(update=changes)})
    for key, problem in weights_conflict(experiment.experts.training, experiment.evaluate).items():
        raise ConfigError(f"{KEPT_WEIGHTS[key]}: {problem}")
    if strategy not in single_models(experiment):
        # A single model has one posterior and its own coordinates; its check rejects options that need several models.
        evaluate = experiment.evaluate
        named = (f"--solver {evaluate.solver.name}", evaluate.solver.check)
        # Ways to combine models that the run names may not go with guidance.
        for option, check in (named, (f"--guidance {evaluate.guidance:g}", evaluate.conversion.check)):
            try:
                check(experiment)
            except ValueError as error:
                raise ConfigError(f"{option}: {error}") from None
    return experiment


def _solver(option: str, text: str) -> SolverSettings:
    """Parse a solver's settings from 'ddim' or 'ddim,eta=1'; raises `ConfigError`."""
    name, *rest = text.split(",")
    values = {key: parse_value(key, value, option) for key, _, value in (pair.partition("=") for pair in rest)}
    return validate(SolverSettings, values | {"name": name}, option)


def _check_decisions(strategy: str, num_images: int | None, experiment: Experiment) -> None:
    """Refuse a page of decisions where nothing is decided, or of too many images; raises `ConfigError`."""
    if strategy in single_models(experiment) or not parse_strategy(strategy).needs_router:
        raise ConfigError(
            f"--decisions: the strategy {strategy} asks no router; take another --strategy, such as top-1"
        )
    if num_images and num_images > MAX_DECISIONS:
        raise ConfigError(f"--decisions: --num-images {num_images}: a page shows at most {MAX_DECISIONS}")


def _checked_output(picture: Path, page: Path | None) -> Path:
    """Return the path to write, the page if there is one; raises `ConfigError` if it could not be written later."""
    option, output, suffixes = (
        ("--output", picture, (PICTURE, ARRAY)) if page is None else ("--decisions", page, (PAGE,))
    )
    if output.suffix.lower() not in suffixes:
        raise ConfigError(f"{option} {output}: the name must end in {', or in '.join(suffixes)}")
    if output.suffix.lower() == ARRAY and output.exists():
        raise ConfigError(f"--output {output}: exists; name another file")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.exists():
            output.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise ConfigError(f"{option} {output}: cannot be written ({error.strerror})") from None
    return output


def _save_decisions(found: Any, how: str, texts: Sequence[str], are_classes: bool, page: Path) -> None:
    """Write the page of decisions; texts: classes, or else prompts, that the images have in turn."""
    from hpcddm.evaluation.report import decisions_page

    count = len(found.samples)
    asked = [texts[number % len(texts)] for number in range(count)] if texts else [""] * count
    html = decisions_page.render(page.stem, how, found, asked, "class" if are_classes else "prompt")
    atomic.write_text(page, html, durable=False)
    echo(f"{page}: decisions about {count} images, {how}")


def _save(images: Any, columns: int, output: Path) -> None:
    from hpcddm.evaluation.report.image_grids import grid

    try:
        grid(images, columns=columns).save(output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror or error})") from None


def _save_array(
    images: Any,
    name: str,
    experiment: Experiment,
    classes: tuple[list[str], list[str]],
    prompts: tuple[str, ...],
    seed: int,
    output: Path,
) -> None:
    """Write an npz, and a JSON beside it with seed, sampler, and classes or prompts; classes: drawn ones, and all."""
    import numpy as np

    from hpcddm.evaluation.sample_files import DrawnImages, write_images

    drawn, names = classes
    labels = np.resize([names.index(one) for one in drawn], len(images)) if drawn else None
    sampler = experiment.evaluate.model_dump(mode="json", include={*SamplerSettings.model_fields})
    origin = {"seed": seed, "first_sample": 0, "sampler": sampler} | ({"prompts": [*prompts]} if prompts else {})
    write_images(DrawnImages(name, images, labels, names, origin), output)
