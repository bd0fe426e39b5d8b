"""The command line: one verb per function; heavy imports wait until a verb needs them."""

import sys
from pathlib import Path

import click

from hpcddm import __version__, exit_codes
from hpcddm.errors import UserError

PATH = click.Path(path_type=Path)
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
            click.echo(f"error: {error.format_message()} See '{(error.ctx or context).command_path} --help'.", err=True)
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
@click.option("--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here.")
@click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
@click.option("--redo", multiple=True, metavar="STAGE", help="Make a stage anew; the old one moves to superseded/.")
@click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
@click.option("--wait", "and_wait", is_flag=True, help="Then wait as 'hpcddm wait' does, with its exit codes.")
def submit(
    experiment: str,
    overrides: tuple[str, ...],
    site: str,
    run_dir: Path | None,
    redo: tuple[str, ...],
    dry_run: bool,
    live: bool,
    and_wait: bool,
) -> None:
    """Run what is missing of EXPERIMENT: a name, or a YAML file.

    What is complete stays; the same command again continues. KEY=VALUE changes a setting of the
    experiment, for instance experts.training.images=30000.
    """
    from hpcddm.commands import submit as command

    sys.exit(command.submit(experiment, overrides, site, run_dir, redo, dry_run, live, and_wait))


@main.command()
@click.argument("run", type=PATH)
@click.option("--watch", is_flag=True, help="Show it anew every 5 seconds, until Ctrl-C or until all is complete.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--exit-code", is_flag=True, help="0 complete, 3 needs somebody, 4 the scheduler is silent, 5 under way.")
def status(run: Path, watch: bool, as_json: bool, exit_code: bool) -> None:
    """Show the state of every unit of RUN, and what to type next.

    Manifests count first, then the queue, then the units' own files: without a scheduler it works, too.
    """
    from hpcddm.commands import status as command

    sys.exit(command.status(run, as_json, watch, exit_code))


