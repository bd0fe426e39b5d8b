"""Files of a contract that somebody sent: they are what was signed, and fit its experiment."""

from pathlib import Path
from typing import cast

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.exchange import signed_folder
from hpcddm.exchange.contract import FILE, PROBE, Contract
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile, TensorSpec
from hpcddm.runs.ranges import PROBE_SAMPLES


def check_files(contract: Contract, experiment: Experiment, folder: Path) -> None:
    """Check partition and probe of a contract.

    Args:
        contract: The contract.
        experiment: The experiment that was made of it.
        folder: Folder of the contract.

    Raises:
        UserError: A file is missing or not what was signed, or does not fit the experiment; the message names it.
    """
    # torch, which what is read before does not need.
    from hpcddm.clustering.agreed import ADVICE, AgreedClustering
    from hpcddm.clustering.base import Clustering

    signed_folder.receive(folder, FILE, contract.files, None, lambda size: None)
    try:
        agreed = variants.create(Clustering, experiment.cluster.clustering)
        cast(AgreedClustering, agreed).check(experiment)
        with TensorFile(folder / PROBE) as file:
            _check_probe(file, experiment)
    except Unreadable as error:
        raise UserError(f"{printable(str(error.path))}: {error.reason}; {ADVICE}") from None


def _check_probe(file: TensorFile, experiment: Experiment) -> None:
    data = experiment.data
    expected: dict[str, TensorSpec] = {}
    for cluster in range(experiment.cluster.experts):
        name = f"images-{cluster:02d}"
        found = file.forms.get(name)
        count = found.shape[0] if found and found.shape else 0
        if count > PROBE_SAMPLES:
            raise Unreadable(file.path, f"tensor '{name}' has {count:,} images, more than {PROBE_SAMPLES}")
        expected[name] = TensorSpec("U8", (count, data.image_size, data.image_size, data.channels))
        if data.num_classes is not None:
            expected[f"classes-{cluster:02d}"] = TensorSpec("I64", (count,))
    file.require(expected)
