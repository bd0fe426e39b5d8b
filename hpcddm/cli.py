"""Command line: a table of verbs. Each verb is a file in `commands`, and is imported when it is called."""

import sys

import click

from hpcddm import __version__
from hpcddm.commands.verb_group import VerbGroup
from hpcddm.errors import ExitCode, UserError
from hpcddm.errors.printing import echo

VERBS = (
    *("submit", "status", "wait", "logs", "retry", "cancel", "cost", "clean"),
    *("sample", "evaluate", "publish", "export", "concepts", "sweep"),
    *("data", "plan", "prefetch", "convert", "site", "selftest", "run-unit"),
)
HIDDEN = ("continue-submission",)
EPILOG = """\b
Two commands do everything:
  make submit                 the whole pipeline, here or through Slurm
  make test                   everything that can be tested here
Further:
  hpcddm submit fashion_mnist --site my-cluster --run-dir runs/fm experts.training.images=480000
  hpcddm status runs/fm
  hpcddm sample runs/fm --strategy top-2 --class "Ankle boot" --num-images 64 --seed 0 --output grid.png
"""


class Group(VerbGroup):
    """Group of all verbs; it prints errors that a user can fix as one line."""

    def invoke(self, context: click.Context) -> None:
        """Run a verb and exit with the code that it returns, or with that of its `UserError`."""
        try:
            code = super().invoke(context)
        except UserError as error:
            echo(*f"error: {error}".split("\n"), err=True)
            code = error.exit_code
        except click.UsageError as error:
            echo(f"error: {error.format_message()} See '{(error.ctx or context).command_path} --help'.", err=True)
            code = error.exit_code
        except KeyboardInterrupt:
            click.echo("interrupted; the same command continues", err=True)
            code = ExitCode.INTERRUPTED
        sys.exit(code or ExitCode.DONE)


@click.group(
    cls=Group,
    package="hpcddm.commands",
    verbs=VERBS,
    hidden=HIDDEN,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Train decentralised diffusion models: K isolated experts, a router, one ensemble."""


if __name__ == "__main__":
    main()
