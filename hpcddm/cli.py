"""Command line: one verb per function, whose imports wait until it is called."""

import sys
from pathlib import Path
from typing import Any

import click

from hpcddm import __version__, exit_codes
from hpcddm.cli_preparing import PATH, SITE, TRUST, convert, plan, prefetch, selftest, site_init
from hpcddm.errors import UserError
from hpcddm.printing import echo

EPILOG = """\b
Two commands do everything:
  make submit                 the whole pipeline, here or through Slurm
  make test                   everything that can be tested here
Further:
  hpcddm submit fashion_mnist --site my-cluster --run-dir runs/fm experts.training.images=480000
  hpcddm status runs/fm
  hpcddm sample runs/fm --strategy top-2 --class 3 --num-images 64 --seed 0 --output grid.png
"""


class Group(click.Group):
    """Prints the errors that a user can mend as one line."""

    def invoke(self, context: click.Context) -> object:
        """Run a verb; a `UserError` ends the process with its exit code."""
        try:
            return super().invoke(context)
        except UserError as error:
            echo(*f"error: {error}".split("\n"), err=True)
            sys.exit(error.exit_code)
        except click.UsageError as error:
            echo(f"error: {error.format_message()} See '{(error.ctx or context).command_path} --help'.", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted; the same command continues", err=True)
            sys.exit(exit_codes.INTERRUPTED)


@click.group(cls=Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train decentralised diffusion models: K isolated experts, a router, one ensemble."""


@main.command()
@click.argument("experiment", default="quickstart")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@SITE
@click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
@click.option("--redo", multiple=True, metavar="STAGE", help="Make a stage anew; the old one moves to superseded/.")
@click.option("--until", metavar="STAGE", help="The last stage to submit: 'inspect' ends before anything is trained.")
@click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
@click.option("--wait", "and_wait", is_flag=True, help="Then wait as 'hpcddm wait' does, with its exit codes.")
def submit(
    experiment: str,
    overrides: tuple[str, ...],
    site: str,
    run_dir: Path | None,
    redo: tuple[str, ...],
    until: str | None,
    dry_run: bool,
    live: bool,
    and_wait: bool,
) -> None:
    """Submit what is missing of EXPERIMENT, or run it here.

    EXPERIMENT is the name of an experiment or a YAML file. Complete units stay, so the same command continues a
    run. KEY=VALUE changes a setting of the experiment.

    \b
    Example: hpcddm submit fashion_mnist --site my-cluster experts.training.images=30000
    Next:    hpcddm status runs/fashion_mnist
    """
    from hpcddm.commands import submit as command

    sys.exit(command.submit(experiment, overrides, site, run_dir, redo, dry_run, live, and_wait, until))


@main.command()
@click.argument("run", type=PATH)
@click.option("--watch", is_flag=True, help="Show it anew every 5 seconds, until Ctrl-C or until all is complete.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--exit-code", is_flag=True, help="0 complete, 3 needs somebody, 4 the scheduler is silent, 5 under way.")
def status(run: Path, watch: bool, as_json: bool, exit_code: bool) -> None:
    """Show the state of every unit of RUN, and the next command.

    A manifest counts first, then the queue, then the unit's own files, so it also works without a scheduler.

    \b
    Example: hpcddm status runs/fashion_mnist --watch
    Next:    the last line names the command
    """
    from hpcddm.commands import status as command

    sys.exit(command.status(run, as_json, watch, exit_code))


@main.command()
@click.argument("run", type=PATH)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="MINUTES", help="Default: for ever.")
def wait(run: Path, timeout: float | None) -> None:
    """Wait until RUN is complete, or needs the user.

    RUN may also be the folder of a sweep. One that was submitted with --until is complete when that stage is. The user
    is needed when nothing more goes on by itself.

    \b
    Exit codes: 0 complete; 3 not complete, and the user has to act; with --timeout also 5 (jobs still wait or run)
    and 4 (the scheduler does not answer). Ctrl-C (130) leaves the jobs alone.
    Example: hpcddm submit fashion_mnist --site my-cluster && hpcddm wait runs/fashion_mnist && ./next.sh
    Next:    after code 3: hpcddm status runs/fashion_mnist
    """
    from hpcddm.commands import wait as command

    sys.exit(command.wait(run, timeout))


@main.command()
@click.argument("run", type=PATH)
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--attempt", type=int, help="Default: the last one.")
@click.option("--all", "every", is_flag=True, help="All attempts, oldest first, each with how it ended.")
@click.option("--follow", is_flag=True, help="Go on with what is written, over all attempts, until the unit has ended.")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True)
def logs(run: Path, unit: str, attempt: int | None, every: bool, follow: bool, rank: int) -> None:
    """Print the log of a unit of RUN.

    \b
    Example: hpcddm logs runs/fashion_mnist train/expert-02 --follow
    Next:    after a failure is mended: hpcddm retry runs/fashion_mnist
    """
    from hpcddm.commands import logs as command

    command.logs(run, unit, attempt, rank, every, follow)


@main.command()
@click.argument("run", type=PATH)
@click.option("--records", "records_only", is_flag=True, help="From the run's own records, even where sacct answers.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def cost(run: Path, records_only: bool, as_json: bool) -> None:
    """Count the GPU-hours and CPU-hours of RUN.

    They are listed per unit and attempt, with the wasted share. The numbers are those of sacct, every execution of a
    requeued job included, else those of the run's own records.

    \b
    Example: hpcddm cost runs/fashion_mnist
    Next:    hpcddm clean runs/fashion_mnist   removes what is not needed any more
    """
    from hpcddm.commands import cost as command

    command.cost(run, records_only, as_json)


@main.command()
@click.argument("run", type=PATH)
@click.option(
    "--strategy",
    default="top-1",
    show_default=True,
    help="full, top-2, sample-1, oracle, ..., or one model alone: expert-N, one that joined, monolith, student.",
)
@click.option("--class", "name", metavar="NAME", help="A class's name or number. Default: all classes in turn.")
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="A sentence; repeat it for several in turn.")
@click.option("--num-images", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Image i depends on (seed, i) only.")
@click.option("--steps", type=click.IntRange(min=1), help="Default: as in the evaluation.")
@click.option("--guidance", type=float, help="Default: as in the evaluation.")
@click.option("--solver", help="euler, heun, midpoint; for one model also ddim, and ddim,eta=1. Default as above.")
@click.option("--shift", type=float, help="Step spacing; above 1 more steps at high noise. Default as above.")
@click.option("--conversion", help="snr_matched or as_reported. Default as above.")
@click.option("--posteriors", type=click.Choice(["separate", "shared"]), help="Of the halves of guidance.")
@click.option("--snapshot", type=int, metavar="IMAGES", help="Weights after so many images. Default: as above.")
@click.option("--sigma-rel", type=float, help="An average of this relative length, of those of power_ema.")
@click.option("--output", type=PATH, default=Path("grid.png"), show_default=True)
def sample(run: Path, output: Path, **options: Any) -> None:
    """Draw images with the trained networks of RUN into one PNG.

    \b
    Example: hpcddm sample runs/fashion_mnist --strategy top-2 --class 3 --steps 25 --output threes.png
    Next:    compare with one model alone: --strategy monolith
    """
    from hpcddm.commands import sample as command

    command.sample(run, output, **options)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN...")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Also write what was computed.")
def concepts(runs: tuple[Path, ...], json_file: Path | None) -> None:
    """Tell which frequency of a concept counts.

    Is a concept drawn well because it is frequent in all the data, or inside the expert that serves it? Several RUNs,
    which differ in their seed, are fitted together.

    \b
    Example: hpcddm concepts runs/emoji-0 runs/emoji-1 runs/emoji-2 --json concepts.json
    Next:    the page and the proposal that it names for one run
    """
    from hpcddm.commands import concepts as command

    command.concepts(runs, json_file)


@main.command()
@click.argument("run", type=PATH)
@click.argument("units", nargs=-1, metavar="[STAGE[/UNIT]]...")
@click.option("--resource", "resources", multiple=True, metavar="NAME=VALUE", help="For these units, as minutes=120.")
@click.option("--site", "site_name", help="A site's name or YAML file. Default: the site as you last used it here.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
@TRUST
def retry(run: Path, units: tuple[str, ...], **options: Any) -> None:
    """Submit failed units of RUN again.

    These are units that failed, gave up, were cancelled or vanished, and the units that wait for them; those of a stage
    where only it is named. Units that are complete or in the queue stay. Changed resources are kept for the next retry.

    \b
    Example: hpcddm retry runs/fashion_mnist train/expert-02 --resource memory_gb=16
    Next:    hpcddm status runs/fashion_mnist
    """
    from hpcddm.commands import retry as command

    sys.exit(command.retry(run, units, **options))


@main.command()
@click.argument("run", type=PATH)
@click.argument("units", nargs=-1, metavar="[STAGE[/UNIT]]...")
@click.option("--now", is_flag=True, help="Do not wait until what runs has saved.")
def cancel(run: Path, units: tuple[str, ...], now: bool) -> None:
    """Cancel the jobs of RUN, of some of its units, or of whole stages.

    Trainings save before they exit. The command waits for them as long as the site's signal_lead_seconds; a second
    Ctrl-C, like --now, ends them at once. Only jobs that carry a token of this run's journal are touched.

    \b
    Example: hpcddm cancel runs/fashion_mnist train/expert-02
    Next:    hpcddm retry runs/fashion_mnist   submits them anew
    """
    from hpcddm.commands import cancel as command

    command.cancel(run, units, now)


@main.command()
@click.argument("name", metavar="SWEEP")
@SITE
@click.option("--dir", "--run-dir", "folder", type=PATH, help="Default: sweeps/<its name>.")
@click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
@click.option("--table", "only_table", is_flag=True, help="Write and print the table of what is there; submit nothing.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
@click.option(
    "--only",
    multiple=True,
    metavar="KEY=VALUE|LABEL",
    help="Submit the settings with this value, or this label, alone; may be repeated.",
)
def sweep(
    name: str, site: str, folder: Path | None, dry_run: bool, only_table: bool, live: bool, only: tuple[str, ...]
) -> None:
    """Submit all settings of SWEEP, and compare them.

    SWEEP is the name of a sweep or a YAML file. Each setting is a run of its own, DIR/LABEL; units that several
    settings share are made once.

    \b
    Example: hpcddm sweep guidance --site my-cluster
    Next:    the same command shows the table, and runs the settings that were added to the file
    """
    from hpcddm.commands import sweep as command

    sys.exit(command.sweep(name, site, folder, dry_run, only_table, live, only=only))


@main.command()
@click.argument("run", type=PATH)
@click.option("--yes", is_flag=True, help="Remove without asking; without it and without a terminal it only shows.")
def clean(run: Path, yes: bool) -> None:
    """Remove files that RUN does not need any more; their kinds and sizes are printed first.

    \b
    These are superseded/ (outputs that --redo replaced), logs of all attempts but the last (their records stay, for
    the costs), and training states of other settings. Outputs of complete units, units in a queue or running, and
    the journal are never touched.
    Example: hpcddm clean runs/fashion_mnist
    Next:    hpcddm status runs/fashion_mnist
    """
    from hpcddm.commands import clean as command

    sys.exit(command.clean(run, yes))


@main.command("continue-submission", hidden=True)
@click.argument("home", type=PATH)
@TRUST
def continue_submission(home: Path, trust_run: bool) -> None:
    """Submit what had no room in the queue; the last job of such a submission runs this."""
    from hpcddm.commands import continue_submission as command

    sys.exit(command.continue_submission(home, trust_run))


@main.command("run-stage")
@click.argument("run", type=PATH)
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the unit.")
def run_stage(run: Path, unit: str, ranks: int) -> None:
    """Run one unit of RUN here, without any scheduler.

    \b
    Example: hpcddm run-stage runs/quickstart train/expert-02 --ranks 2
    Next:    hpcddm logs runs/quickstart train/expert-02
    """
    from hpcddm.commands import run_stage as command

    sys.exit(command.run_stage(run, unit, ranks))


@main.command()
@click.argument("run", type=PATH)
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--output", type=PATH, required=True, help="A new folder.")
def export(run: Path, unit: str, output: Path) -> None:
    """Write a denoiser of RUN as a folder that stock diffusers loads.

    \b
    Example: hpcddm export runs/fashion_mnist train/expert-02 --output expert-02   (or distill/student)
    Next:    README.txt in that folder has the lines that load it
    """
    from hpcddm.commands import export as command

    command.export(run, unit, output)


for prepared in (plan, convert, prefetch, selftest, site_init):
    main.add_command(prepared)


if __name__ == "__main__":
    main()
