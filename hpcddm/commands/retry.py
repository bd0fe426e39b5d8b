"""The verb retry: resubmits units that were submitted before, are not complete and are not in a queue."""

from typing import Any

import click

from hpcddm.commands.options import RUN, TRUST, matching_units
from hpcddm.commands.submit import submit_missing
from hpcddm.commands.submit_messages import require_no_refusal
from hpcddm.commands.trusted_settings import trusted_site_and_template
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.config.strict_yaml import parse_value
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.launch.base import create_launcher
from hpcddm.launch.decision import Decision
from hpcddm.launch.load_site import load_site
from hpcddm.launch.submission import active_units, decide_units
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.last_command import repaired_site_file, stored_command
from hpcddm.pipeline.unit_graph import needed_by, plan_units
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep, stored_experiment, with_absolute_paths
from hpcddm.runs.unit_keys import CATALOG


@click.command()
@RUN
@click.argument("units", nargs=-1, metavar="[STAGE[/UNIT]]...")
@click.option("--resource", "resources", multiple=True, metavar="NAME=VALUE", help="For these units, e.g. minutes=120.")
@click.option("--site", "site_name", help="A site's name or YAML file. Default: the one that you last used here.")
@TRUST
def retry(
    run: RunDir, units: tuple[str, ...], resources: tuple[str, ...], site_name: str | None, trust_run: bool
) -> int:
    """Submit failed units of RUN again.

    These are units that failed, gave up, were cancelled or vanished, and the units that wait for them. The name of a
    stage selects its units. Complete or queued units do not change. The next retry keeps changed resources.

    \b
    Example: hpcddm retry runs/fashion_mnist train/expert-02 --resource memory_gb=16
    Next:    hpcddm status runs/fashion_mnist
    """
    experiment = with_absolute_paths(stored_experiment(run), run)
    named = matching_units(run.root, units, [unit.key for unit in plan_units(experiment)])
    site, parts = (load_site(site_name), None) if site_name else _last_site_and_template(run, trust_run)
    # The user may have fixed the images, or a file that the experiment names.
    experiment = with_content_hashes(experiment, run)
    selected = set(named or (key for submission in Journal(run.journal).submissions() for key in submission.units))
    if CATALOG in selected:
        # A tar that was added has units that were never submitted.
        selected |= {key for unit in plan_units(experiment) if unit.key == CATALOG for key in unit.inputs}
    launcher = create_launcher(site, run)
    active = active_units(run, launcher)
    decision = decide_units(experiment, run, launcher, only=selected, active=dict(active))
    failed = [unit.key for unit in decision.to_run if unit.key in selected and unit.key not in active]
    # The name of a stage selects its failed units.
    for key in (key for key in named if key in units or not failed):
        if key not in failed:
            raise UserError(f"{key}: {_why_not(key, decision)}")
    if not failed:
        require_no_refusal(decision)
        reason = "nothing to retry: all submitted units are complete or in the queue"
        echo(step("hpcddm", "status", run.root, reason=reason))
        return 0
    site = _changed(site, resources, failed)
    echo(f"again: {', '.join(failed)}")
    # Units that wait for them are submitted, too, up to the last requested stage.
    typed = stored_command(run)
    until = typed.until if typed else None
    if until and not needed_by(until, plan_units(experiment)).issuperset(failed):
        until = None
    return submit_missing(experiment, site, run, only=failed, parts=parts, until=until)


def _last_site_and_template(run: RunDir, trust_run: bool) -> tuple[Site, dict[str, str]]:
    """Return site and template of the last submission; the site as its file is now, if the user has repaired it."""
    name = _last_site(run)
    site, parts = trusted_site_and_template(name, run, trust_run)
    if (path := repaired_site_file(run, name)) is None:
        return site, parts
    repaired = load_site(str(path))
    if repaired.name != site.name:
        text = f"{path} is now that of another site, {repaired.name}; this retry uses the run's copy of {site.name}"
        echo(step("hpcddm", "retry", run.root, "--site", path, reason=text))
        return site, parts
    echo(f"{path} was written since the last submission, and counts as it is now, without resources of earlier retries")
    return repaired, parts


def _last_site(run: RunDir) -> str:
    """Return the name of the site from which the run was submitted; raises `ConfigError`."""
    names = {submission.site for submission in Journal(run.journal).submissions() if run.site(submission.site).exists()}
    if len(names) > 1:
        raise ConfigError(f"{run.root}: submitted from {', '.join(sorted(names))}; choose one with --site")
    if not names and is_sweep(RunDir(run.root.resolve().parent)):
        raise ConfigError(f"{run.root}: a setting of a sweep; the same hpcddm sweep resubmits failed units")
    if not names:
        raise ConfigError(f"{run.root}: nothing was submitted from here; hpcddm submit starts a run")
    return names.pop()


def _changed(site: Site, resources: tuple[str, ...], keys: list[str]) -> Site:
    """Return the site with other resources for some units; raises `ConfigError`."""
    changes: dict[str, Any] = {}
    for text in resources:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--resource {text}: needs NAME=VALUE, for instance minutes=120")
        changes[name] = parse_value(name, value, f"--resource {text}")
    if not changes:
        return site
    stages = site.stages | {key: site.stages.get(key, {}) | changes for key in keys}
    return validate(Site, site.model_dump(mode="json") | {"stages": stages}, "--resource")


def _why_not(key: str, decision: Decision) -> str:
    if key in decision.complete:
        return "it is complete; nothing to retry"
    if key in decision.active:
        return "it is in the queue or running; cancel it before it is retried"
    if key in decision.elsewhere:
        return f"it belongs to site {decision.states[key].unit.site}; retry it there"
    if key in decision.refused:
        return decision.refused[key]
    if key in decision.blocked:
        return f"it reads {decision.blocked[key]}, which is not complete; name that, too, or none to retry all"
    return "its job was recalled with the units that it reads; name those"
