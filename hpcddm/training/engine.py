"""Wrapper of DeepSpeed: step, save and load, with a sharded fp32 EMA of the fp32 master weights."""

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
from hpcddm.jobs.job_environment import Ranks
from hpcddm.runs.weights_files import USUAL
from hpcddm.training import deepspeed_patches, fp32_master_weights, state_slices
from hpcddm.training.ema import Ema, update_weights
from hpcddm.training.state_slices import ShardsByKind, Slice, StateFiles

VALUES_PER_MESSAGE = 4_000_000
"""Number of values per message when weights are gathered: 16 MB."""
MASTER = "master"
"""Kind of the master weights in a training state; optimizer values and averages have kinds named after them."""


ParameterGroups = list[dict[str, Any]]
OptimizerFactory = Callable[[ParameterGroups, Training], torch.optim.Optimizer]


BUCKET = 50_000_000
"""Largest number of gradient values that ranks reduce together."""


class Engine:
    """One model under training on all ranks of a unit; all methods are collective.

    Args:
        model: Network, with the same initial weights on all ranks.
        training: Settings of the training.
        ranks: Rank of this process and number of ranks.
        device: Device of this rank.
        zero_stage: Stage of ZeRO, 0 to 3.
        micro_batches: Number of equal parts into which a rank's images of a step are split.
        optimizer_of: Function that creates another optimizer than AdamW, for comparisons.
    """

    def __init__(
        self,
        model: nn.Module,
        training: Training,
        ranks: Ranks,
        device: torch.device,
        zero_stage: int = 1,
        micro_batches: int = 1,
        optimizer_of: OptimizerFactory | None = None,
    ) -> None:
        deepspeed = deepspeed_patches.import_deepspeed(device)
        deepspeed_patches.require_precision(training.precision)
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
            "fp16": {"enabled": training.precision == "fp16"} | deepspeed_patches.LOSS_SCALING,
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
        deepspeed_patches.patch_engine(self._engine, trained)
        self.model = self._engine
        self._update_weights = update_weights(training)
        self._averages = {name: Ema(fp32_master_weights.master_weights(self._engine)) for name in self._update_weights}
        self._device = device
        self._host: ShardsByKind = {}

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of the mean loss () of one micro batch of this rank."""
        self._engine.backward(loss)
        if not self._engine.is_gradient_accumulation_boundary():
            self._engine.step()

    def step(self, images_seen: int) -> bool | torch.Tensor:
        """Apply one optimizer step after the last micro batch.

        If the gradient of any rank is not finite, all ranks skip the step.

        Args:
            images_seen: Number of images seen by all ranks, including those of this step.

        Returns:
            True if the step was applied; on a GPU as a tensor (), so that the host does not wait for it.
        """
        for group in self._engine.optimizer.param_groups:
            group["lr"] = self._training.rate_at(images_seen)
        self._engine.step()
        deepspeed_patches.discard_gradients(self._engine)
        applied = deepspeed_patches.step_was_applied(self._engine)
        if applied is not False:
            weights = fp32_master_weights.master_weights(self._engine)
            for name, weight in self._update_weights.items():
                self._averages[name].update(weights, weight(images_seen), applied)
        return applied

    @contextmanager
    def averaged_network(self) -> Iterator[None]:
        """Let the network compute with the usual average inside the context, and with its own weights afterwards."""
        self._engine.eval()
        with fp32_master_weights.temporary_weights(self._engine, self._averages[USUAL].shards):
            yield
        self._engine.train()

    def gradient_norm(self) -> float | None:
        """Return the L2 norm of the last step's gradient over all ranks, before clipping.

        The call waits for the device. The result is None before the first step and after a skipped step.
        """
        return deepspeed_patches.gradient_norm(self._engine)

    def scaler_state(self) -> dict[str, float]:
        """Return the state of the fp16 loss scaler, which is part of a training state."""
        return fp32_master_weights.scaler_state(self._engine)

    def set_scaler_state(self, state: dict[str, float]) -> None:
        """Restore the result of `scaler_state`."""
        fp32_master_weights.set_scaler_state(self._engine, state)

    def host_copy(self) -> "HostCopy":
        """Copy this rank's part of the training state to the host; the copy is valid until the next call."""
        if not self._is_sharded and dist.get_rank() > 0:
            # Without ZeRO all ranks have the same.
            return HostCopy({}, [], [])
        averages = {name: average.shards for name, average in self._averages.items()}
        masters, moments = fp32_master_weights.master_weights(self._engine), fp32_master_weights.moments(self._engine)
        kinds = {MASTER: masters} | averages | moments
        self._host = {kind: _copied(values, self._host.get(kind)) for kind, values in kinds.items()}
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return HostCopy(self._host, fp32_master_weights.steps(self._engine), fp32_master_weights.slices(self._engine))

    def load(self, files: list[TensorFile]) -> None:
        """Resume from the open files of a training state, written by any number of ranks in any stage of ZeRO."""
        weights, slices = fp32_master_weights.master_weights(self._engine), fp32_master_weights.slices(self._engine)
        with torch.no_grad(), StateFiles(files) as stored:
            for part in slices:
                stored.fill(MASTER, part, part.within(weights[part.shard]))
                for name, average in self._averages.items():
                    stored.fill(name, part, part.within(average.shards[part.shard]))
            for number, shard in enumerate(weights):
                parts = [part for part in slices if part.shard == number]
                self._load_moments(number, shard, parts, stored)
            stored.require_unchanged()
        fp32_master_weights.set_network_weights(self._engine, weights)

    def _load_moments(self, number: int, shard: torch.Tensor, parts: list[Slice], stored: StateFiles) -> None:
        moments: dict[str, torch.Tensor] = {}
        for kind in stored.kinds - {MASTER, *self._averages}:
            available = [part for part in parts if stored.has(kind, part)]
            if available:
                moments[kind] = torch.zeros_like(shard)
            for part in available:
                stored.fill(kind, part, part.within(moments[kind]))
        steps = [stored.steps(part) for part in parts]
        if moments:
            fp32_master_weights.set_moments(self._engine, number, moments, max(filter(None, steps), default=None))

    @property
    def average_names(self) -> list[str]:
        """Names of the averages, the usual average first."""
        return list(self._averages)

    def averaged_weights(self, average: str = USUAL) -> dict[str, torch.Tensor]:
        """Gather an average of the trained tensors, together with all other tensors.

        Rank 0 needs host memory for one model; the other ranks send a piece at a time.

        Args:
            average: Name of the average.

        Returns:
            On rank 0 fp32 averages and unchanged other tensors, by name, on the host; {} on the other ranks.
        """
        fixed = {name: value.cpu() for name, value in self._fixed.items()} if dist.get_rank() == 0 else {}
        return fixed | self.gather_weights(self._averages[average].shards)

    def gather_weights(self, shards_of_this_rank: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gather trained tensors, or averages of them.

        Args:
            shards_of_this_rank: Shards in the order and shapes of `fp32_master_weights.master_weights`.

        Returns:
            Tensors by name on the host of rank 0; {} on the other ranks.
        """
        names = {id(parameter): name for name, parameter in self._engine.module.named_parameters()}
        weights: dict[str, torch.Tensor] = {}
        for number, shard in enumerate(shards_of_this_rank):
            for piece, parameters in fp32_master_weights.contiguous_spans(self._engine, number):
                flat = _gather_on_rank_0(shard[piece]) if self._is_sharded else _flat_on_rank_0(shard)
                shaped = () if flat is None else fp32_master_weights.split_by_parameter(parameters, flat)
                weights |= {names[id(parameter)]: values for parameter, values in shaped}
        return weights


@dataclass(frozen=True)
class HostCopy:
    """A rank's part of a training state in host memory."""

    kinds: ShardsByKind
    steps: list[float | None]
    slices: list[Slice]

    def write(self, folder: Path) -> list[Path]:
        """Write this part into a folder and return the files; none if another rank writes the same values."""
        if not self.slices:
            return []
        file = folder / f"rank{dist.get_rank():05d}.safetensors"
        state_slices.write(self.kinds, self.steps, self.slices, file)
        return [file]


def _copied(
    values: Sequence[torch.Tensor | None], buffers: Sequence[torch.Tensor | None] | None
) -> list[torch.Tensor | None]:
    """Copy tensors to the host, into buffers if given, without waiting for the GPU.

    Allocating memory takes longer than copying, and pinned memory takes much longer.
    """
    copies: list[torch.Tensor | None] = []
    for value, buffer in zip(values, buffers or [None] * len(values), strict=True):
        if value is None:
            copies.append(None)
            continue
        copy = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda) if buffer is None else buffer
        copies.append(copy.copy_(value.detach(), non_blocking=True))
    return copies


def _adamw(groups: ParameterGroups, training: Training) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=training.eps, fused=True)


def _parameter_groups(model: nn.Module, weight_decay: float) -> ParameterGroups:
    """Return AdamW's parameter groups: matrices and kernels with weight decay, norms and biases without."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if weight_decay == 0:
        return [{"params": trained, "weight_decay": 0.0}]
    groups = {weight_decay: [weight for weight in trained if weight.ndim > 1]}
    groups[0.0] = [weight for weight in trained if weight.ndim <= 1]
    return [{"params": group, "weight_decay": decay} for decay, group in groups.items() if group]


def _gather_on_rank_0(shard: torch.Tensor) -> torch.Tensor | None:
    """Concatenate the shards of all ranks, (ranks x length,), on the host of rank 0; return None on the other ranks."""
    length, world_size = shard.numel(), dist.get_world_size()
    pieces = [slice(start, min(start + VALUES_PER_MESSAGE, length)) for start in range(0, length, VALUES_PER_MESSAGE)]
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


def _flat_on_rank_0(whole: torch.Tensor) -> torch.Tensor | None:
    """Return a replicated tensor's values, flattened, on the host of rank 0; None on the other ranks."""
    return whole.detach().cpu().flatten() if dist.get_rank() == 0 else None
