"""Wrapper of DeepSpeed with step, save and load, and with a sharded fp32 EMA of the fp32 master weights."""

import os
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from hpcddm.config import Training
from hpcddm.models.checkpoints.writing import save_tensors
from hpcddm.runtime.environment import Ranks

PIECE = 4_000_000
"""Number of values sent at once when the weights are gathered: 16 MB."""
TAG = "deepspeed"
"""Name of DeepSpeed's folder within a training state."""
EMA_RAMP = 0.1
"""Largest half-life of the EMA as a share of the images seen, so that it forgets the initial weights."""


class Engine:
    """One model under training on all ranks of a unit; all methods are collective."""

    def __init__(self, model: nn.Module, training: Training, ranks: Ranks, device: torch.device) -> None:
        deepspeed = _import_deepspeed(device)
        self._training = training
        # DeepSpeed casts the whole module: tensors that are not trained are kept here in their own dtype.
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._fixed = {name: value.clone() for name, value in model.state_dict().items() if name not in trained}
        optimizer = torch.optim.AdamW(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
        )
        settings = {
            "train_micro_batch_size_per_gpu": training.batch // ranks.world_size,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": training.gradient_clip,
            "zero_optimization": {"stage": training.zero_stage},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": training.precision == "bf16"},
            "steps_per_print": 10**9,
        }
        self._engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=settings, dist_init_required=False
        )
        self.model = self._engine
        self._ema = [shard.detach().clone() for shard in self._masters]

    @property
    def _masters(self) -> list[torch.Tensor]:
        """Shards of the flat fp32 weights on this rank, one per parameter group."""
        return self._engine.optimizer.single_partition_of_fp32_groups

    def step(self, loss: torch.Tensor, images_seen: int) -> bool:
        """Make one optimizer step on the mean loss of this rank's images; `images_seen` includes them.

        Returns whether the step was made: where the gradient of any rank is not finite, no rank changes anything.
        """
        self._set_learning_rate(images_seen)
        self._engine.backward(loss)
        self._engine.step()
        if self._engine.optimizer.overflow:
            return False
        halflife = min(self._training.ema_halflife_images, EMA_RAMP * images_seen)
        weight = 1 - 0.5 ** (self._training.batch / halflife)
        torch._foreach_lerp_(self._ema, self._masters, min(weight, 1.0))
        return True

    def save(self, folder: Path) -> list[Path]:
        """Write this rank's part of the training state and return the files that it consists of."""
        self._engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)
        save_tensors({str(group): shard for group, shard in enumerate(self._ema)}, self._ema_file(folder))
        optimizer = self._engine._get_zero_ckpt_name(str(folder), TAG)
        network = [self._engine._get_ckpt_name(str(folder), TAG)] if self._engine.save_non_zero_checkpoint else []
        return [self._ema_file(folder), Path(optimizer), *map(Path, network)]

    def load(self, folder: Path) -> None:
        """Continue from a training state of the same world size."""
        self._engine.load_checkpoint(str(folder), tag=TAG)
        stored = load_file(self._ema_file(folder))
        for group, shard in enumerate(self._ema):
            shard.copy_(stored[str(group)])

    def ema_weights(self) -> dict[str, torch.Tensor]:
        """Gather the EMA of trained tensors, fp32, and the other tensors by name on the host of rank 0; elsewhere {}.

        Costs one model of host memory on rank 0, and a piece at a time everywhere else.
        """
        names = {id(parameter): name for name, parameter in self._engine.module.named_parameters()}
        weights = {name: value.cpu() for name, value in self._fixed.items()} if dist.get_rank() == 0 else {}
        for group, shard in enumerate(self._ema):
            flat, offset = _gather_to_first(shard), 0
            if flat is None:
                continue
            for parameter in self._engine.optimizer.bit16_groups[group]:
                # A view: safetensors writes from where the values lie.
                weights[names[id(parameter)]] = flat[offset : offset + parameter.numel()].view(parameter.shape)
                offset += parameter.numel()
        return weights

    def _set_learning_rate(self, images_seen: int) -> None:
        warmup = self._training.warmup_images
        factor = min(1.0, images_seen / warmup) if warmup else 1.0
        for group in self._engine.optimizer.param_groups:
            group["lr"] = self._training.learning_rate * factor

    def _ema_file(self, folder: Path) -> Path:
        return folder / f"ema-rank{dist.get_rank()}.safetensors"


def _gather_to_first(shard: torch.Tensor) -> torch.Tensor | None:
    """Concatenate the shards of all ranks, (ranks x length,), on the host of rank 0; None on the others."""
    rank, length = dist.get_rank(), shard.numel()
    flat = torch.empty(dist.get_world_size() * length, dtype=shard.dtype) if rank == 0 else None
    for source in range(dist.get_world_size()):
        for start in range(0, length, PIECE):
            piece = shard[start : start + PIECE]
            if rank == source and source > 0:
                dist.send(piece, 0)
            elif rank == 0:
                if source > 0:
                    piece = torch.empty_like(piece)
                    dist.recv(piece, source)
                first = source * length + start
                flat[first : first + len(piece)].copy_(piece)
    return flat


def _import_deepspeed(device: torch.device) -> ModuleType:
    """Import DeepSpeed for this device; on CPU without compiling anything."""
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import deepspeed.ops

    if device.type == "cpu":
        # DeepSpeed would compile a shared-memory op at start (29 s, and it needs a compiler) that training never uses.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
