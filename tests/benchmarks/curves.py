"""When a seeded training has the loss of an unseeded one: python -m tests.benchmarks.curves sweeps/conversion

Of the longest trainings, mean over the seeds, smoothed over 4 points of the curve; lowest loss so far.
"""

from pathlib import Path

import numpy as np

from hpcddm.files import checked_reads
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.sweep_index import read_index
from hpcddm.runs.unit_keys import expert_key
from tests.benchmarks.tables import given_runs, print_header, print_row

IMAGES, START = "experts.training.images", "experts.init_from"
POINTS = 4


def curve(folders: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Images seen and smoothed loss, mean over some trainings of equal length."""
    stored = np.array([checked_reads.read_json(folder / "curve.json") for folder in folders])
    loss = np.convolve(stored[..., 1].mean(0), np.full(POINTS, 1 / POINTS), "valid")
    return stored[0, POINTS - 1 :, 0], np.minimum.accumulate(loss)


def main() -> None:
    """Print the losses at all budgets."""
    (root,) = given_runs(__doc__)
    home = RunDir(root)
    settings = read_index(home).settings
    budgets = sorted({setting[IMAGES] for setting in settings.values()})
    longest = {label: setting for label, setting in settings.items() if setting[IMAGES] == budgets[-1]}
    units = {label: RunDir(home.root / label).unit(expert_key(0)) for label in longest}
    images, random = curve([units[label] for label, setting in longest.items() if not setting[START]])
    _, seeded = curve([units[label] for label, setting in longest.items() if setting[START]])
    print_header("images", "loss from random weights", "the same loss from the seed after")
    for budget in budgets:
        loss = random[images <= budget][-1]
        print_row(f"{budget:,}", f"{loss:.2f}", f"{np.interp(-loss, -seeded, images):,.0f}")


if __name__ == "__main__":
    main()
