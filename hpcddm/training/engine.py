"""Wrapper of DeepSpeed with step, save and load, and with a sharded fp32 EMA of the fp32 master weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.config.training import Training
from hpcddm.files.tensor_file import TensorFile
from hpcddm.jobs.environment import Ranks
from hpcddm.runs.weights_files import USUAL
from hpcddm.training import corrections, masters, shards
from hpcddm.training.ema import Ema, update_weights
from hpcddm.training.schedule import learning_rate
from hpcddm.training.shards import Shards, Slice, Stored

PIECE = 4_000_000
"""Number of values sent at once when the weights are gathered: 16 MB."""
MASTER = "master"
"""Kind of values in a training state beside those of the optimizer and of every average, which bear their names."""


ParameterGroups = list[dict[str, Any]]
OptimizerOf = Callable[[ParameterGroups, Training], torch.optim.Optimizer]


BUCKET = 50_000_000
"""Largest number of values of a gradient that ranks reduce at once."""


class Engine:
    """One model under training on all ranks of a unit; all methods are collective.

    micro_batches: number of equal parts in which a rank's images of a step go through the network;
    optimizer_of: another optimizer than AdamW, for comparisons.
    """

    def __init__(
        self,
        model: nn.Module,
        training: Training,
        ranks: Ranks,
        device: torch.device,
        zero_stage: int = 1,
        micro_batches: int = 1,
        optimizer_of: OptimizerOf | None = None,
    ) -> None:
        deepspeed = corrections.import_deepspeed(device)
        corrections.require_precision(training.precision)
        self._training, self.micro_batches, self._is_sharded = training, micro_batches, zero_stage > 0
        # DeepSpeed casts the whole module: tensors that are not trained are kept here in their own dtype.
        trained = {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._fixed = {name: value.clone() for name, value in model.state_dict().items() if name not in trained}
        count = sum(values.numel() for values in trained.values())
        optimizer = (optimizer_of or _adamw)(_parameter_groups(model, training.weight_decay), training)
        settings = {
            "train_micro_batch_size_per_gpu": training.batch // ranks.world_size // micro_batches,
            "gradient_accumulation_steps": micro_batches,
            "gradient_clipping": training.gradient_clip,
            # DeepSpeed would hold 2 GB for the largest bucket, whatever the size of the network.
            "zero_optimization": {"stage": zero_stage, "reduce_bucket_size": min(BUCKET, count)},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": training.precision == "bf16"},
            "fp16": {"enabled": training.precision == "fp16"} | corrections.LOSS_SCALING,
            # In bf16 the small gradients of one micro batch, or rank, would be lost in the sum of all.
            "data_types": {"grad_accum_dtype": "fp32"} if zero_stage else {},
            "communication_data_type": "fp32",
            "steps_per_print": 10**9,
            # It would wait for the GPU at both ends of every step.
            "timers": {"throughput": {"enabled": False}},
        }
        self._engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=settings, dist_init_required=False
        )
        corrections.adapt(self._engine, trained)
        self.model = self._engine
        self._update_weights = update_weights(training)
        self._averages = {name: Ema(masters.master_weights(self._engine)) for name in self._update_weights}
        self._device = device
        self._host: Shards = {}

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of the mean loss of one micro batch of this rank."""
        self._engine.backward(loss)
        if not self._engine.is_gradient_accumulation_boundary():
            self._engine.step()

    def step(self, images_seen: int) -> bool | torch.Tensor:
        """Make one optimizer step after the last micro batch; `images_seen` includes the images of all ranks.

        Returns whether the step was made, on a GPU as a tensor, (), that nobody has read yet: where the gradient of any
        rank is not finite, no rank changes anything.
        """
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate(images_seen, self._training)
        self._engine.step()
        corrections.forget_gradients(self._engine)
        made = corrections.was_made(self._engine)
        if made is not False:
            weights = masters.master_weights(self._engine)
            for name, weight in self._update_weights.items():
                self._averages[name].update(weights, weight(images_seen), made)
        return made

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Have the network compute with the usual average, as it does after the training; collective.

        Afterwards it is as it was.
        """
        self._engine.eval()
        with masters.shown(self._engine, self._averages[USUAL].shards):
            yield
        self._engine.train()

    def gradient_norm(self) -> float | None:
        """Return the L2 norm of the last step's gradient over all ranks, before clipping; waits for the device.

        None before the first step and after one that was not made.
        """
        return corrections.gradient_norm(self._engine)

    def scaler_state(self) -> dict[str, float]:
        """Return what the loss scale of fp16 depends on: small values that belong to a training state."""
        return masters.scaler_state(self._engine)

    def set_scaler_state(self, state: dict[str, float]) -> None:
        """Continue from a `scaler_state`."""
        masters.set_scaler_state(self._engine, state)

    def host_copy(self) -> "HostCopy":
        """Copy this rank's part of the training state to its host; valid until the next call."""
        if not self._is_sharded and dist.get_rank() > 0:
            # Without ZeRO all ranks have the same.
            return HostCopy({}, [], [])
        averages = {name: average.shards for name, average in self._averages.items()}
        kinds = {MASTER: masters.master_weights(self._engine)} | averages | masters.moments(self._engine)
        self._host = {kind: _copied(own, self._host.get(kind)) for kind, own in kinds.items()}
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return HostCopy(self._host, masters.steps(self._engine), masters.slices(self._engine))

    def load(self, files: list[TensorFile]) -> None:
        """Continue from the files of a training state, which any number of ranks wrote in any stage of ZeRO."""
        weights, slices = masters.master_weights(self._engine), masters.slices(self._engine)
        with torch.no_grad(), Stored(files) as stored:
            for part in slices:
                stored.fill(MASTER, part, part.within(weights[part.shard]))
                for name, average in self._averages.items():
                    stored.fill(name, part, part.within(average.shards[part.shard]))
            for number, shard in enumerate(weights):
                parts = [part for part in slices if part.shard == number]
                self._load_moments(number, shard, parts, stored)
        masters.set_network(self._engine, weights)

    def _load_moments(self, number: int, shard: torch.Tensor, parts: list[Slice], stored: Stored) -> None:
        moments: dict[str, torch.Tensor] = {}
        for kind in stored.kinds - {MASTER, *self._averages}:
            there = [part for part in parts if stored.has(kind, part)]
            if there:
                moments[kind] = torch.zeros_like(shard)
            for part in there:
                stored.fill(kind, part, part.within(moments[kind]))
        steps = [stored.steps(part) for part in parts]
        if moments:
            masters.set_moments(self._engine, number, moments, max(filter(None, steps), default=None))

    def averaged_weights(self, average: str = USUAL) -> dict[str, torch.Tensor]:
        """Gather an average of trained tensors, fp32, and the others, by name on the host of rank 0; elsewhere {}.

        Costs one model of host memory on rank 0, and a piece at a time everywhere else.
        """
        fixed = {name: value.cpu() for name, value in self._fixed.items()} if dist.get_rank() == 0 else {}
        return fixed | self.gathered(self._averages[average].shards)

    def gathered(self, shards_of_this_rank: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gather trained tensors, or averages of them, by name on the host of rank 0; elsewhere {}.

        shards_of_this_rank: in the order and the shapes of `masters.master_weights`.
        """
        names = {id(parameter): name for name, parameter in self._engine.module.named_parameters()}
        weights: dict[str, torch.Tensor] = {}
        for number, shard in enumerate(shards_of_this_rank):
            for piece, parameters in masters.pieces(self._engine, number):
                flat = _gather_to_first(shard[piece]) if self._is_sharded else _on_first(shard)
                shaped = () if flat is None else masters.in_shapes(parameters, flat)
                weights |= {names[id(parameter)]: values for parameter, values in shaped}
        return weights


@dataclass(frozen=True)
class HostCopy:
    """A rank's part of a training state in its host's memory."""

    kinds: Shards
    steps: list[float | None]
    slices: list[Slice]

    def write(self, folder: Path) -> list[Path]:
        """Write it and return the files, of which there are none where another rank writes the same."""
        if not self.slices:
            return []
        file = folder / f"rank{dist.get_rank():05d}.safetensors"
        shards.write(self.kinds, self.steps, self.slices, file)
        return [file]


def _copied(
    values: Sequence[torch.Tensor | None], buffers: Sequence[torch.Tensor | None] | None
) -> list[torch.Tensor | None]:
    """Copy tensors to the host, into buffers where there are some; waits for no GPU.

    New memory costs more than the copy, and memory that a GPU can write to much more.
    """
    copies: list[torch.Tensor | None] = []
    for value, buffer in zip(values, buffers or [None] * len(values), strict=True):
        if value is None:
            copies.append(None)
            continue
        own = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda) if buffer is None else buffer
        copies.append(own.copy_(value.detach(), non_blocking=True))
    return copies


def _adamw(groups: ParameterGroups, training: Training) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=training.eps, fused=True)


def _parameter_groups(model: nn.Module, weight_decay: float) -> ParameterGroups:
    """Return AdamW's groups of trained parameters: matrices and kernels, which decay, and norms and biases."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if weight_decay == 0:
        return [{"params": trained, "weight_decay": 0.0}]
    groups = {weight_decay: [weight for weight in trained if weight.ndim > 1]}
    groups[0.0] = [weight for weight in trained if weight.ndim <= 1]
    return [{"params": own, "weight_decay": decay} for decay, own in groups.items() if own]


def _gather_to_first(shard: torch.Tensor) -> torch.Tensor | None:
    """Concatenate the shards of all ranks, (ranks x length,), on the host of rank 0; return None on the others."""
    length, world_size = shard.numel(), dist.get_world_size()
    pieces = [slice(start, min(start + PIECE, length)) for start in range(0, length, PIECE)]
    if dist.get_rank() > 0:
        for piece in pieces:
            dist.send(shard[piece], 0)
        return None
    flat = torch.empty(world_size, length, dtype=shard.dtype)
    flat[0].copy_(shard)
    for source in range(1, world_size):
        for piece in pieces:
            received = torch.empty_like(shard[piece])
            dist.recv(received, source)
            flat[source, piece].copy_(received)
    return flat.view(-1)


def _on_first(whole: torch.Tensor) -> torch.Tensor | None:
    """Return the values of a tensor that every rank has, flat, on the host of rank 0; None on the others."""
    return whole.detach().cpu().flatten() if dist.get_rank() == 0 else None
