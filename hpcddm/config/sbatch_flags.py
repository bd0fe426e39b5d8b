"""Flags of sbatch and srun that a site may not give, because hpcddm sets them, and what to use instead."""

import re
import shlex
from collections.abc import Mapping, Sequence

_BY_KEY = "use the site key {}"
_FIXED = "hpcddm sets it"

SBATCH = {
    "array": _BY_KEY.format("max_parallel"),
    "job-name": f"{_FIXED}, and finds its jobs by it",
    "dependency": _FIXED,
    **dict.fromkeys(("output", "error"), f"{_FIXED}; hpcddm logs shows what a job said"),
    "open-mode": _FIXED,
    "chdir": f"{_FIXED}; a line in the site key setup may change what a job finds",
    "signal": _BY_KEY.format("signal_lead_seconds"),
    "wait": "hpcddm submits many jobs and does not wait",
    "test-only": "use hpcddm submit --dry-run",
    "wrap": _FIXED,
    "clusters": _BY_KEY.format("cluster"),
    "nodes": _BY_KEY.format("resources.nodes"),
    **dict.fromkeys(
        ("ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-gpu"),
        _BY_KEY.format("resources.ranks_per_node"),
    ),
    "cpus-per-task": _BY_KEY.format("resources.cpus_per_rank"),
    **dict.fromkeys(("gpus", "gpus-per-node"), _BY_KEY.format("resources.gpus_per_node")),
    "time": _BY_KEY.format("resources.minutes"),
    "mem": _BY_KEY.format("resources.memory_gb or memory_flag"),
    "mem-per-cpu": _BY_KEY.format("resources.memory_gb with memory_flag: per_cpu"),
    "mem-per-gpu": _BY_KEY.format("resources.memory_gb"),
    **{
        flag: _BY_KEY.format(flag)
        for flag in ("partition", "account", "qos", "constraint", "exclude", "reservation", "requeue")
    },
    "no-requeue": _BY_KEY.format("requeue"),
}
"""Long flags of sbatch, each with what to do instead."""
SRUN = {
    **dict.fromkeys(("output", "error", "open-mode", "job-name", "jobid", "wait", "kill-on-bad-exit"), _FIXED),
    "export": f"{_FIXED}; a line in the site key setup may export variables",
    "label": f"{_FIXED}: every rank has a log of its own",
    **dict.fromkeys(("multi-prog", "pty"), _FIXED),
    "nodes": _BY_KEY.format("resources.nodes"),
    **dict.fromkeys(("ntasks", "ntasks-per-node"), _BY_KEY.format("resources.ranks_per_node")),
    "cpus-per-task": _BY_KEY.format("resources.cpus_per_rank"),
    "cpu-bind": _BY_KEY.format("cpu_bind"),
}
"""Long flags of srun, each with what to do instead."""
SHORT = {
    "a": "array",
    "J": "job-name",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "D": "chdir",
    "W": "wait",
    "M": "clusters",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "p": "partition",
    "A": "account",
    "q": "qos",
    "C": "constraint",
    "x": "exclude",
    "K": "kill-on-bad-exit",
    "l": "label",
}
"""Short flags that stand for one of the long ones, in sbatch or in srun."""
WITHOUT_VALUE = "HhIkOQsuvVX"
"""Short flags behind which another one may stand in the same word."""


def sbatch_refusal_reason(line: str) -> str:
    """Return the reason against one #SBATCH line of a site, or '' where it is allowed."""
    if "\n" in line or "\r" in line:
        return "needs to be one line"
    try:
        arguments = shlex.split(line, comments=True)
    except ValueError as error:
        return f"cannot be read as flags of sbatch ({error})"
    if not arguments or not arguments[0].startswith("-"):
        return "needs flags of sbatch, such as '--exclusive'"
    if re.search(r"(?:^| )--gres[= ]\S*gpu", " ".join(arguments)):
        return "--gres=gpu cannot be given here: use the site keys resources.gpus_per_node and gpus_flag: gres"
    return refusal_reason(arguments, SBATCH)


def refusal_reason(arguments: Sequence[str], refused: Mapping[str, str]) -> str:
    """Return the reason against the first argument that gives one of the `refused` flags, or ''.

    Slurm also takes any unique beginning of a long flag, so all beginnings are refused.
    """
    for word in arguments:
        for name in _names(word):
            match = name if name in refused else next((flag for flag in refused if flag.startswith(name)), None)
            if match:
                return f"{word.partition('=')[0]} cannot be given here: {refused[match]}"
    return ""


def _names(word: str) -> list[str]:
    """List the long names of the flags in one word of a command line; none for a value."""
    if word.startswith("--"):
        # A lone '--' ends the flags.
        return [word[2:].partition("=")[0]] if len(word) > 2 else []
    if not word.startswith("-"):
        return []
    names = []
    for letter in word[1:]:
        names += [SHORT[letter]] if letter in SHORT else []
        if letter not in WITHOUT_VALUE:
            break
    return names
