"""Arguments and options that several verbs have."""

from pathlib import Path

import click

from hpcddm.runs.run_dir import RunDir

PATH = click.Path(path_type=Path)
RUN = click.argument("run", type=lambda name: RunDir(Path(name)), metavar="RUN")
UNIT = click.argument("unit", metavar="STAGE/UNIT")
EXPERIMENT = click.argument("name", default="quickstart", metavar="[EXPERIMENT]")
OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
SITE = click.option(
    "--site",
    "site_name",
    default="auto",
    show_default=True,
    help="A site's name or YAML file; auto: Slurm, or here.",
)
RUN_DIR = click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")
TRUST = click.option(
    "--trust-run",
    is_flag=True,
    help="Execute the run's own copies of site and template, even if others wrote them.",
)
