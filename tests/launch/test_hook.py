"""The user's own command is told what happened, and cannot harm the run."""

from hpcddm.config.site import Site
from hpcddm.jobs.outcome import HookEvent
from hpcddm.launch.array_items import call_hook
from hpcddm.runs.run_dir import RunDir


def test_the_hook_is_told_what_happened_and_none_or_one_that_fails_is_no_failure(tmp_path):
    line = f'echo "$HPCDDM_EVENT|$HPCDDM_UNIT|$HPCDDM_REASON|$HPCDDM_RUN" > {tmp_path}/told; exit 3'
    for hook in (line, None):
        site = Site(name="north", scheduler="local", hook=hook)
        call_hook(site, RunDir(tmp_path), HookEvent.STOPPED, "train/expert-00", 'no "luck"; rm -rf /')
    assert (tmp_path / "told").read_text() == f'stopped|train/expert-00|no "luck"; rm -rf /|{tmp_path}\n'
