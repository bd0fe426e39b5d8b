"""Words of `submit` and `sweep` about a submission before it happens, and where there is nothing to submit."""

from collections.abc import Collection, Container

from hpcddm.collaboration.imported_experts import import_commands
from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.errors.next_step import NextStep, step
from hpcddm.errors.printing import echo
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.launch.base import Launcher
from hpcddm.launch.decision import Decision
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.loading.last_command import repeat_commands, resubmit_step
from hpcddm.runs import manifest, passed_over
from hpcddm.runs.files import BROKEN, CLUSTERS_PAGE, KNOWN_METRICS, PAGE, PASSED_OVER
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG, CLUSTER_REPORT, REPORT, stage_of

COMPARE = "compare"
"""Stage that computes the metrics."""


def announce(site: Site, run: RunDir, decision: Decision) -> None:
    """Print run, site and numbers of units, and what other sites make."""
    counts = f"{len(decision.complete)} units complete, {len(decision.to_run)} to run"
    if decision.active:
        counts += f", {len(decision.active)} in the queue or running"
    echo(f"run {run.root}   site {site.name}   {counts}")
    echo(*data_lines(run, decision.complete))
    _print_other_sites(decision, run)


def announce_code(launcher: Launcher) -> None:
    """Store the code that jobs will run; print its version, and a note where earlier jobs have another."""
    code, before = launcher.code.ensure(), launcher.code.others()
    echo(f"code {code}   kept in {launcher.run.code}/")
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
    _print_blocked(decision, run)


def _print_blocked(decision: Decision, run: RunDir) -> None:
    """Print what waits for units of other sites, and for units that are not submitted now, with the next step."""
    waiting: dict[str, list[str]] = {}
    for key in decision.blocked:
        root = key
        while root in decision.blocked:
            root = decision.blocked[root]
        waiting.setdefault(root, []).append(key)
    stages = {root: list(dict.fromkeys(key.split("/")[0] for key in keys)) for root, keys in waiting.items()}
    for root in (root for root in waiting if root in decision.elsewhere):
        place = run.unit(root).parent
        reason = f"waiting for elsewhere: {', '.join(stages[root])}"
        if signed := import_commands(run, [root]):
            commands = (*signed, *repeat_commands(run))
            echo(NextStep(commands, f"{reason}; fetch the bundle of {root}"))
        else:
            echo(resubmit_step(run, f"{reason}; copy {root} ... into {place}/"))
    left = [root for root in waiting if root not in decision.elsewhere and root not in decision.refused]
    if not left:
        return
    read = {key for blocked in decision.blocked for key in decision.states[blocked].unit.inputs}
    missing = [key for key in decision.not_requested if key in read]
    newest = {unit: submission for submission in submissions_of(run) for unit in submission.units}
    cancelled = [key for key in missing if key in newest and key in newest[key].cancelled]
    names, verb = cancelled or missing, "cancelled" if cancelled else "not among what is submitted"
    behind = list(dict.fromkeys(stage for root in left for stage in stages[root]))
    reason = (
        f"{', '.join(names)} {'were' if len(names) > 1 else 'was'} {verb}; {', '.join(behind)}"
        f" {'wait' if len(behind) > 1 else 'waits'} for {'them' if len(names) > 1 else 'it'}"
    )
    echo(step("hpcddm", "retry", run.root, *names, reason=reason))


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
        reason = f"all requested units are complete; {len(decision.not_requested)} units were not requested"
        echo(NextStep(repeat_commands(run, is_whole=True), reason))
    elif decision.elsewhere:
        echo("everything that belongs to this site is complete")
        _print_other_sites(decision, run)
    else:
        echo(f"everything is complete ({len(decision.complete)} units); nothing to submit")
    echo(*data_lines(run, decision.complete), *metric_lines(run, decision.complete))
    if (report := manifest.read_if_usable(run.unit(REPORT))) and REPORT in decision.complete:
        from hpcddm.commands.results_table import print_results_table

        print_results_table(report.results)
        echo(f"report {run.unit(REPORT) / PAGE}")
    elif CLUSTER_REPORT in decision.complete:
        echo(clusters_line(run))


def metric_lines(run: RunDir, complete: Collection[str]) -> list[str]:
    """Print the number of metrics that are younger than a complete comparison, and the command that computes them."""
    compared = [manifest.read_if_usable(run.unit(key)) for key in complete if stage_of(key) == COMPARE]
    known = [set(made.results[KNOWN_METRICS]) for made in compared if made and KNOWN_METRICS in made.results]
    if not known:
        return []
    missing = [metric.key for metric in all_metrics() if any(metric.key not in keys for keys in known)]
    verb = "metric is" if len(missing) == 1 else "metrics are"
    reason = f"{len(missing)} {verb} not computed: {', '.join(missing)}"
    return [str(NextStep(repeat_commands(run, [COMPARE]), reason))] if missing else []


def data_lines(run: RunDir, complete: Container[str]) -> list[str]:
    """Print the numbers of broken and skipped samples; nothing before the catalog is complete."""
    catalog = manifest.read_if_usable(run.unit(CATALOG)) if CATALOG in complete else None
    if catalog is None:
        return []
    broken, counts = catalog.results.get("broken", 0), catalog.results.get("passed_over", {})
    lines = [f"broken {broken:,}   all in {run.root}/shard/*/{BROKEN}"] * bool(broken)
    lines += [f"passed over   {line}" for line in passed_over.count_lines(counts)]
    return [*lines, f"passed over   all in {run.root}/shard/*/{PASSED_OVER}"] if counts else lines


def clusters_line(run: RunDir) -> str:
    """Print the page about the clusters and the number of its warnings."""
    inspected = manifest.read_if_usable(run.unit(CLUSTER_REPORT))
    count = len(inspected.results.get("warnings", [])) if inspected else 0
    warnings = f", with {count} warning{'s' * (count > 1)}" if count else ""
    return f"clusters {run.unit(CLUSTER_REPORT) / CLUSTERS_PAGE}{warnings}"
