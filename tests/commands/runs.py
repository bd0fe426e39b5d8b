"""Runs of the tiny experiment, of which nothing, all, or all but some units are complete."""

from hpcddm.launch.submission import store_experiment, store_site
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.helpers import finish, tiny, write_source
from tests.launch.queues import Queue


def bare_run(root, **changes):
    """Store the experiment alone; return the run."""
    run = RunDir(root)
    root.parent.mkdir(exist_ok=True)
    store_experiment(tiny(root.parent, **changes), run)
    return run


def complete_run(root, *without, **changes):
    """Make all units complete but some."""
    run = bare_run(root, **changes)
    finish(plan_units(tiny(root.parent, **changes)), run)
    for key in without:
        (run.unit(key) / "manifest.json").unlink()
    return run


class Willing(Queue):
    """A queue that lets everything pass its check."""

    def check(self, arrays):
        """Fine."""


def submitted_run(folder, monkeypatch):
    """Submit every unit of an experiment with images once, and let the verbs talk to the queue that is returned."""
    write_source(folder / "images")
    run = RunDir(folder / "run")
    experiment = with_content_hashes(tiny(folder), run)
    run.root.mkdir()
    store_experiment(with_relative_paths(experiment, run), run)
    queue, journal = Willing(run), Journal(run.journal)
    store_site(queue.site, run)
    units = plan_units(experiment)
    journal.record_submitted(journal.record_intent("slurm", "north", [unit.key for unit in units]), "7")

    def create_launcher(site, home):
        queue.site = site
        return queue

    for module in ("retry", "submission_flow"):
        monkeypatch.setattr(f"hpcddm.commands.{module}.create_launcher", create_launcher)
    # It reads facts that the units of these tests have not.
    monkeypatch.setattr("hpcddm.commands.submit.preflight", lambda *arguments: None)
    return run, queue, units
