"""The table of `make gpu-check`: all its lines, on a CPU and with a tiny network."""

import os
import subprocess
import sys

import pytest

from hpcddm.jobs import devices
from tests.benchmarks import gpu_table
from tests.helpers import REPOSITORY


def test_the_table_has_a_figure_in_every_row():
    command = [sys.executable, "-m", "tests.benchmarks.gpu_table", "--tiny", "--device", "cpu", "--rounds", "1"]
    # Compiled blocks are tested elsewhere; compiling takes most of a minute.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    figures = {row[0]: row[1] for row in rows[2:]}
    assert list(figures)[: len(gpu_table.TRAININGS)] == list(gpu_table.TRAININGS) and len(figures) == 12
    assert all(float(text.split(",")[0]) > 0 for text in figures.values())


def test_without_a_gpu_nothing_is_measured_and_that_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu_table"])
    monkeypatch.setattr(devices, "visible_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="no GPU is visible to torch here, so nothing was measured: "):
        gpu_table.main()
