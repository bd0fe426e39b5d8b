"""The verb publish: an ensemble as one folder that opens anywhere, without its run."""

from pathlib import Path

import click

from hpcddm.commands.options import PATH, RUN
from hpcddm.commands.sites.site_key import own_key
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import echo
from hpcddm.exchange import ssh_keys
from hpcddm.files.atomic import free_bytes, nearest_existing
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.publishing import published_units
from hpcddm.publishing.published_units import Publication
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.unit_keys import expert_keys

HERE = "~/.ssh/hpcddm_ed25519"


@click.command()
@RUN
@click.option("--output", type=PATH, required=True, help="A new folder.")
@click.option(
    "--strategies", metavar="NAMES", help="With commas: top-1,top-2,monolith.  [default: those of the report]"
)
@click.option("--experts", metavar="NUMBERS", help="With commas: 0,1,3.  [default: all]")
@click.option("--without", multiple=True, metavar="UNIT", help="An expert to leave out; repeat it for several.")
@click.option("--bf16", "is_bf16", is_flag=True, help="Halve the weights; only samples of bf16 trainings stay.")
@click.option("--with-encoders", "has_encoders", is_flag=True, help="Copy the public weights of autoencoder and text.")
@click.option("--license", "license_id", metavar="ID", help="As the hub has it, such as cc-by-4.0.")
@click.option("--terms", metavar="TEXT", help="Terms of the data; those of a contract must be repeated.")
@click.option(
    "--sign",
    "key",
    type=PATH,
    is_flag=False,
    flag_value=HERE,
    metavar="[KEY]",
    help=f"Sign with a key, by default {HERE}.",
)
def publish(
    run: RunDir,
    output: Path,
    strategies: str | None,
    experts: str | None,
    without: tuple[str, ...],
    is_bf16: bool,
    has_encoders: bool,
    license_id: str | None,
    terms: str | None,
    key: Path | None,
) -> None:
    """Write the ensemble of RUN to a folder that opens anywhere.

    The folder holds averaged weights, router, calibration, partition, class names and a model card, and neither images
    nor paths of the run. 'hpcddm sample FOLDER' draws the same bits as the run. Nothing is uploaded:
    docs/publishing.md has the command that does.

    \b
    Example: hpcddm publish runs/fashion_mnist --output fashion-mnist-ddm --license cc-by-4.0 --sign
    Next:    hpcddm sample fashion-mnist-ddm
    """
    experiment = with_absolute_paths(stored_experiment(run), run)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--output {output}: is not empty; name a new folder")
    left_out = list(dict.fromkeys([*without, *_others(experts, expert_keys(experiment))]))
    asked_for = [name.strip() for name in strategies.split(",")] if strategies else None
    chosen = list(dict.fromkeys(asked_for or published_units.default_strategies(experiment)))
    if not chosen:
        raise ConfigError("--strategies: all strategies of the run read clusters of images; name others, such as top-1")
    units, lists = published_units.select_units(run, experiment, chosen, left_out)
    agreed_license, agreed_terms = published_units.agreed_terms(run, license_id, terms)
    publication = Publication(
        strategies=chosen,
        units=units,
        without=left_out,
        lists=lists,
        license=agreed_license,
        terms=agreed_terms,
        is_bf16=is_bf16,
        has_encoders=has_encoders,
        signer=None if key is None else _signer(key),
    )
    needed = published_units.size_of(run, experiment, publication)
    free = free_bytes(nearest_existing(output))
    echo(f"{output}: {len(units)} networks, at least {format_bytes(needed)} of {format_bytes(free)} that are free")
    if needed > free:
        raise ConfigError(f"--output {output}: has {format_bytes(free)} free, and {format_bytes(needed)} are needed")
    from hpcddm.publishing.making import publish as write_folder

    document = write_folder(run, experiment, publication, output, lambda part: echo(f"  {part}"))
    signed = f", signed with {publication.signer}" if publication.signer else ""
    echo(f"{output}: {len(document.networks)} networks, strategies {', '.join(document.strategies)}{signed}")


def _signer(key: Path) -> Path:
    """Return the private key that signs; raises `UserError` now, and not after hours, if it cannot be used."""
    signer = own_key(None if str(key) == HERE else key)
    ssh_keys.read_public(signer)
    return signer


def _others(numbers: str | None, keys: list[str]) -> list[str]:
    """Return the experts that are not among numbers with commas between them."""
    if numbers is None:
        return []
    try:
        chosen = {dict(enumerate(keys))[int(number)] for number in numbers.split(",")}
    except (ValueError, KeyError):
        raise ConfigError(f"--experts {numbers}: needs numbers of experts, 0 to {len(keys) - 1}, with commas") from None
    return [key for key in keys if key not in chosen]
