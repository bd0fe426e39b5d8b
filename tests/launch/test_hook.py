"""The user's own command is told what happened, and cannot harm the run."""

from hpcddm.config.site import Site
from hpcddm.jobs.outcome import HookEvent
from hpcddm.launch.array_items import call_hook
from hpcddm.runs.run_dir import RunDir


def site(hook):
    return Site(name="north", scheduler="local", hook=hook)


def test_the_hook_is_told_the_event_the_unit_the_reason_and_the_run(tmp_path):
    line = f'echo "$HPCDDM_EVENT|$HPCDDM_UNIT|$HPCDDM_REASON|$HPCDDM_RUN" > {tmp_path}/told'
    call_hook(site(line), RunDir(tmp_path), HookEvent.STOPPED, "train/expert-00", 'no "luck"; rm -rf /')
    assert (tmp_path / "told").read_text() == f'stopped|train/expert-00|no "luck"; rm -rf /|{tmp_path}\n'


def test_a_hook_that_fails_and_none_at_all_are_no_failure(tmp_path):
    call_hook(site("exit 3"), RunDir(tmp_path), HookEvent.COMPLETE, "report/all")
    call_hook(site(None), RunDir(tmp_path), HookEvent.COMPLETE, "report/all")
