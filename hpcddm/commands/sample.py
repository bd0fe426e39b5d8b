"""The verb sample: pictures from the trained networks of a run."""

from pathlib import Path

import click

from hpcddm.errors import ConfigError, UserError
from hpcddm.files import stored_experiment
from hpcddm.pipeline import plan
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir


def sample(
    root: Path,
    output: Path,
    strategy: str,
    label: int | None,
    num_images: int,
    seed: int,
    steps: int | None,
    guidance: float | None,
) -> None:
    """Draw images into one PNG.

    Raises `UserError` naming the units that are not complete.
    """
    run = RunDir(root)
    experiment = stored_experiment(run)
    missing = [
        unit.key
        for unit in plan(experiment)
        if unit.stage in ("train", "route", "cluster") and manifest.read(run.unit(unit.key)) is None
    ]
    if missing:
        raise UserError(f"{root}: not complete yet: {', '.join(missing)}; see 'hpcddm status {root}'")
    num_classes = experiment.data.num_classes
    if label is not None and not 0 <= label < num_classes:
        raise ConfigError(f"--class {label}: valid classes are 0 to {num_classes - 1}")
    from hpcddm.report.pictures import grid
    from hpcddm.stages.drawing import draw

    changes = {"steps": steps or experiment.evaluate.steps}
    changes["guidance"] = experiment.evaluate.guidance if guidance is None else guidance
    experiment = experiment.model_copy(update={"evaluate": experiment.evaluate.model_copy(update=changes)})
    classes = [number % num_classes if label is None else label for number in range(num_images)]
    with click.progressbar(length=num_images, label=strategy) as bar:
        images = draw(experiment, run, strategy, classes, seed, bar.update)
    columns = num_classes if label is None and num_classes <= 16 else 8
    output.parent.mkdir(parents=True, exist_ok=True)
    grid(images, columns=columns).save(output)
    click.echo(f"{output}: {num_images} images, {strategy}, {changes['steps']} steps, guidance {changes['guidance']:g}")
