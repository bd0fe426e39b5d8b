"""A tiny experiment on real images, and the command line as a user calls it."""

import os
import subprocess
import sys

from hpcddm.config.variants import VARIANTS_VARIABLE
from tests import warm_process

TINY = [
    "data.shards=2",
    "experts.training.precision=fp32",
    "router.training.precision=fp32",
    "experts.training.images=2048",
    "experts.training.batch=64",
    "experts.training.snapshots=[1000, 2048]",
    "experts.training.power_ema=[0.05, 0.1]",
    "experts.model.heads=3",
    "evaluate.guidance=1.0",
    "experts.model.width=48",
    "experts.model.depth=2",
    "router.model.width=48",
    "router.model.depth=1",
    "router.training.images=1024",
    "evaluators.extractor.training.images=1024",
    "evaluators.classifier.training.images=1024",
    "evaluate.images=400",
    "evaluate.batch=50",
    "evaluate.steps=4",
]
"""The quickstart, shrunk to what trains in seconds."""

CLI = "hpcddm.cli"
TWO_RANKS = """
name: two-ranks
scheduler: local
stages:
  train: {ranks_per_node: 2, checkpoint_blocks: 1}
"""


def hpcddm(*arguments: object, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess:
    """Run the command line as a user would."""
    settings = os.environ | environment
    if VARIANTS_VARIABLE not in settings:
        return warm_process.run(CLI, *arguments, timeout=timeout, environment=settings)
    # The lists of variants are made when the package is imported.
    command = [sys.executable, "-m", CLI, *map(str, arguments)]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=timeout, check=False)
