"""FD of the same image sets by the rulers of several seeds: python -m tests.benchmarks.rulers [KEY=VALUE ...]

For each of the experiment's seeds 0 to 4 the quickstart's extractor is trained anew in a run of its own, and measures
2,000 training images, as they are and made worse in four ways, against 2,000 held-out ones. Six minutes on two cores.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.data.evaluation_set import choose_evaluation_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.spaces.pixels import pixels_to_values, values_to_pixels
from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.launch.array_items import make_items, write_specs
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.ranges import HELDOUT, TRAIN, range_keys
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.unit_keys import CATALOG, EXTRACTOR
from hpcddm.sampling import load_ensemble
from tests.benchmarks.tables import parser_of, print_header, print_row

SEEDS = range(5)
DATA = ("shard", "catalog")
"""Stages that the runs share."""
SETS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "train (floor)": lambda images: images,
    "noise sd 16": lambda images: _noisy(images, 16),
    "noise sd 32": lambda images: _noisy(images, 32),
    "blur 3 x 3": lambda images: F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1),
    "shifted 2 px": lambda images: F.pad(images, (2, 0, 2, 0), mode="replicate")[..., :-2, :-2],
}


def distances(experiment: Experiment, run: RunDir) -> dict[str, float]:
    """The FD of every image set to held-out images, measured by the run's extractor."""
    extractor = load_ensemble.load_evaluator(experiment, EXTRACTOR, run.unit, torch.device("cpu"))
    reference = _statistics(extractor, _images(experiment, run, HELDOUT))
    images = _images(experiment, run, TRAIN)
    changed = {
        name: pixels_to_values(torch.from_numpy(values_to_pixels(change(images)))) for name, change in SETS.items()
    }
    return {name: frechet_distance(_statistics(extractor, moved), reference) for name, moved in changed.items()}


def make(experiment: Experiment, run: RunDir, keys: Sequence[str]) -> None:
    """Make some units of a run, in one process: DeepSpeed starts only once in each."""
    stored = with_relative_paths(experiment, run)
    units = {unit.key: unit for unit in plan_units(stored)}
    write_specs(make_items([units[key] for key in keys], stored, run), Site(name="here", scheduler="local"))
    specs = [str(run.spec(key)) for key in keys]
    code = "import sys; from pathlib import Path; from hpcddm.jobs import entry, stopping;"
    code += " sys.exit(max(entry._run(Path(spec), stopping.StopFlag()) for spec in sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", code, *specs], check=True, stdout=sys.stderr)


def data_keys(experiment: Experiment) -> list[str]:
    """The units that the evaluators read, and those that these read."""
    return [*range_keys(experiment, "shard"), CATALOG]


def _images(experiment: Experiment, run: RunDir, split: str) -> torch.Tensor:
    """The evaluation's real images of a split: (N, C, H, W) in [-1, 1]."""
    catalog, names = open_catalog(run, split), [str(label) for label in range(experiment.data.num_classes)]
    chosen = choose_evaluation_samples(catalog, experiment, names)
    return pixels_to_values(torch.from_numpy(CatalogReader(catalog).images(chosen)))


def _noisy(images: torch.Tensor, deviation: float) -> torch.Tensor:
    """Gaussian noise of `deviation` grey levels of 255."""
    return images + torch.randn(images.shape, generator=torch.Generator().manual_seed(0)) * deviation / 127.5


@torch.no_grad()
def _statistics(extractor: torch.nn.Module, images: torch.Tensor) -> FeatureStatistics:
    features = [extractor.features(part).numpy() for part in images.split(500)]
    return FeatureStatistics.from_features(np.concatenate(features))


def main() -> None:
    """Print a row for each image set."""
    parser = parser_of(__doc__)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="other settings of the quickstart")
    changes = parser.parse_args().changes
    print_header("set", *(f"seed {seed}" for seed in SEEDS))
    with tempfile.TemporaryDirectory() as folder:
        seeds = [f"seed={seed}" for seed in SEEDS]
        runs = {RunDir(Path(folder) / seed): load_experiment("quickstart", (*changes, seed)) for seed in seeds}
        first, *others = runs
        for run in others:
            run.root.mkdir()
            for stage in DATA:
                (run.root / stage).symlink_to(first.root / stage)
        make(runs[first], first, data_keys(runs[first]))
        columns = []
        for run, experiment in runs.items():
            make(experiment, run, [EXTRACTOR])
            columns.append(distances(experiment, run))
    for name in SETS:
        print_row(name, *(f"{column[name]:.6g}" for column in columns))


if __name__ == "__main__":
    main()