@main.command()
@click.argument("run", type=PATH)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="MINUTES", help="Default: for ever.")
def wait(run: Path, timeout: float | None) -> None:
    """Wait until RUN, or the sweep in that folder, is complete, or until nothing more goes on by itself.

    \b
    Ends with 0: complete; 3: not complete, and somebody has to act (hpcddm status says how); with --timeout
    also 5: jobs still wait or run; 4: the scheduler does not answer. Ctrl-C (130) leaves the jobs alone.
    Example: hpcddm submit fashion_mnist --site my-cluster && hpcddm wait runs/fashion_mnist && ./next.sh
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
    """Print the log of a unit of RUN, for instance train/expert-02."""
    from hpcddm.commands import logs as command

    command.logs(run, unit, attempt, rank, every, follow)


@main.command()
@click.argument("run", type=PATH)
@click.option("--records", "records_only", is_flag=True, help="From the run's own records, even where sacct answers.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def cost(run: Path, records_only: bool, as_json: bool) -> None:
    """Count the GPU-hours and CPU-hours of RUN per unit and attempt, wasted ones apart.

    From sacct, every execution of a requeued job included; where it does not answer, from the run's own records.
    """
    from hpcddm.commands import cost as command

    command.cost(run, records_only, as_json)


@main.command()
@click.argument("run", type=PATH)
@click.option(
    "--strategy",
    default="top-1",
    show_default=True,
    help="full, top-2, per-trajectory, sample-1, oracle, ..., or one model alone: expert-N, monolith, student.",
)
@click.option("--class", "name", metavar="NAME", help="A class's name or number. Default: all classes in turn.")
@click.option("--num-images", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Image i depends on (seed, i) only.")
@click.option("--steps", type=click.IntRange(min=1), help="Default: as in the evaluation.")
@click.option("--guidance", type=float, help="Default: as in the evaluation.")
@click.option("--solver", help="euler, heun, midpoint; for one model also ddim, and ddim,eta=1. Default as above.")
@click.option("--shift", type=float, help="Step spacing; above 1 more steps at high noise. Default as above.")
@click.option("--conversion", help="snr_matched or as_reported. Default as above.")
@click.option("--posteriors", type=click.Choice(["separate", "shared"]), help="Of the halves of guidance.")
@click.option("--output", type=PATH, default=Path("grid.png"), show_default=True)
def sample(run: Path, output: Path, **options: object) -> None:
    """Draw images with the trained networks of RUN into one picture."""
    from hpcddm.commands import sample as command

    command.sample(run, output, **options)


@main.command()
@click.argument("run", type=PATH)
@click.argument("units", nargs=-1, metavar="[STAGE/UNIT]...")
@click.option("--resource", "resources", multiple=True, metavar="NAME=VALUE", help="For these units, as minutes=120.")
@click.option("--site", help="A site's name or YAML file. Default: the site as the run last used it.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
def retry(run: Path, units: tuple[str, ...], resources: tuple[str, ...], site: str | None, live: bool) -> None:
    """Submit anew what failed, gave up, was cancelled or vanished, and what waits behind it.

    What is complete or in the queue stays; changed resources are kept for the next retry.
    """
    from hpcddm.commands import retry as command

    sys.exit(command.retry(run, units, resources, site, live))


@main.command()
@click.argument("run", type=PATH)
@click.argument("units", nargs=-1, metavar="[STAGE/UNIT]...")
@click.option("--now", is_flag=True, help="Do not wait until what runs has saved.")
def cancel(run: Path, units: tuple[str, ...], now: bool) -> None:
    """End the jobs of RUN, or of some of its units; trainings save before they leave.

    Waits for them as long as the site's signal_lead_seconds; the second Ctrl-C, like --now, ends them at once. Only
    jobs that carry a token of this run's journal are touched.
    """
    from hpcddm.commands import cancel as command

    command.cancel(run, units, now)


@main.command()
@click.argument("name", metavar="SWEEP")
@click.option("--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here.")
@click.option("--dir", "--run-dir", "folder", type=PATH, help="Default: sweeps/<its name>.")
@click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
@click.option("--table", "only_table", is_flag=True, help="Write and print the table of what is there; submit nothing.")
@click.option("--live", is_flag=True, help="Jobs run the checkout itself, not a snapshot of it: for its developers.")
def sweep(name: str, site: str, folder: Path | None, dry_run: bool, only_table: bool, live: bool) -> None:
    """Run what is missing of all settings of SWEEP, a name or a YAML file, and compare them.

    Each setting is a run of its own, DIR/LABEL; what several have in common is made once. The same command
    again shows the table, and runs the settings that were added to the file.
    """
    from hpcddm.commands import sweep as command

    sys.exit(command.sweep(name, site, folder, dry_run, only_table, live))


@main.command()
@click.argument("run", type=PATH)
@click.option("--yes", is_flag=True, help="Remove without asking; without it and without a terminal it only shows.")
def clean(run: Path, yes: bool) -> None:
    """Remove what RUN needs no more, after saying what and how much it is.

    \b
    That is superseded/ (what --redo replaced), logs of all attempts but the last (their records stay, for the
    costs), and training states of other settings. Outputs of complete units, units that are in a queue or
    running, and the journal are never touched.
    """
    from hpcddm.commands import clean as command

    sys.exit(command.clean(run, yes))


@main.command("continue-submission", hidden=True)
@click.argument("home", type=PATH)
def continue_submission(home: Path) -> None:
    """Submit what had no room in the queue; the last job of such a submission runs this."""
    from hpcddm.commands import continue_submission as command

    sys.exit(command.continue_submission(home))


@main.command("run-stage")
@click.argument("run", type=PATH)
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the unit.")
def run_stage(run: Path, unit: str, ranks: int) -> None:
    """Make one unit of an existing RUN here and now, without any scheduler.

    Example: hpcddm run-stage runs/quickstart train/expert-02 --ranks 2
    """
    from hpcddm.commands import run_stage as command

    sys.exit(command.run_stage(run, unit, ranks))


@main.command()
@click.argument("experiment", default="quickstart")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here.")
@click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
@click.option(
    "--flops-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Of one rank, where this machine is not like the site's.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(
    experiment: str,
    overrides: tuple[str, ...],
    site: str,
    run_dir: Path | None,
    flops_per_second: float | None,
    as_json: bool,
) -> None:
    """Say what EXPERIMENT will cost at a site: FLOPs, hours, slots, storage; nothing is submitted.

    Times come from --flops-per-second, else from the attempts of the run, else from a short measurement here.
    """
    from hpcddm.commands import plan as command

    command.plan(experiment, overrides, site, run_dir, flops_per_second, as_json)


@main.command()
@click.argument("source", type=PATH)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--like", required=True, metavar="EXPERIMENT", help="Whose denoiser it shall be: a name or a YAML file.")
@click.option("--output", type=PATH, default=Path("seed.safetensors"), show_default=True)
@click.option("--layout", default="auto", show_default=True, help="original_dit, sit, diffusers_dit or hpcddm.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For tensors that are new.")
@click.option("--keep-head", is_flag=True, help="Keep the last layer although it predicted something else.")
@click.option("--expert", type=int, help="Where experiments mix experts: whose settings count.")
def convert(source: Path, like: str, overrides: tuple[str, ...], output: Path, **options: object) -> None:
    """Make a start for the experts of EXPERIMENT from the weights in SOURCE.

    SOURCE is a .safetensors, .pt or .pth file, a diffusers folder, or a unit of a run, as runs/fm/train/monolith.
    What is kept, folded, reset or dropped is printed and stored with the weights. KEY=VALUE changes a setting.
    """
    from hpcddm.commands import convert as command

    command.convert(source, like, overrides, output, **options)


@main.command()
@click.argument("run", type=PATH)
@click.argument("unit", metavar="STAGE/UNIT")
@click.option("--output", type=PATH, required=True, help="A new folder.")
def export(run: Path, unit: str, output: Path) -> None:
    """Write a denoiser of RUN, as train/expert-02, train/monolith or distill/student, for stock diffusers."""
    from hpcddm.commands import export as command

    command.export(run, unit, output)


@main.command()
@click.argument("experiment", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--folder", type=PATH, help="Default: ~/.cache/hpcddm, or HPCDDM_CACHE.")
def prefetch(experiment: str | None, overrides: tuple[str, ...], folder: Path | None) -> None:
    """Fetch the pretrained weights of EXPERIMENT, or of everything, on a node with network.

    Every file is proven by its SHA-256. Jobs look into the same folder and never at the network.
    """
    from hpcddm.commands import prefetch as command

    command.prefetch(experiment, overrides, folder)


@main.command()
@click.option("--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here.")
@click.option(
    "--folder", type=PATH, default="runs", show_default=True, help="Where runs will lie: this file system is tried."
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="MINUTES")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def selftest(site: str, folder: Path, timeout: float, as_json: bool) -> None:
    """Try a site with a few jobs of some seconds: what works, what does not, and what to write into its file.

    Ends with 0 only when everything was checked and nothing failed. Ctrl-C cancels its jobs, and only those.
    """
    from hpcddm.commands import selftest as command

    sys.exit(command.selftest(site, folder, timeout, as_json))


@main.command("site-init")
@click.argument("name", required=False)
@click.option("--partition", help="Default: the cluster's default partition.")
@click.option("--output", type=PATH, help="Default: slurm/sites/NAME.yaml.")
def site_init(name: str | None, partition: str | None, output: Path | None) -> None:
    """Draft the file of a new site from what this cluster says about itself; NAME defaults to the cluster's."""
    from hpcddm.commands import site_init as command

    command.site_init(name, partition, output)


if __name__ == "__main__":
    main()
