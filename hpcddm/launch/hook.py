"""The user's own command, called at the end of a run and for units that stop with a reason; jobs call it themselves."""

import os
import subprocess

from hpcddm.rundir.layout import RunDir
from hpcddm.site import Site


def call_hook(site: Site, run: RunDir, event: str, unit: str, reason: str = "") -> None:
    """Run the site's hook, if it has one; event: 'complete' or 'stopped'. Its failure is ignored."""
    if site.hook is None:
        return
    details = {"EVENT": event, "UNIT": unit, "REASON": reason, "RUN": str(run.root.resolve())}
    environment = os.environ | {f"HPCDDM_{name}": value for name, value in details.items()}
    subprocess.run(["bash", "-c", site.hook], env=environment, check=False)
