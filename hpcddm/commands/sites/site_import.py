"""The verb site import: takes an expert that another site has signed."""

from pathlib import Path

import click
from rich.table import Table

from hpcddm.collaboration.bundle_checks import (
    SignedBundle,
    is_imported,
    named,
    newer_bundle,
    open_bundle,
    plan_import,
)
from hpcddm.collaboration.bundle_import import import_bundle, remove_leftovers
from hpcddm.collaboration.imported_experts import agreed_versions
from hpcddm.commands.options import PATH, RUN
from hpcddm.commands.terminal import WITHOUT_LINES, make_table, print_table
from hpcddm.errors import ConfigError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo, printable
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.loading.last_command import resubmit_step
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs import group_permissions
from hpcddm.runs.import_records import accept_probe
from hpcddm.runs.lease import PATIENCE_SECONDS, lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import expert_of

MAX_REASON = 300
"""Most characters of a reason."""


@click.command("import")
@RUN
@click.argument("bundle", type=PATH)
@click.option(
    "--replace",
    "is_replaced",
    is_flag=True,
    help="Set an expert that is here aside, to superseded/, also for an older bundle.",
)
@click.option(
    "--accept-probe", "reason", metavar="REASON", help="Take it even if it fails the probe; the report shows why."
)
def site_import(run: RunDir, bundle: Path, is_replaced: bool, reason: str | None) -> None:
    """Take an expert that another site has signed into RUN.

    BUNDLE is the folder that the other site packed. Its signature, the key, the contract, every size and hash, and
    every tensor are checked, on a copy that nobody else can change; only then does the expert appear in RUN. The
    figures in its manifest are computed here. The next submit probes the expert on held-out images, before router and
    evaluation read it.

    \b
    Example: hpcddm site import runs/cells cells-expert-02
    Next:    hpcddm submit cells.yaml, when all experts are here
    """
    stored_experiment(run)
    group_permissions.prepare_writes(run.root)
    if reason is not None and (not reason.strip() or reason != printable(reason, MAX_REASON)):
        raise ConfigError(f"--accept-probe: name the reason in one line of at most {MAX_REASON} printable characters")
    signed = open_bundle(run, bundle)
    with lease(run.lock, "hpcddm site import", PATIENCE_SECONDS):
        remove_leftovers(run)
        newer = newer_bundle(run, signed)
        if is_imported(run, signed, is_replaced):
            echo(f"{signed.key}: bundle {signed.bundle.number} of {signed.bundle.site} is imported already")
        else:
            plan = plan_import(run, stored_experiment(run), signed, is_replaced)
            with click.progressbar(length=2 * signed.size, label=f"copying and checking {signed.key}") as bar:
                import_bundle(run, signed, plan, bar.update)
            print_table(_table(signed))
            if newer is not None:
                echo(f"{newer}: taken because of --replace")
        if reason is not None:
            accept_probe(run, signed.bundle, reason)
            echo(f"{signed.key}: taken even if it fails the probe, because: {reason}")
    states = survey_units(plan_units(stored_experiment(run)), run)
    experts = signed.contract.experts
    missing = {key: own for key, own in experts.items() if key not in states or states[key].state is not State.COMPLETE}
    reason = f"missing: {named(missing)}" if missing else "all experts of the contract are here"
    echo(step("hpcddm", "status", run.root, reason=reason) if missing else resubmit_step(run, reason))


def _table(signed: SignedBundle) -> Table:
    """Build the table of what was checked."""
    contract, bundle, entry = signed.contract, signed.bundle, signed.entry
    agreed = contract.sites[bundle.site]
    rows = {
        "signature": f"by {bundle.site}, key {signed.signer.fingerprint}, valid until {agreed.valid_until}",
        "contract": f"{contract.id}, revision {contract.revision}, signed by {contract.coordinator}",
        "expert": f"{signed.key} of {bundle.site}, bundle {bundle.number}",
        "recipe": f"its settings ({len(entry.settings)}) and inputs ({len(entry.inputs)}) are those of this run",
        "files": f"{format_bytes(signed.size)} in {', '.join(bundle.files)}: sizes and SHA-256 as signed",
        "tensors": f"{len(contract.table(signed.key))} in each file, {entry.parameters:,} values, all finite",
        "computed here": f"{entry.images:,} images, {entry.images * entry.flops_per_image:.3g} training FLOPs",
        f"word of {bundle.site}": _word(signed),
    }
    columns = ("checked", "result")
    table = make_table(columns, rows.items(), left=columns, **WITHOUT_LINES)
    table.columns[0].no_wrap = table.columns[1].no_wrap = False
    return table


def _word(signed: SignedBundle) -> str:
    word = signed.bundle.word
    parts = {
        "GPU-hours {}": word.gpu_hours,
        "GPUs {}": word.gpus,
        "kind {}": word.gpu,
        "ranks {}": word.ranks,
        "skipped steps {}": word.skipped_steps,
        "code {}": word.code,
    }
    said = [text.format(value) for text, value in parts.items() if value is not None]
    number, losses = expert_of(signed.key), word.probe_losses or []
    if isinstance(number, int) and number < len(losses) and losses[number]:
        said.append(f"loss of its own probe {min(losses[number]):.3g} to {max(losses[number]):.3g}")
    return ", ".join([*said, *agreed_versions(word, signed.contract)]) or "none"
