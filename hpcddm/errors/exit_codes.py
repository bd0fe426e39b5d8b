"""Exit codes of all verbs and of the ranks in a job; docs/exit-codes.md says what each is for."""

DONE = 0
FAILED = 1
USAGE = 2
NEEDS_ACTION = 3
SILENT = 4
UNDER_WAY = 5
WATCHDOG = 70
LEAVES = 75
INTERRUPTED = 130

MEANINGS = {
    DONE: "done; of `wait` and `status --exit-code`: everything that was asked for is complete",
    FAILED: "something outside the program is wrong, or a unit failed; the message names it and the next step",
    USAGE: "an option, an experiment or a site is wrong; nothing was submitted or changed",
    NEEDS_ACTION: "`wait`, `status --exit-code`: not complete, and nothing goes on by itself; `status` says why",
    SILENT: "the scheduler does not answer, so nobody can say what runs; nothing was submitted; try again later",
    UNDER_WAY: "`status --exit-code`, and `wait` at its --timeout: not complete, and jobs wait or run",
    WATCHDOG: "in a job: a rank made no step for `watchdog_minutes`",
    LEAVES: "in a job: another execution holds the unit, or this rank left while others waited for it",
    INTERRUPTED: "Ctrl-C; jobs in a queue go on, and the same command continues",
}
"""Meaning of each code, for people."""
