"""Exit codes of all commands and of the ranks in a job; docs/exit-codes.md lists them."""

DONE = 0
FAILED = 1
USAGE = 2
NEEDS_ACTION = 3
SCHEDULER_UNREACHABLE = 4
UNDER_WAY = 5
WATCHDOG = 70
HELD_OR_ABANDONED = 75
INTERRUPTED = 130

MEANINGS = {
    DONE: "done. For `wait` and `status --exit-code`: every requested unit is complete",
    FAILED: "the environment or a unit failed; the message names the cause and the next step",
    USAGE: "an option, an experiment or a site is wrong; nothing was submitted or changed",
    NEEDS_ACTION: "`wait`, `status --exit-code`: incomplete, and nothing continues without you; `status` says why",
    SCHEDULER_UNREACHABLE: "the scheduler does not answer, so job states are unknown; nothing was submitted; try again",
    UNDER_WAY: "`status --exit-code`, and `wait` at its `--timeout`: incomplete, and jobs are queued or running",
    WATCHDOG: "in a job: a rank completed no step for `watchdog_minutes`",
    HELD_OR_ABANDONED: "in a job: another execution holds the unit, or this rank left while others waited for it",
    INTERRUPTED: "Ctrl-C; queued jobs continue, and the same command resumes",
}
"""Meaning of each code, as in docs/exit-codes.md."""
