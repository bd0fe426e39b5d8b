"""GPUs of this machine, counted without torch, whose import would take seconds."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.pipeline.stage import GpuUse
from hpcddm.pipeline.unit_graph import usable_gpus
from hpcddm.runs.provenance import package_version

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
DEVICE_FILES = Path("/dev")
ANSWER_SECONDS = 20


class GpuPool:
    """GPUs of this machine; each GPU serves one running unit at a time.

    Args:
        site: The site, whose keys `gpus` and `resources` apply.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._held: dict[str, list[str]] = {}

    @cached_property
    def device_ids(self) -> list[str] | None:
        """GPUs that units may use, by their names in CUDA_VISIBLE_DEVICES; None if no GPU is known.

        Raises:
            ConfigError: If the site names more GPUs than the machine has.
        """
        visible, num_gpus = visible_gpus(), self._site.gpus
        if num_gpus is None:
            return visible or None
        if num_gpus > len(visible):
            shown = ", ".join(visible) or "none"
            text = f"gpus: {num_gpus}, but this machine shows {len(visible)} ({shown})"
            raise ConfigError(f"site {self._site.name}: {text}")
        return visible[:num_gpus]

    def needed(self, key: str, resources: Resources) -> int:
        """Return the number of GPUs of a unit: the site's `gpus_per_node`, or else 1 per rank that can use a GPU.

        Args:
            key: The unit, as `stage/unit`.
            resources: Resources that the unit requests.

        Raises:
            UserError: If the machine has fewer GPUs.
        """
        num_gpus, there = resources.gpus_per_node, len(self.device_ids or [])
        if not num_gpus and there:
            num_gpus = {GpuUse.NONE: 0, GpuUse.RANKS: resources.ranks_per_node}.get(usable_gpus(key), 1)
        if num_gpus > there:
            way_out = f"ranks_per_node: {there}, or gpus: 0 for the CPU" if there else "gpus_per_node: 0"
            raise UserError(
                f"site {self._site.name}: {key} needs {num_gpus} GPUs for {resources.ranks_per_node} ranks and this"
                f" machine shows {there or 'none'} to its torch; set {way_out}"
            )
        return num_gpus

    def free(self, running: Iterable[str]) -> list[str]:
        """List the GPUs that the running jobs do not use."""
        taken = [name for job in running for name in self._held.get(job, [])]
        return [name for name in self.device_ids or [] if name not in taken]

    def hold(self, job: str, names: list[str]) -> None:
        """Record the GPUs that a job uses."""
        self._held[job] = names


def visible_gpus() -> list[str]:
    """List the GPUs from CUDA_VISIBLE_DEVICES, or else from the driver; empty for a torch without CUDA."""
    if (package_version("torch") or "").endswith("+cpu"):
        return []
    if VISIBLE_VARIABLE in os.environ:
        entries = os.environ[VISIBLE_VARIABLE].split(",")
        return [word.strip() for word in entries if word.strip() not in ("", "-1", "NoDevFiles")]
    return [str(number) for number in range(_count())]


def _count() -> int:
    """Count GPUs with nvidia-smi, which works even without device files; otherwise count the device files."""
    if shutil.which("nvidia-smi"):
        try:
            process = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return 0
        return sum(line.startswith("GPU ") for line in process.stdout.splitlines()) if process.returncode == 0 else 0
    return len(list(DEVICE_FILES.glob("nvidia[0-9]*")))
