"""The verb sample: pictures from the trained networks of a run."""

import math
import tempfile
from pathlib import Path
from typing import Any

import click

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import stored_experiment
from hpcddm.pipeline import CLUSTER, MONOLITH, ROUTER, expert_keys, plan
from hpcddm.rundir.layout import RunDir
from hpcddm.status import State, survey

STRATEGIES = "ensemble/strategies"


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

    Raises `UserError` naming the units that are not complete, `ConfigError` over a wrong option.
    """
    run = RunDir(root)
    experiment = stored_experiment(run)
    wanted, num_classes = units_of(experiment, strategy), experiment.data.num_classes
    if label is not None and not 0 <= label < num_classes:
        raise ConfigError(f"--class {label}: valid classes are 0 to {num_classes - 1}")
    if guidance is not None and not 0 <= guidance < math.inf:
        raise ConfigError(f"--guidance {guidance:g}: needs a finite number of at least 0")
    missing = _missing(experiment, run, wanted)
    needed = [key for key in wanted if key not in missing]
    _check_output(output)
    from hpcddm.stages.drawing import draw

    changes = {"steps": steps or experiment.evaluate.steps}
    changes["guidance"] = experiment.evaluate.guidance if guidance is None else guidance
    experiment = experiment.model_copy(update={"evaluate": experiment.evaluate.model_copy(update=changes)})
    classes = [number % num_classes if label is None else label for number in range(num_images)]
    with click.progressbar(length=num_images, label=strategy) as bar:
        images = draw(experiment, run, strategy, needed, classes, seed, bar.update)
    _save(images, num_classes if label is None and num_classes <= 16 else 8, output)
    without = f" without {', '.join(missing)}" if missing else ""
    how = f"{changes['steps']} steps, guidance {changes['guidance']:g}"
    click.echo(f"{output}: {num_images} images, {strategy}{without}, {how}")


def units_of(experiment: Experiment, strategy: str) -> list[str]:
    """The units whose results a strategy reads: 'monolith', 'expert-2' or a routing strategy.

    Raises `ConfigError` with the valid names.
    """
    experts = expert_keys(experiment)
    single = {f"expert-{index}": key for index, key in enumerate(experts)}
    if experiment.monolith.enabled:
        single["monolith"] = MONOLITH
    # The unit's own name, expert-02, means the same as expert-2.
    alone = single | {key.split("/")[1]: key for key in single.values()}
    if strategy in alone:
        return [alone[strategy]]
    try:
        settings = plugins.parse(STRATEGIES, strategy)
        settings.check(experiment)
    except (ConfigError, ValueError):
        usage = [plugins.settings_class(STRATEGIES, name).usage for name in plugins.names(STRATEGIES)]
        valid = ", ".join([*usage, *single])
        raise ConfigError(f"--strategy {strategy}: not for {len(experts)} experts; valid names: {valid}") from None
    # Where experts may be missing, the samples of their clusters go by the router.
    may_miss = experiment.evaluate.min_experts is not None
    posterior = [ROUTER] * (settings.needs_router or may_miss) + [CLUSTER] * (not settings.needs_router)
    return [*posterior, *experts]


def _missing(experiment: Experiment, run: RunDir, wanted: list[str]) -> list[str]:
    """The experts that an ensemble has to do without, when enough are there.

    Raises `UserError` naming a unit that is not complete and that cannot be done without.
    """
    states = survey(plan(experiment), run)
    missing = [key for key in dict.fromkeys([CLUSTER, *wanted]) if states[key].state is not State.COMPLETE]
    experts = [key for key in wanted if key in expert_keys(experiment)]
    minimum = experiment.evaluate.min_experts or len(experts)
    is_enough = len(experts) - len(set(missing) & set(experts)) >= minimum
    for one in (states[key] for key in missing if key not in experts or not is_enough):
        reason = f" ({one.reason})" if one.reason else ""
        raise UserError(f"{one.key} is {one.state}{reason}; see 'hpcddm status {run.root}'")
    return missing


def _check_output(output: Path) -> None:
    """Refuse before an hour of drawing what could not be saved after it."""
    if output.suffix.lower() != ".png":
        raise ConfigError(f"--output {output}: the picture is a PNG with transparent gaps; the name must end in .png")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.exists():
            output.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written ({error.strerror})") from None


def _save(images: Any, columns: int, output: Path) -> None:
    from hpcddm.report.pictures import grid

    try:
        grid(images, columns=columns).save(output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror or error})") from None
