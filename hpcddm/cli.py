"""The command line: one verb per function; heavy imports wait until a verb needs them."""

import sys
from pathlib import Path

import click

from hpcddm import __version__
from hpcddm.errors import UserError

EPILOG = """\b
Two commands do everything:
  make submit                 the whole pipeline, here or through Slurm
  make test                   everything that can be tested here
Further:
  hpcddm submit fashion_mnist --site my-cluster --run-dir runs/fm experts.training.images=480000
  hpcddm status runs/fm
  hpcddm sample runs/fm --strategy top2 --class 3 --num-images 64 --seed 0 --output grid.png
"""


class Group(click.Group):
    """Prints the errors that a user can mend as one line."""

    def invoke(self, context: click.Context) -> object:
        """Run a verb; a `UserError` ends the process with its exit code."""
        try:
            return super().invoke(context)
        except UserError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        except click.UsageError as error:
            place = (error.ctx or context).command_path
            click.echo(f"error: {error.format_message()} See '{place} --help'.", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted; the same command continues", err=True)
            sys.exit(130)


@click.group(cls=Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train decentralised diffusion models: K isolated experts, a router, one ensemble."""


@main.command()
@click.argument("experiment", default="quickstart")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Default: runs/<the experiment's name>.")
@click.option("--redo", multiple=True, metavar="STAGE", help="Make a stage anew; the old one moves to superseded/.")
@click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
def submit(
    experiment: str, overrides: tuple[str, ...], site: str, run_dir: Path | None, redo: tuple[str, ...], dry_run: bool
) -> None:
    """Run what is missing of EXPERIMENT: a name, or a YAML file.

    What is complete stays; the same command again continues. KEY=VALUE changes a setting of the
    experiment, for instance experts.training.images=30000.
    """
    from hpcddm.commands import submit as command

    sys.exit(command.submit(experiment, overrides, site, run_dir, redo, dry_run))


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(run: Path, as_json: bool) -> None:
    """Show the state of every unit of RUN, and what to type next."""
    from hpcddm.commands import status as command

    command.status(run, as_json)


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--attempt", type=int, help="Default: the last one.")
@click.option("--rank", type=int, default=0, show_default=True)
def logs(run: Path, unit: str, attempt: int | None, rank: int) -> None:
    """Print the log of a unit of RUN, for instance train/expert-02."""
    from hpcddm.commands import logs as command

    command.logs(run, unit, attempt, rank)


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    default="top-1",
    show_default=True,
    help="top-1, top-2, ..., full, oracle, monolith, or expert-N alone.",
)
@click.option("--class", "label", type=int, help="Default: all classes in turn.")
@click.option("--num-images", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Image i depends on (seed, i) only.")
@click.option("--steps", type=click.IntRange(min=1), help="Default: as in the evaluation.")
@click.option("--guidance", type=float, help="Default: as in the evaluation.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("grid.png"), show_default=True)
def sample(run: Path, output: Path, **options: object) -> None:
    """Draw images with the trained networks of RUN into one picture."""
    from hpcddm.commands import sample as command

    command.sample(run, output, **options)


@main.command("run-stage")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the unit.")
def run_stage(run: Path, unit: str, ranks: int) -> None:
    """Make one unit of an existing RUN here and now, without any scheduler.

    Example: hpcddm run-stage runs/quickstart train/expert-02 --ranks 2
    """
    from hpcddm.commands import run_stage as command

    sys.exit(command.run_stage(run, unit, ranks))


if __name__ == "__main__":
    main()
