"""GPUs of this machine, counted without torch, which the launcher does not wait for."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpcddm.errors import ConfigError, UserError
from hpcddm.pipeline import Gpus, gpus_of
from hpcddm.site import Resources, Site

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
DEVICE_FILES = Path("/dev")
ANSWER_SECONDS = 20


class GpuPool:
    """GPUs of this machine, each of which one running unit has at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._held: dict[str, list[str]] = {}

    @cached_property
    def names(self) -> list[str] | None:
        """GPUs that units may fill, as CUDA_VISIBLE_DEVICES names them; None where nobody knows of any.

        Raises `ConfigError` when the site names more than there are.
        """
        visible, wanted = visible_gpus(), self._site.gpus
        if wanted is None:
            return visible or None
        if wanted > len(visible):
            shown = ", ".join(visible) or "none"
            text = f"gpus: {wanted}, but this machine shows {len(visible)} ({shown})"
            raise ConfigError(f"site {self._site.name}: {text}")
        return visible[:wanted]

    def needed(self, stage: str, resources: Resources) -> int:
        """GPUs that a unit gets: those that the site asks for, else one for every rank that can use one.

        Raises `UserError` when there are not so many.
        """
        asked, there = resources.gpus_per_node, len(self.names or [])
        if not asked and there:
            asked = {Gpus.NONE: 0, Gpus.RANKS: resources.ranks_per_node}.get(gpus_of(stage), 1)
        if asked > there:
            way_out = f"ranks_per_node: {there}, or gpus: 0 for the CPU" if there else "gpus_per_node: 0"
            raise UserError(
                f"site {self._site.name}: {stage} needs {asked} GPUs for {resources.ranks_per_node} ranks and this"
                f" machine shows {there or 'none'} to its torch; set {way_out}"
            )
        return asked

    def free(self, running: Iterable[str]) -> list[str]:
        """GPUs that none of the running jobs holds."""
        taken = [name for job in running for name in self._held.get(job, [])]
        return [name for name in self.names or [] if name not in taken]

    def hold(self, job: str, names: list[str]) -> None:
        """Note which GPUs a job has got."""
        self._held[job] = names


def visible_gpus() -> list[str]:
    """GPUs that CUDA_VISIBLE_DEVICES names where it is set, else those of the driver; none for a torch without CUDA."""
    if _is_built_for_cpus():
        return []
    if VISIBLE_VARIABLE in os.environ:
        words = os.environ[VISIBLE_VARIABLE].split(",")
        return [word.strip() for word in words if word.strip() not in ("", "-1", "NoDevFiles")]
    return [str(number) for number in range(_count())]


def _is_built_for_cpus() -> bool:
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


def _count() -> int:
    """By the driver's own program, which also knows where there are no device files; else by these."""
    if shutil.which("nvidia-smi"):
        try:
            answer = subprocess.run(
                ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        return sum(line.startswith("GPU ") for line in answer.stdout.splitlines()) if answer.returncode == 0 else 0
    return len(list(DEVICE_FILES.glob("nvidia[0-9]*")))
