"""Testbed clusters with other lines in slurm.conf, for a while."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import REPOSITORY


@contextmanager
def partner_with(**lines: object) -> Iterator[None]:
    """Let the cluster partner run with other values of slurm.conf's keys; its controller is restarted for them."""
    sys.path.insert(0, str(REPOSITORY / "slurm/testbed"))
    import processes
    from testbed import Testbed

    testbed = Testbed(Path(os.environ["HPCDDM_TESTBED"]))
    (controller,) = (one for one in testbed.slurm_daemons(testbed.partner) if one.name == "partner-slurmctld")
    conf = testbed.conf(testbed.partner)
    before = conf.read_text()

    def restart(text: str) -> None:
        conf.write_text(text)
        processes.end_gently(lambda: processes.running(controller, testbed.folder))
        testbed.ensure(controller)
        testbed.require_fit_nodes(testbed.partner)

    kept = [line for line in before.splitlines(True) if line.partition("=")[0] not in lines]
    restart("".join([*kept, *(f"{key}={value}\n" for key, value in lines.items())]))
    try:
        yield
    finally:
        restart(before)
