"""A published ensemble: networks that draw images and give velocities without the run and the images they come from."""

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.files import checked_reads, tensors
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile, TensorSpec
from hpcddm.jobs.devices import current_device
from hpcddm.loading.ensemble_document import CALIBRATION, FILE, LATENT_SCALE, EnsembleDocument
from hpcddm.models import build_autoencoder, build_denoiser, build_router
from hpcddm.models.flops import unallocated
from hpcddm.pipeline.required_units import single_models
from hpcddm.publishing.published_settings import require_plain_weights
from hpcddm.runs import unit_keys
from hpcddm.runs.result_types import LatentScale
from hpcddm.runs.run_dir import Locate
from hpcddm.runs.unit_keys import AUTOENCODER, EXPERT_LISTS, ROUTER, expert_keys
from hpcddm.runs.unit_training import resolve_training
from hpcddm.sampling.draw_images import ImageRequest, RequestedConditions, named_conditions
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.load_ensemble import Calibration, assemble
from hpcddm.sampling.trained_model import TrainedModel

STORED = {"fp32": "F32", "bf16": "BF16"}
"""Types of the values in a file, by the precision that the document states."""


class PublishedEnsemble(TrainedModel):
    """Networks of a folder that `hpcddm publish` wrote.

    Args:
        folder: The folder.
        document: Its description.
        experiment: Settings of the experiment, from the document.

    Examples:
        >>> import hpcddm
        >>> ensemble = hpcddm.open("fashion-mnist-ddm")  # doctest: +SKIP
        >>> images = ensemble.sample(8, classes=["Sandal"])  # doctest: +SKIP
    """

    def __init__(self, folder: Path, document: EnsembleDocument, experiment: Experiment) -> None:
        super().__init__(experiment)
        self._folder, self.document = folder, document

    def __repr__(self) -> str:
        experts, strategies = self.experiment.cluster.experts, ", ".join(self.document.strategies)
        return f"<ensemble {self.experiment.name} in {self._folder}: {experts} experts; {strategies}>"

    @property
    def strategies(self) -> list[str]:
        """Strategies of the report, then the single models that are here; `sample` takes others, too."""
        alone = {key: name for name, key in reversed(single_models(self.experiment).items())}
        names = [*self.document.strategies, *(alone[key] for key in self.document.networks if key in alone)]
        return list(dict.fromkeys(names))

    @property
    def _default_strategy(self) -> str:
        return self.document.strategies[0]

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, by class number; empty for images without classes."""
        return list(self.document.class_names)

    def _known_class_names(self) -> list[str]:
        return self.class_names

    def output_locator(self) -> Locate:
        """Return a function that locates the files of the folder that stand for outputs of units."""
        require_plain_weights(self.experiment, self._folder)
        files = {unit_keys.LATENT_SCALE: LATENT_SCALE} | {key: one.file for key, one in self.document.networks.items()}

        def locate(key: str, name: str) -> Path:
            if key not in files or files[key] not in self.document.files:
                raise UserError(f"{self._folder}: has no outputs of {key}: what needs the run's data needs the run")
            if key == AUTOENCODER:
                self._require_network(key)
            path = self._checked(files[key])
            if key == unit_keys.LATENT_SCALE:
                self._require_scale(path)
            return path

        return locate

    def _checked(self, name: str) -> Path:
        """Return the path of a listed file, whose bytes are those of the document."""
        path, listed = self._folder / name, self.document.files[name]
        try:
            with open(checked_reads.open_regular(path, self._folder), "rb") as file:
                # A sparse file of terabytes is not hashed.
                size = os.fstat(file.fileno()).st_size
                require(size == listed.size, f"{path}: has {size:,} bytes instead of {listed.size:,}; refused")
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; fetch the folder again") from None
        _require_digest(path, listed, digest)
        return path

    def _request_conditions(self, request: ImageRequest, is_oracle: bool) -> RequestedConditions:
        if is_oracle:
            raise UserError(
                f"{self._folder}: only the run knows the clusters that the oracle reads; take another strategy"
            )
        named = named_conditions(self.condition, request)
        if named is None and self.experiment.data.condition.form is not ConditionForm.NONE:
            kind = "prompts" if self.experiment.data.condition.reads_captions else "classes"
            raise UserError(f"{self._folder}: only the run has the conditions of its evaluation; name {kind}")
        return RequestedConditions(self.condition.null(request.count) if named is None else named)

    def _present(self, units: Sequence[str]) -> list[str]:
        # Of the oracle's units, the expert lists are only read for the clusters that a caller names.
        needed, experts = [key for key in units if key != EXPERT_LISTS], expert_keys(self.experiment)
        present = [key for key in needed if key in self.document.networks]
        absent = [key for key in needed if key not in present]
        lacking = [key for key in absent if key not in experts or not set(experts) & set(present)]
        if lacking:
            raise UserError(
                f"{self._folder}: {lacking[0]} was not published; strategies of its networks:"
                f" {', '.join(self.strategies)}"
            )
        return present

    def _load(self, units: Sequence[str]) -> Ensemble:
        require_plain_weights(self.experiment, self._folder)
        for key in units:
            self._require_network(key)
        return assemble(self.experiment, units, current_device(), self._fill, self._calibration)

    def _calibration(self) -> Calibration | None:
        if CALIBRATION not in self.document.files:
            return None
        path = self._checked(CALIBRATION)
        calibration = validate(Calibration, checked_reads.read_required_json(path), str(path))
        if not calibration.is_of(self.experiment.cluster.experts):
            raise UserError(f"{path}: is not of {self.experiment.cluster.experts} experts; fetch the folder again")
        return calibration

    def _require_scale(self, path: Path) -> None:
        scale, channels = checked_reads.read_required_json(path, LatentScale), self.experiment.data.x_shape.channels
        if {len(scale.shift), len(scale.scale)} != {channels}:
            raise UserError(f"{path}: is not of {channels} channels; fetch the folder again")

    def _specs(self, key: str, network: nn.Module) -> dict[str, TensorSpec]:
        """Return type and shape of each stored tensor of a network."""
        stored = STORED[self.document.networks[key].precision]
        specs = tensors.tensor_specs(network.state_dict())
        return {name: TensorSpec(stored, spec.shape) if spec.dtype == "F32" else spec for name, spec in specs.items()}

    def _require_network(self, key: str) -> None:
        """Check the header of a network's file before the network takes memory."""
        with self._opened(key) as file:
            held, needed = sum(math.prod(spec.shape) for spec in file.forms.values()), _parameters(self.experiment, key)
            # By a formula: even to build a network without memory takes minutes if somebody says that it is large.
            if held < needed:
                raise Unreadable(file.path, f"holds {held:,} numbers and its network has {needed:,}")
            file.require(self._specs(key, unallocated(lambda: build_network(self.experiment, key))))

    def _opened(self, key: str) -> TensorFile:
        path = self._folder / self.document.networks[key].file
        try:
            return TensorFile(path, root=self._folder)
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; fetch the folder again") from None

    def _fill(self, network: nn.Module, key: str) -> nn.Module:
        """Fill a network with the tensors of its file, which the document lists."""
        name = self.document.networks[key].file
        with self._opened(key) as file:
            specs = self._specs(key, network)
            file.require(specs)
            values = {name: torch.empty(spec.shape, dtype=tensors.DTYPES[spec.dtype]) for name, spec in specs.items()}
            digest = file.read({name: tensors.memory(value) for name, value in values.items() if value.numel()})
        _require_digest(file.path, self.document.files[name], digest)
        broken = tensors.first_not_finite(values)
        require(broken is None, f"{printable(str(file.path))}: tensor '{broken}' is not finite; refused")
        network.load_state_dict(values)
        return network.eval().requires_grad_(False)


def build_network(experiment: Experiment, key: str) -> nn.Module:
    """Build the network of a unit, with random weights."""
    if key == ROUTER:
        return build_router.build(experiment)
    if key == AUTOENCODER:
        return build_autoencoder.build(experiment)
    return build_denoiser.build(experiment, resolve_training(experiment, key).denoiser)


def _parameters(experiment: Experiment, key: str) -> int:
    if key == ROUTER:
        return experiment.router.model.parameters(experiment.data, experiment.cluster.experts)
    return resolve_training(experiment, key).parameters


def _require_digest(path: Path, listed: ListedFile, digest: str) -> None:
    require(digest == listed.sha256, f"{path}: its bytes are not those of {FILE}; fetch the folder again")
