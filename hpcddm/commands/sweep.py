"""The verb sweep: every setting an ordinary run, what they share made once, all in one queue, one table at the end."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from hpcddm.commands.comparison import print_results
from hpcddm.commands.submit import (
    PATIENCE_SECONDS,
    announce_code,
    follow_stored_template,
    hand_over,
    is_cancelled,
    make_folder,
    rehearse,
)
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import load_site, within_run
from hpcddm.launch import storage
from hpcddm.launch.base import Job, Launcher, launcher_of
from hpcddm.launch.continuation import Rest
from hpcddm.launch.ending import end
from hpcddm.launch.gpu_use import check_gpus
from hpcddm.launch.hook import call_hook
from hpcddm.launch.items import Item, array_spec, arrays
from hpcddm.launch.preflight import check_need, check_ranks, check_weights, warn_of_node_local
from hpcddm.launch.schedulers import check_other_schedulers
from hpcddm.launch.snapshot import Checkout
from hpcddm.launch.submission import (
    Decision,
    active_units,
    check_experiment,
    check_folder,
    decide,
    settle,
    store_site,
    submitted_jobs,
)
from hpcddm.launch.template import store_parts
from hpcddm.pipeline import REPORT, TABLE, PlannedUnit, shard_keys
from hpcddm.rundir import atomic, fresh
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.lease import lease
from hpcddm.site import Site
from hpcddm.status import State, UnitStatus
from hpcddm.sweep.index import Index, link, read_index, write_index
from hpcddm.sweep.members import Member, assign, members_of, survey_members
from hpcddm.sweep.outputs import publish
from hpcddm.sweep.settings import Sweep, read_sweep
from hpcddm.sweep.table import CSV, PLOT, state_of


def sweep(
    name: str,
    site_name: str,
    folder: Path | None,
    dry_run: bool,
    only_table: bool,
    live: bool = False,
    rest: Rest | None = None,
) -> int:
    """Submit what is missing of all settings, or show the table; return the exit code.

    live: jobs run the checkout itself, and no snapshot of it. rest: what an earlier submission left out, where this
    one continues it.

    Raises `ConfigError` naming the setting whose keys or values are wrong, before anything is submitted.
    """
    asked = read_sweep(name, rest and rest.experiment)
    home = RunDir(folder or Path("sweeps") / asked.name)
    members = members_of(asked, home)
    for left, taken in asked.folded:
        click.echo(f"note: setting {left} means the same as {taken} and runs once")
    launcher = launcher_of(load_site(site_name), home)
    if rest is not None:
        follow_stored_template(launcher, home)
    if live:
        launcher.code = Checkout()
    seen = look(asked, members, home, launcher, is_final=not only_table)
    if only_table or not seen.items:
        return _show(seen, home)
    check_other_schedulers(Journal(home.journal).submissions(), home, launcher, {item.name for item in seen.items})
    _check(seen, home, launcher.site)
    if not dry_run:
        launcher.check([array_spec(group[:1], launcher.site) for group in arrays(seen.items, launcher.site)])
    make_folder(home)
    is_queue = launcher.site.scheduler != "local"
    with lease(home.lock, "hpcddm sweep", PATIENCE_SECONDS if is_queue else 0):
        settle(home, launcher)
        # Another one may have been at work between the first look and the lock.
        seen = look(asked, members, home, launcher)
        if dry_run:
            return _dry_run(seen, home, launcher)
        if not seen.items:
            return _show(seen, home)
        _store(seen, home, launcher)
        _announce(seen, home, launcher.site)
        announce_code(launcher)
        if is_queue:
            return _queue(asked, seen, home, launcher, rest)
        return _run_here(asked, seen, home, launcher)


@dataclass
class Look:
    """A sweep at one moment: its settings, the states of their units, and what is to be submitted of them."""

    members: list[Member]
    index: Index
    states: dict[str, dict[str, UnitStatus]]
    active: dict[str, Job]
    """What is in the queue, by the sweep's names."""
    items: list[Item] = field(default_factory=list)
    """What is to run, each once, after what it needs."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    recalled: dict[str, Job] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)

    @property
    def words(self) -> dict[str, str]:
        """What is known of the settings that are not complete, by label."""
        found = {}
        for member in self.members:
            states = self.states[member.label]
            if states[REPORT].state is not State.COMPLETE:
                jobs = {key: self.active[member.name(key)].state for key in states if member.name(key) in self.active}
                found[member.label] = state_of(states, member.run, jobs)
        return found


def look(asked: Sweep, members: list[Member], home: RunDir, launcher: Launcher, is_final: bool = True) -> Look:
    """Look at all settings and decide what is to be submitted; `is_final` says whether that will be done.

    Raises `ConfigError` over settings that changed, `UserError` when nobody can say what still runs.
    """
    # The queue first: what leaves it while we look has its manifest by then.
    active = active_units(home, launcher) if is_final else _active_if_known(home, launcher)
    index = read_index(home)
    if index.name not in ("", asked.name) or home.experiment.exists():
        what = "a run" if home.experiment.exists() else f"the sweep '{index.name}'"
        raise ConfigError(f"--dir {home.root}: {what} lies there; take another folder, or go on with that")
    index.name, index.current = asked.name, [member.label for member in members]
    index.settings |= asked.settings
    assign(members, index)
    seen = Look(members, index, survey_members(members), active)
    named: set[str] = set()
    for member in members:
        _refuse_changes(seen.states[member.label], member, launcher.site)
        own = {key: active[member.name(key)] for key in member.owners if member.name(key) in active}
        decision = decide(member.experiment, member.run, launcher, active=own, states=seen.states[member.label])
        seen.decisions[member.label] = decision
        seen.complete |= {member.name(key) for key in decision.complete}
        seen.absent |= {member.name(key) for key in (*decision.elsewhere, *decision.blocked)}
        seen.recalled |= {job.id: job for job in decision.recalled}
        new = [unit for unit in decision.to_run if member.name(unit.key) not in named]
        named |= {member.name(unit.key) for unit in new}
        seen.items += _items(new, member)
    return seen


def _active_if_known(home: RunDir, launcher: Launcher) -> dict[str, Job]:
    found = launcher.states(submitted_jobs(home, launcher.site))
    if found is None:
        click.echo("note: the scheduler does not answer; states are from the files alone")
    return found or {}


def _refuse_changes(states: dict[str, UnitStatus], member: Member, site: Site) -> None:
    for status in states.values():
        if status.state is State.STALE and status.unit.site in (None, site.name):
            raise ConfigError(
                f"setting {member.label}: {status.key} was {status.reason}; go back to those, or take another --dir"
            )


def _items(units: list[PlannedUnit], member: Member) -> Iterator[Item]:
    """Units of a member in the runs that make them."""
    if units:
        # All runs of a sweep lie beside each other, so the way to the images is the same.
        experiment = within_run(member.experiment, member.run)
    for unit in units:
        needs = tuple(map(member.name, unit.reads))
        yield Item(member.owner(unit.key), unit, experiment, member.name(unit.key), needs)


def _check(seen: Look, home: RunDir, site: Site) -> None:
    """Refuse what can be known to fail, before anything is written.

    Raises `UserError` or `ConfigError`, with the setting where it is about one.
    """
    units: dict[str, list[PlannedUnit]] = {}
    for item in seen.items:
        units.setdefault(item.run.root.name, []).append(item.unit)
    # Of the settings with the same images, the one that evaluates most tells whether there are enough.
    hungriest: dict[str, Member] = {}
    for member in sorted(seen.members, key=lambda member: member.experiment.evaluate.images):
        hungriest[member.experiment.data.model_dump_json()] = member
    needed, counts = storage.Need(), {}
    for data, member in hungriest.items():
        counts[data] = storage.image_counts(member.experiment, member.owner(shard_keys(member.experiment)[0]))
    for member in seen.members:
        if fresh.exists(member.run.stop):
            raise ConfigError(f"{member.run.stop} tells its jobs to leave: remove it, then repeat this command")
        data, own = member.experiment.data.model_dump_json(), units.get(member.label, [])
        shards = [unit for unit in seen.decisions[member.label].to_run if unit.stage == "shard"]
        checked = [unit for unit in own if unit.stage != "shard"] + (shards if hungriest[data] is member else [])
        try:
            check_experiment(member.experiment, site, Decision({}, to_run=checked))
            check_weights(member.experiment, own)
        except UserError as error:
            raise type(error)(f"setting {member.label}: {error}") from None
        needs = (storage.estimate(unit, member.experiment, site, counts[data]) for unit in own)
        needed += sum(needs, storage.Need())
    check_gpus(site, [TABLE], seen.members[0].experiment)
    for item in seen.items:
        check_ranks(item.unit, item.run, site.resources_for(*item.unit.key.split("/")))
    check_folder(home)
    check_need(needed, home)
    warn_of_node_local(site, home)


def _store(seen: Look, home: RunDir, launcher: Launcher) -> None:
    """The index before the links, which it explains; none of it waits for the disk: the same command makes it anew."""
    write_index(seen.index, home)
    store_site(launcher.site, home)
    store_parts(home, launcher.template_parts)
    for member in seen.members:
        link(member.run, member.owners)
        values = within_run(member.experiment, member.run).model_dump(mode="json")
        if atomic.read_json(member.run.experiment) != values:
            atomic.write_json(member.run.experiment, values, durable=False)


def _queue(asked: Sweep, seen: Look, home: RunDir, launcher: Launcher, rest: Rest | None) -> int:
    if is_cancelled(rest, home):
        return 0
    if rest is not None:
        # What failed since then waits for somebody.
        seen.items = [item for item in seen.items if item.name in rest.units]
    items = [*seen.items, _table_item(seen, home)]
    job = seen.active.get(TABLE)
    if job and job.state == "pending":
        # It waits for the jobs of then only.
        seen.recalled[job.id] = job
    end(seen.recalled.values(), Journal(home.journal).submissions(), launcher)
    names = {item.name for item in items}
    active = {name: job for name, job in seen.active.items() if name not in names}
    hand_over(items, home, launcher, active, rest and rest.units, asked)
    click.echo(f"scripts  {home.scripts}/\ntable    {home.root / CSV}, {home.root / PLOT}   by the last job")
    click.echo(f"next     the same command   hpcddm status {seen.members[0].run.root}")
    return 0


def _table_item(seen: Look, home: RunDir) -> Item:
    """The job that waits for everything that is in the queue by then."""
    first = seen.members[0]
    names = [*(item.name for item in seen.items), *(name for name in seen.active if name != TABLE)]
    covers = {"settings": len(seen.members), "submitted": time.time()}
    return Item(home, PlannedUnit(TABLE, 1, [], covers, None), within_run(first.experiment, home), TABLE, tuple(names))


def _dry_run(seen: Look, home: RunDir, launcher: Launcher) -> int:
    click.echo(_counts(seen))
    if launcher.site.scheduler == "local":
        click.echo("would run here: " + " ".join(item.name for item in seen.items))
    else:
        rehearse([*seen.items, _table_item(seen, home)], home, launcher, seen.active)
    return 0


def _run_here(asked: Sweep, seen: Look, home: RunDir, launcher: Launcher) -> int:
    from hpcddm.launch.embedded import Embedded

    failed = Embedded(seen.items, home, launcher, len(seen.complete), seen.absent).drive()
    for name, reason in failed.items():
        label, _, key = name.partition("/")
        click.echo(f"error: {name}: {reason}; its log: hpcddm logs {home.root / label} {key}", err=True)
        call_hook(launcher.site, home, "stopped", name, reason)
    left = look(asked, seen.members, home, launcher)
    if left.items:
        click.echo("after mending, the same command continues", err=True)
    else:
        call_hook(launcher.site, home, "complete", TABLE)
    _show(left, home)
    return 1 if left.items else 0


def _announce(seen: Look, home: RunDir, site: Site) -> None:
    click.echo(f"sweep {home.root}   site {site.name}   {_counts(seen)}")


def _counts(seen: Look) -> str:
    everything = {member.name(key) for member in seen.members for key in member.owners}
    counts = f"{len(seen.members)} settings, {len(everything)} units, what they share counted once:"
    counts += f" {len(seen.complete)} complete, {len(seen.items)} to run"
    return counts + (f", {len(seen.active)} in the queue or running" if seen.active else "")


def _show(seen: Look, home: RunDir) -> int:
    """Write and print the table of what is there."""
    if seen.items:
        click.echo(_counts(seen))
    elif seen.active:
        click.echo(f"{len(seen.active)} units are in the queue or running; nothing new to submit")
    elif seen.absent:
        click.echo("everything that belongs to this site is complete; nothing to submit")
    else:
        click.echo(f"everything is complete ({len(seen.members)} settings); nothing to submit")
    if home.root.is_dir():
        rows = publish(home, seen.index, seen.words)
        print_results(rows)
        click.echo(f"table    {home.root / CSV}, {home.root / PLOT}")
    if seen.index.left_out:
        click.echo(f"left out, for the file names them no more: {', '.join(seen.index.left_out)}")
    return 0
