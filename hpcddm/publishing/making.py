"""Makes the folder of a published ensemble from a finished run: all of it, or nothing."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from hpcddm import __version__
from hpcddm.clustering.partition import read_arrays, save_arrays
from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError, require
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.files import atomic, tensors
from hpcddm.loading.ensemble_document import (
    CALIBRATION,
    FILE,
    LATENT_SCALE,
    REFUSED,
    EnsembleDocument,
    PublishedNetwork,
    network_file,
    network_settings,
    read_ensemble,
)
from hpcddm.publishing import card, diffusers_folder, folder_sums
from hpcddm.publishing.published_ensemble import build_network
from hpcddm.publishing.published_settings import encoder_files, is_partition_general, published_values
from hpcddm.publishing.published_units import Publication
from hpcddm.runs import files as unit_files
from hpcddm.runs import manifest, unit_keys
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.initial_weights import METADATA, describe_network
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import list_results, stored_class_names
from hpcddm.runs.unit_keys import AUTOENCODER, CLUSTER, EXPERT_LISTS, ROUTER, expert_of
from hpcddm.runs.unit_training import latent_space, resolve_training
from hpcddm.runs.weights_files import selected_training_costs, selected_weights, snapshot_number
from hpcddm.sampling.load_ensemble import load_unit_weights


@dataclass
class _Writer:
    """A folder that is being written, and the sizes and digests of what it holds."""

    run: RunDir
    experiment: Experiment
    publication: Publication
    folder: Path
    files: dict[str, ListedFile] = field(default_factory=dict)

    def add(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file of the folder, and list it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        # Some writers make files for their owner alone.
        path.chmod(self.folder.stat().st_mode & 0o666)
        atomic.sync(path)
        self.files[name] = ListedFile(path.stat().st_size, atomic.sha256(path))

    def copy(self, name: str, source: Path, digest: str | None) -> None:
        """Copy a file, whose digest must be the known one."""
        self.add(name, lambda path: shutil.copyfile(source, path))
        if digest is not None and self.files[name].sha256 != digest:
            raise UserError(f"{source}: its bytes are not those of its manifest; fetch it again")

    def copy_output(self, name: str, key: str, output: str) -> None:
        """Copy an output of a unit."""
        digest = manifest.recorded_digest(self.run.unit(key), output)
        self.copy(name, self.run.output(key, output), digest)

    def network(self, key: str) -> PublishedNetwork:
        """Write the weights of a network that the run evaluates, with a description of themselves."""
        experiment, name = self.experiment, network_file(key)
        made = manifest.read(self.run.unit(key))
        require(made is not None, f"{key}: its manifest has gone meanwhile; repeat this")
        assert made is not None
        described = self._description(key, made)
        # A router that is computed from the data always runs in fp32.
        is_untrained = key == ROUTER and experiment.router.training is None
        is_bf16 = self.publication.is_bf16 and key != AUTOENCODER and not is_untrained
        if key == AUTOENCODER:
            self.copy_output(name, key, WEIGHTS)
            parameters = resolve_training(experiment, key).parameters
        else:
            network = build_network(experiment, key)
            parameters = sum(values.numel() for values in network.parameters())
            load_unit_weights(experiment, selected_weights(experiment), network, key, self.run.unit(key))
            stored = {name: _rounded(values) if is_bf16 else values for name, values in network.state_dict().items()}
            metadata = {METADATA: json.dumps(described, sort_keys=True)}
            self.add(name, lambda path: tensors.save_tensors(stored, path, metadata))
        expert = expert_of(key) if key.startswith("train/") else None
        lists = {EXPERT_LISTS: self.publication.lists}
        return PublishedNetwork(
            file=name,
            precision="bf16" if is_bf16 else "fp32",
            parameters=parameters,
            **network_settings(experiment, key),
            cluster=expert if isinstance(expert, int) else None,
            samples=list_results(lists, expert)["samples"] if isinstance(expert, int) else None,
            images=described.get("images"),
            train_flops=None if described.get("train_flops") is None else float(described["train_flops"]),
            site=experiment.experts.site_of(expert) if isinstance(expert, int) else experiment.site,
        )

    def _description(self, key: str, made: Manifest) -> dict[str, Any]:
        described = describe_network(
            self.run.unit(key) / WEIGHTS, {}, manifest.recorded_digest(self.run.unit(key), WEIGHTS)
        )
        choice = selected_weights(self.experiment)
        if described and key != AUTOENCODER and snapshot_number(self.experiment, key, choice) is not None:
            costs = selected_training_costs(self.experiment, key, made)
            described |= {
                name: costs[name] if "start" not in made.results else None for name in ("images", "train_flops")
            }
        return described


def publish(
    run: RunDir, experiment: Experiment, publication: Publication, output: Path, say: Callable[[str], object]
) -> EnsembleDocument:
    """Write the folder of an ensemble.

    Args:
        run: The run.
        experiment: Its settings, with absolute paths.
        publication: What is published.
        output: New folder.
        say: Called with a line about each part that is written.

    Returns:
        The description of the ensemble, as others read it.

    Raises:
        UserError: A file of the run is damaged, or the folder cannot be written. Nothing of it is left then.
    """
    try:
        with _staged(output) as folder:
            writer = _Writer(run, experiment, publication, folder)
            _write(writer, say)
            written = _as_others_read_it(run, folder)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror or error}); nothing of it is left") from None
    return written


def _as_others_read_it(run: RunDir, folder: Path) -> EnsembleDocument:
    try:
        return read_ensemble(folder)[0]
    except UserError as error:
        reason = str(error).replace(f"{folder / FILE}: ", "").removesuffix(REFUSED)
        raise UserError(f"{run.root}: nobody could open what would be published: {reason}") from None


@contextmanager
def _staged(output: Path) -> Iterator[Path]:
    """Yield a hidden folder beside the output, which it becomes in one step at the end."""
    output = output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.with_name(f".{output.name}.incomplete")
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder, follow_symlinks=False)):
            # Another process has finished with the folder since it was opened.
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        raise UserError(f"{output}: is being written by another process; wait for that") from None
    try:
        # What a killed process has left.
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        yield folder
        os.rename(folder, output)
        atomic.sync(output.parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _write(writer: _Writer, say: Callable[[str], object]) -> None:
    run, experiment, publication = writer.run, writer.experiment, writer.publication
    networks = {}
    for key in publication.units:
        say(key)
        networks[key] = writer.network(key)
    if ROUTER in networks and unit_files.CALIBRATION in manifest.output_names(run.unit(ROUTER)):
        writer.copy_output(CALIBRATION, ROUTER, unit_files.CALIBRATION)
    if latent_space(experiment) is not None:
        writer.copy_output(LATENT_SCALE, unit_keys.LATENT_SCALE, unit_files.SCALE_FILE)
    if is_partition_general(experiment):
        arrays = read_arrays(run.output(CLUSTER, unit_files.PARTITION))
        writer.add(unit_files.PUBLISHED_PARTITION, lambda path: save_arrays(arrays, path))
    if publication.has_encoders:
        for name, source in encoder_files(experiment).items():
            say(name)
            writer.copy(name, source, None)
    document = EnsembleDocument(
        format="hpcddm ensemble 1",
        hpcddm=__version__,
        name=experiment.name,
        license=publication.license,
        terms=publication.terms,
        strategies=list(publication.strategies),
        class_names=stored_class_names(experiment, run),
        networks=networks,
        left_out=list(publication.without),
        experiment=published_values(experiment, publication.has_encoders),
        files=dict(writer.files),
    )
    atomic.write_text(writer.folder / FILE, f"{json.dumps(asdict(document), indent=1, allow_nan=False)}\n")
    exported = diffusers_folder.add_copies(writer.folder, document)
    card.write_card(writer.folder, run, experiment, document, exported)
    digests = {name: file.sha256 for name, file in writer.files.items()}
    folder_sums.write_sums(writer.folder, digests, publication.signer)


def _rounded(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.bfloat16) if values.dtype == torch.float32 else values
