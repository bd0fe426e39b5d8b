"""How near averages made after a training are to kept ones: python -m tests.benchmarks.averages RUN

The run needs experts.training.power_ema with 0.05, 0.1 and the lengths that are compared, and snapshots.
"""

import torch
from safetensors.torch import load_file

from hpcddm.config.experiment import Experiment
from hpcddm.files.tensor_file import TensorFile
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import train_keys
from hpcddm.runs.weights_files import WeightsChoice, power_average_name, weights_name
from hpcddm.sampling import posthoc_ema
from tests.benchmarks.tables import given_runs, print_header, print_row

MADE_OF = [0.05, 0.1]


def of_two(experiment: Experiment) -> Experiment:
    """The experiment as if it had kept two lengths alone."""
    training = experiment.experts.training.model_copy(update={"power_ema": MADE_OF})
    return experiment.model_copy(update={"experts": experiment.experts.model_copy(update={"training": training})})


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """All values, in the order of their names."""
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])


def apart(experiment: Experiment, run: RunDir, key: str, number: int | None, sigma_rel: float) -> tuple[float, float]:
    """L2 norm of the difference, over that of the weights, and over what lies between the two that were kept."""

    def kept(length: float) -> torch.Tensor:
        return flat(load_file(run.unit(key) / weights_name(number, power_average_name(length))))

    with TensorFile(run.unit(key) / weights_name(None)) as file:
        forms = file.forms
    made = flat(posthoc_ema.average(of_two(experiment), key, run.unit(key), WeightsChoice(number, sigma_rel), forms))
    direct = kept(sigma_rel)
    between = kept(MADE_OF[0]) - kept(MADE_OF[1])
    return ((made - direct).norm() / direct.norm()).item(), ((made - direct).norm() / between.norm()).item()


def main() -> None:
    """Print a table: the mean over all experts."""
    (root,) = given_runs(__doc__)
    run = RunDir(root)
    experiment = stored_experiment(run)
    training, keys = experiment.experts.training, train_keys(experiment)
    lengths = [length for length in training.power_ema if length not in MADE_OF]
    print_header("images", "sigma_rel", "of the weights", "of what lies between those of 0.05 and 0.1")
    for number in (*training.snapshots, None):
        for length in lengths:
            pairs = [apart(experiment, run, key, number, length) for key in keys]
            weights, between = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
            print_row(f"{number or training.images:,}", f"{length:g}", f"{weights:.2e}", f"{between:.2%}")


if __name__ == "__main__":
    main()
