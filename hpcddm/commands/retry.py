"""The verb retry: submits anew units that were submitted once, are not complete and are in no queue."""

from pathlib import Path
from typing import Any

import click

from hpcddm.commands.announcements import require_no_refusal
from hpcddm.commands.naming import units_named
from hpcddm.commands.options import LIVE, RUN, TRUST
from hpcddm.commands.submit import submit_missing
from hpcddm.commands.trusting import stored_start
from hpcddm.commands.typed import stored
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.config.strict_yaml import parse_value
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.launch.base import launcher_of
from hpcddm.launch.content_hashes import with_content
from hpcddm.launch.continuation import Rest
from hpcddm.launch.load_site import load_site
from hpcddm.launch.submission import Decision, active_units, decide
from hpcddm.pipeline.plan import needed_by, plan
from hpcddm.runs.journal import Journal
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import is_sweep, out_of_run, stored_experiment
from hpcddm.runs.unit_keys import CATALOG


@click.command()
@RUN
@click.argument("units", nargs=-1, metavar="[STAGE[/UNIT]]...")
@click.option("--resource", "resources", multiple=True, metavar="NAME=VALUE", help="For these units, as minutes=120.")
@click.option("--site", "site_name", help="A site's name or YAML file. Default: the site as you last used it here.")
@LIVE
@TRUST
def retry(
    root: Path,
    units: tuple[str, ...],
    resources: tuple[str, ...],
    site_name: str | None,
    live: bool,
    trust_run: bool,
) -> int:
    """Submit failed units of RUN again.

    These are units that failed, gave up, were cancelled or vanished, and the units that wait for them; those of a stage
    where only it is named. Units that are complete or in the queue stay. Changed resources are kept for the next retry.

    \b
    Example: hpcddm retry runs/fashion_mnist train/expert-02 --resource memory_gb=16
    Next:    hpcddm status runs/fashion_mnist
    """
    run = RunDir(root)
    experiment = out_of_run(stored_experiment(run), run)
    named = units_named(root, units, [unit.key for unit in plan(experiment)])
    site, parts = (load_site(site_name), None) if site_name else stored_start(_last_site(run), run, trust_run)
    # What failed may have been mended in the images, or in a file that the experiment names.
    experiment = with_content(experiment, run)
    selected = set(named or (key for submission in Journal(run.journal).submissions() for key in submission.units))
    if CATALOG in selected:
        # A tar that was added has units that were never submitted.
        selected |= {key for unit in plan(experiment) if unit.key == CATALOG for key in unit.inputs}
    launcher = launcher_of(site, run)
    active = active_units(run, launcher)
    decision = decide(experiment, run, launcher, only=selected, active=dict(active))
    failed = [unit.key for unit in decision.to_run if unit.key in selected and unit.key not in active]
    # Of a stage, those that failed are meant.
    for key in (key for key in named if key in units or not failed):
        if key not in failed:
            raise UserError(f"{key}: {_why_not(key, decision)}")
    if not failed:
        require_no_refusal(decision)
        reason = "nothing to retry: what was submitted is complete, or in the queue"
        echo(step("hpcddm", "status", root, reason=reason))
        return 0
    site = _changed(site, resources, failed)
    echo(f"again: {', '.join(failed)}")
    # What waits behind them goes along, up to the last stage that was asked for.
    typed = stored(run)
    until = typed.until if typed else None
    if until and not needed_by(until, plan(experiment)).issuperset(failed):
        until = None
    return submit_missing(experiment, site, run, only=failed, live=live, parts=parts, until=until)


def continue_run(run: RunDir, rest: Rest, live: bool, trust_run: bool) -> int:
    """Submit what an earlier submission had no room for; return the exit code. live, trust_run: as those of `retry`."""
    experiment = out_of_run(stored_experiment(run), run)
    site, parts = stored_start(rest.site, run, trust_run, in_job=True)
    return submit_missing(experiment, site, run, only=rest.units, live=live, parts=parts, rest=rest, until=rest.until)


def _last_site(run: RunDir) -> str:
    """Return the name of the site from which the run was submitted; raises `ConfigError`."""
    names = {submission.site for submission in Journal(run.journal).submissions() if run.site(submission.site).exists()}
    if len(names) > 1:
        raise ConfigError(f"{run.root}: submitted from {', '.join(sorted(names))}; say with --site from which now")
    if not names and is_sweep(RunDir(run.root.resolve().parent)):
        raise ConfigError(f"{run.root}: a setting of a sweep; the same hpcddm sweep submits anew what failed")
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
    return "it was recalled and goes along with what it reads; name that"
