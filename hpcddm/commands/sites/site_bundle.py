"""The verb site bundle: packs and signs an expert for another site."""

from contextlib import suppress
from pathlib import Path

import click

from hpcddm.collaboration.bundle_making import make_bundle
from hpcddm.commands.job_costs import list_job_costs
from hpcddm.commands.options import PATH, RUN, UNIT
from hpcddm.commands.sites.site_key import SIGN, own_key
from hpcddm.commands.terminal import WITHOUT_LINES, make_table, print_table
from hpcddm.errors import UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.evaluation.expert_probe import ProbeLosses
from hpcddm.exchange.bundle import SiteWord
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.submission import stored_site
from hpcddm.runs import group_permissions, manifest, provenance
from hpcddm.runs.files import PROBE_FILE
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import probe_key


@click.command("bundle")
@RUN
@UNIT
@SIGN
@click.option("--output", type=PATH, required=True, help="A new folder.")
def site_bundle(run: RunDir, unit: str, key: Path | None, output: Path) -> None:
    """Pack and sign an expert of RUN for the other sites.

    The folder holds the weights that the contract wants, and one signed list of them with the loss curve. It holds no
    names of users and machines, no paths, and nothing of the run's manifests. Of hours, GPUs and versions it tells
    what the contract asks for. Packing the same weights again gives the same number; others get the next one.

    \b
    Example: hpcddm site bundle runs/cells train/expert-02 --output cells-expert-02
    Next:    send the folder by any means; the other site imports it
    """
    experiment = stored_experiment(run)
    group_permissions.prepare_writes(run.root)
    present = manifest.read_if_usable(run.unit(unit))
    word = SiteWord() if present is None else site_word(run, unit, present)
    bundle, signer = make_bundle(run, experiment, unit, own_key(key), output, word)
    files = ((name, format_bytes(file.size), file.sha256) for name, file in bundle.files.items())
    print_table(make_table(("file", "size", "SHA-256"), files, ("file", "SHA-256"), **WITHOUT_LINES))
    if word.probe_losses is None and experiment.experts.probe is not None:
        reason = f"note: {probe_key(unit)} is not complete, so the bundle says nothing of it"
        echo(step("hpcddm", "status", run.root, reason=reason))
    echo(
        f"{output}: bundle {bundle.number} of {unit}, by {bundle.site}, signed with the key {signer.fingerprint}",
        f"send {output}/ to the other sites; 'hpcddm site verify' tells there who signed it, and whether it is whole",
    )


def site_word(run: RunDir, key: str, made: Manifest) -> SiteWord:
    """Return what only this site can say of a training, from its records; it names no person, machine or path.

    Args:
        run: The run.
        key: The unit, as `stage/unit`.
        made: Its manifest.
    """
    spent = [job_cost for job_cost in list_job_costs(run, []) if job_cost.unit == key]
    gpus = spent[-1].gpus if spent else None
    versions = {name: made.record.get(name) for name in ("hpcddm", *provenance.environment())}
    return SiteWord(
        gpu_hours=round(sum(job_cost.gpu_hours for job_cost in spent), 4) if spent else None,
        gpu=_gpu_kind(run, key) if gpus else None,
        gpus=gpus,
        ranks=made.record.get("world_size"),
        skipped_steps=made.results.get("skipped_steps"),
        code=made.record.get("code"),
        versions={name: version for name, version in versions.items() if isinstance(version, str)},
        probe_losses=_probe_losses(run, key),
    )


def _probe_losses(run: RunDir, key: str) -> list[list[float]] | None:
    """Return the losses of this site's own probe of an expert; None if that is not complete."""
    folder = run.unit(probe_key(key))
    if manifest.read_if_usable(folder) is None:
        return None
    probe: ProbeLosses = manifest.read_verified_json(folder, PROBE_FILE, ProbeLosses)
    return [[float(f"{loss:.6g}") for loss in of_cluster if loss is not None] for of_cluster in probe.losses]


def _gpu_kind(run: RunDir, key: str) -> str | None:
    """Return the kind of GPU that the site requested for a unit; None if it named none."""
    sites = [submission.site for submission in submissions_of(run) if key in submission.units]
    with suppress(UserError):
        return stored_site(sites[-1], run).resources_for(*key.split("/")).gpu_type if sites else None
    return None
