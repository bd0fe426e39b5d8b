"""How far the velocities of a run's networks are from the data's: python -m tests.benchmarks.velocities RUN [RUN ...]

Mean squared distance per value to eps - x0 on held-out images, by noise level; the floor, which no network reaches, is
what x_t leaves open. 'experts' is the expert of each image's own cluster, as the run's `evaluate.conversion` reads it.
"""

import torch
import torch.nn.functional as F

from hpcddm.data import run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.randomness import keyed
from hpcddm.runs import manifest
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import MONOLITH, STUDENT, expert_keys
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.dispatch import weighted_velocity
from tests.benchmarks.tables import given_runs, print_header, print_row

IMAGES = 600
LEVELS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)


@torch.no_grad()
def errors(run: RunDir) -> dict[str, list[float]]:
    """The distance of every kind of network at `LEVELS`, and of the student to its teachers."""
    experiment = stored_experiment(run)
    dense = [key for key in (MONOLITH, STUDENT) if manifest.read(run.unit(key))]
    ensemble = load_ensemble.load_ensemble(
        experiment, run.unit, [*expert_keys(experiment), *dense], torch.device("cpu")
    )
    catalog = open_catalog(run, HELDOUT)
    reader, rows = CatalogReader(catalog, run_samples.clusters(catalog)), range(min(IMAGES, len(catalog)))
    x0, classes = pixels_to_values(torch.from_numpy(reader.images(rows))), reader.labels(rows)
    eps = keyed.gaussian(0, "velocities", rows, tuple(x0.shape[1:]))
    own = F.one_hot(reader.clusters(rows), len(ensemble.experts)).float()
    found: dict[str, list[float]] = {}
    for level in LEVELS:
        t = torch.full((len(x0),), level)
        x = LINEAR.perturb(x0, eps, t)
        said = {"experts": weighted_velocity(ensemble.experts, own, x, t, classes)}
        models = {"monolith": ensemble.monolith, "student": ensemble.student}
        said |= {name: model(x, t, classes) for name, model in models.items() if model is not None}
        for name, velocity in said.items():
            found.setdefault(name, []).append((velocity - (eps - x0)).square().mean().item())
        if "student" in said:
            apart = (said["student"] - said["experts"]).square().mean().item()
            found.setdefault("student to experts", []).append(apart)
    return found


def main() -> None:
    """Print a row for every kind of network of every run."""
    roots = given_runs(__doc__)
    print_header("run", "network", *(f"t = {level:g}" for level in LEVELS))
    for root in roots:
        for name, values in errors(RunDir(root)).items():
            print_row(root.name, name, *(f"{value:.3f}" for value in values))


if __name__ == "__main__":
    main()
