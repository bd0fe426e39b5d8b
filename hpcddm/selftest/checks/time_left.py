"""Time left: a job can know when its allocation ends, and saves in time even where no signal comes."""

from hpcddm.selftest.evidence import Element, Evidence, JobStart, Part
from hpcddm.selftest.verdict import Row, Verdict

TOLERANCE_SECONDS = 120
ADVICE = "only a signal announces the end: keep signal_lead_seconds well above the time that a save takes"


def evaluate_check(evidence: Evidence, minutes: int) -> Row:
    """Check that Slurm's variable or squeue inside the job names the end of these `minutes`."""
    start = evidence.last(Part.ARRAY, Element.ENVIRONMENT)
    if start is None or start.text("ends.exit") is None:
        return evidence.absent("time left", Part.ARRAY, Element.ENVIRONMENT, "ends")
    for source, end in (("SLURM_JOB_END_TIME", _variable(start)), ("squeue on the node", start.text("ends"))):
        if not end or not end.isdigit():
            continue
        seconds = int(end) - start.time
        if abs(seconds - 60 * minutes) < TOLERANCE_SECONDS:
            return Row("time left", Verdict.OK, None, f"{source} knows the end, {seconds / 60:.1f} minutes after start")
        finding = f"{source} says {seconds / 60:.1f} minutes for a limit of {minutes}"
        return Row("time left", Verdict.WARN, None, finding, "does extra_sbatch or the cluster change the time limit?")
    message = start.text("ends.said")
    finding = f"neither SLURM_JOB_END_TIME nor squeue on the node tells the end{': ' + message if message else ''}"
    return Row("time left", Verdict.WARN, None, finding, ADVICE)


def _variable(start: JobStart) -> str | None:
    lines = (start.text("variables") or "").splitlines()
    ends = [line.partition("=")[2] for line in lines if line.startswith("SLURM_JOB_END_TIME=")]
    return ends[0] if ends else None
