"""Words of `submit` and `sweep` about a submission before it happens, and where there is nothing to submit."""

from hpcddm.commands.typed import repeated
from hpcddm.errors import UserError
from hpcddm.launch.base import Launcher
from hpcddm.launch.submission import Decision
from hpcddm.next_step import NextStep
from hpcddm.pipeline import passed_over
from hpcddm.pipeline.inspect import CLUSTERS_PAGE
from hpcddm.pipeline.keys import CATALOG, INSPECT, REPORT
from hpcddm.pipeline.report import PAGE
from hpcddm.pipeline.shard import BROKEN
from hpcddm.printing import echo
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.site import Site


def announce(site: Site, run: RunDir, decision: Decision) -> None:
    """Print run, site and numbers of units, and what other sites make."""
    counts = f"{len(decision.complete)} units complete, {len(decision.to_run)} to run"
    if decision.active:
        counts += f", {len(decision.active)} in the queue or running"
    echo(f"run {run.root}   site {site.name}   {counts}")
    for line in lines_of_data(run):
        echo(line)
    _print_other_sites(decision, run)


def announce_code(launcher: Launcher) -> None:
    """Store the code that jobs will run; print its version, and a note where earlier jobs have another."""
    code, before = launcher.code.make(), launcher.code.others()
    where = f"{launcher.code.folder}, live: a change there changes what jobs run" if launcher.code.is_live else ""
    echo(f"code {code}   {where or f'kept in {launcher.run.code}/'}")
    if before:
        echo(f"note: earlier jobs were submitted with other code and keep theirs; the last was {before[0]}")


def _print_other_sites(decision: Decision, run: RunDir) -> None:
    if decision.elsewhere:
        sites = {site for key in decision.elsewhere if (site := decision.states[key].unit.site)}
        echo(f"elsewhere ({', '.join(sorted(sites))}): {', '.join(decision.elsewhere)}")
        for key, reason in decision.elsewhere.items():
            if reason:
                echo(f"{key} is here but does not fit: {reason}; fetch the right one, or remove the folder")
    for key, fault in decision.refused.items():
        echo(f"not submitted: {key}: {fault}")
    if decision.blocked and not decision.refused:
        first = next(iter(decision.blocked.values()))
        stages = dict.fromkeys(key.split("/")[0] for key in decision.blocked)
        echo(f"waiting for elsewhere: {', '.join(stages)}; copy {first} ... into {run.root}/train/ and submit again")


def require_no_refusal(decision: Decision, place: str = "") -> None:
    """Raise `UserError` for the first unit that is not made because of a link; place: words before it."""
    for key, fault in decision.refused.items():
        raise UserError(f"{place}{key}: {fault}; then repeat the command")


def print_nothing_to_do(decision: Decision, run: RunDir) -> None:
    """Print why nothing is submitted, and what comes next; raises `UserError` for a unit that a link keeps back."""
    require_no_refusal(decision)
    if decision.active:
        echo(f"{len(decision.active)} units are in the queue or running; nothing new to submit")
    elif decision.not_requested:
        reason = f"what was asked for is complete; {len(decision.not_requested)} units were not asked for"
        echo(NextStep(repeated(run, is_whole=True), reason))
    elif decision.elsewhere:
        echo("everything that belongs to this site is complete")
        _print_other_sites(decision, run)
    else:
        echo(f"everything is complete ({len(decision.complete)} units); nothing to submit")
    for line in lines_of_data(run):
        echo(line)
    report = manifest.read_if_usable(run.unit(REPORT))
    if report and REPORT in decision.complete:
        from hpcddm.commands.table import print_table

        print_table(report.results)
        echo(f"report {run.unit(REPORT) / PAGE}")
    elif INSPECT in decision.complete:
        echo(clusters_line(run))


def lines_of_data(run: RunDir) -> list[str]:
    """Say how many samples are broken, and what was passed over; none before the stage catalog is complete."""
    catalog = manifest.read_if_usable(run.unit(CATALOG))
    if catalog is None:
        return []
    broken, counts = catalog.results.get("broken", 0), catalog.results.get("passed_over", {})
    lines = [f"broken {broken:,}   all in {run.root}/shard/*/{BROKEN}"] * bool(broken)
    lines += [f"passed over   {line}" for line in passed_over.lines(counts)]
    return [*lines, f"passed over   all in {run.root}/shard/*/{passed_over.PASSED_OVER}"] if counts else lines


def clusters_line(run: RunDir) -> str:
    """Name the page about the clusters, and say how many warnings it has."""
    inspected = manifest.read_if_usable(run.unit(INSPECT))
    count = len(inspected.results.get("warnings", [])) if inspected else 0
    warnings = f", with {count} warning{'s' * (count > 1)}" if count else ""
    return f"clusters {run.unit(INSPECT) / CLUSTERS_PAGE}{warnings}"
