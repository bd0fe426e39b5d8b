"""GPUs: every rank of a training has a GPU of its own, and no stage requests more than it uses.

Its step on the nodes is that of `collective`.
"""

from collections import Counter

from hpcddm.launch.checks.gpu_requests import all_resource_keys, gpu_remarks
from hpcddm.launch.selftest.check_results import CheckResult, fail, ok, warn
from hpcddm.launch.selftest.checks import collective
from hpcddm.launch.selftest.evidence import CHECKED_STAGE, Evidence, TrialJob

ADVICE = (
    "look at container (apptainer needs --nv), at torch's build in the jobs' environment, at gpus_flag and gpu_type"
)


def evaluate(evidence: Evidence) -> CheckResult:
    """Check the GPUs that the site requests, then those that the ranks of the job over all nodes saw."""
    site, gpus_per_node = evidence.site, evidence.resources.gpus_per_node
    if texts := gpu_remarks(site, [*all_resource_keys(), *(key for key in site.stages if "/" in key)]):
        return (warn if site.allow_idle_gpus else fail)(None, "; ".join(texts), "as it says; hpcddm submit refuses it")
    if not gpus_per_node:
        return ok(None, f"{CHECKED_STAGE} asks for none")
    if not (records := collective.read_answers(evidence.last(TrialJob.NODES))):
        return evidence.missing_result(TrialJob.NODES, 0, collective.STEP)
    if without := [record for record in records if record["device"] in ("", "cpu")]:
        finding = without[0]["message"] or f"rank {without[0]['rank']} on {without[0]['node']} sees no GPU"
        return fail(None, finding.splitlines()[0], ADVICE)
    names = ", ".join(f"{count} x {name}" for name, count in sorted(Counter(one["device"] for one in records).items()))
    nodes = len({record["node"] for record in records})
    return ok(None, f"{len(records)} ranks on {nodes} nodes have one each: {names}")
