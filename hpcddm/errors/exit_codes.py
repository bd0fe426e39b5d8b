"""Exit codes of all commands and of the ranks in a job; docs/exit-codes.md lists them with these meanings."""

DONE = 0
"""done. For `wait` and `status --exit-code`: every requested unit is complete"""
FAILED = 1
"""the environment or a unit failed; the message names the cause and the next step"""
USAGE = 2
"""an option, an experiment or a site is wrong; nothing was submitted or changed"""
NEEDS_ACTION = 3
"""`wait`, `status --exit-code`: incomplete, and nothing continues without you; `status` says why"""
SCHEDULER_UNREACHABLE = 4
"""the scheduler does not answer, so job states are unknown; nothing was submitted; try again"""
UNDER_WAY = 5
"""`status --exit-code`, and `wait` at its `--timeout`: incomplete, and jobs are queued or running"""
WATCHDOG = 70
"""in a job: a rank completed no step for `watchdog_minutes`"""
HELD_OR_ABANDONED = 75
"""in a job: another execution holds the unit, or this rank left while others waited for it"""
INTERRUPTED = 130
"""Ctrl-C; queued jobs continue, and the same command resumes"""
