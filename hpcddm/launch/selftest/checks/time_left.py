"""Time left: a job can know when its allocation ends, and saves in time even where no signal comes."""

from hpcddm.launch.selftest.check_results import CheckResult, ok, warn
from hpcddm.launch.selftest.evidence import Element, Evidence, JobStart, TrialJob

TOLERANCE_SECONDS = 120
ADVICE = "only a signal announces the end: keep signal_lead_seconds well above the time that a save takes"


def _variable(start: JobStart) -> str | None:
    lines = (start.text("variables") or "").splitlines()
    ends = [line.partition("=")[2] for line in lines if line.startswith("SLURM_JOB_END_TIME=")]
    return ends[0] if ends else None


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that Slurm's variable or squeue inside the job names the end of the job."""
    minutes = evidence.minutes
    if (start := evidence.last(TrialJob.ARRAY, Element.ENVIRONMENT)) is None or start.text("ends.exit") is None:
        return evidence.missing_result(TrialJob.ARRAY, Element.ENVIRONMENT, "ends")
    for source, end in (("SLURM_JOB_END_TIME", _variable(start)), ("squeue on the node", start.text("ends"))):
        if not end or not end.isdecimal():
            continue
        seconds = int(end) - start.time
        if abs(seconds - 60 * minutes) < TOLERANCE_SECONDS:
            return ok(None, f"{source} knows the end, {seconds / 60:.1f} minutes after start")
        finding = f"{source} says {seconds / 60:.1f} minutes for a limit of {minutes}"
        return warn(None, finding, "does extra_sbatch or the cluster change the time limit?")
    message = start.text("ends.said")
    finding = f"neither SLURM_JOB_END_TIME nor squeue on the node tells the end{': ' + message if message else ''}"
    return warn(None, finding, ADVICE)
