"""Access to the weights, moments and loss scale of fp16 that DeepSpeed keeps, in each stage of ZeRO.

Beside corrections.py the only file that knows names which are not DeepSpeed's public interface.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.training.state_slices import Slice

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

STEP = "step"
"""Name under which torch's optimizers count their steps."""
SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter")


def master_weights(engine: "DeepSpeedEngine") -> list[torch.Tensor]:
    """Return this rank's shards of the fp32 weights, flat ones; without ZeRO (stage 0) all weights, one by one."""
    optimizer, stage = engine.optimizer, engine.zero_optimization_stage()
    if stage == 3:
        return optimizer.fp32_partitioned_groups_flat
    if stage == 0:
        return [weight for group in optimizer.param_groups for weight in group["params"]]
    return optimizer.fp32_groups_flat_partition if is_zero1_bf16(engine) else optimizer.single_partition_of_fp32_groups


@torch.no_grad()
def set_master_weights(engine: "DeepSpeedEngine", values: Mapping[str, torch.Tensor]) -> None:
    """Set the fp32 weights of all ranks to rank 0's values of the trained parameters, by name; collective.

    DeepSpeed's `safe_set_full_fp32_param` changes nothing without ZeRO, and fails in stage 3 where the ranks cannot
    share a parameter evenly.
    """
    weights, held = master_weights(engine), {part.name: part for part in slices(engine)}
    for name, own in values.items():
        whole = own.flatten().to(weights[0].device)
        dist.broadcast(whole, 0)
        if name in held:
            part = held[name]
            part.within(weights[part.shard]).copy_(whole[part.start : part.start + part.length])


def contiguous_spans(engine: "DeepSpeedEngine", number: int) -> Iterator[tuple[slice, list[nn.Parameter]]]:
    """Yield the pieces of a `master_weights` shard that are contiguous in all ranks' shards, with their parameters."""
    optimizer, stage = engine.optimizer, engine.zero_optimization_stage()
    if stage == 3:
        offset = 0
        # Each parameter is cut in as many parts as there are ranks, and the last part is filled up.
        for parameter in optimizer.fp16_groups[number]:
            yield slice(offset, offset + parameter.partition_numel()), [parameter]
            offset += parameter.partition_numel()
    elif stage == 0:
        whole = [group["params"] for group in optimizer.param_groups]
        groups = optimizer.fp16_groups if is_low_precision(engine) else whole
        yield slice(None), [[weight for group in groups for weight in group][number]]
    else:
        yield slice(None), (optimizer.bf16_groups if is_zero1_bf16(engine) else optimizer.bit16_groups)[number]


def split_by_parameter(
    parameters: Iterable[nn.Parameter], flat: torch.Tensor
) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
    """Yield parameters with their values, views of a whole piece in their shapes; flat: (length,)."""
    offset = 0
    for parameter in parameters:
        # In stage 3 a parameter itself is empty.
        shape = getattr(parameter, "ds_shape", parameter.shape)
        count = math.prod(shape)
        yield parameter, flat[offset : offset + count].view(shape)
        offset += count


def slices(engine: "DeepSpeedEngine") -> list[Slice]:
    """List the values of each parameter that the shards of this rank hold, without padding."""
    stage, rank = engine.zero_optimization_stage(), dist.get_rank()
    names = {id(parameter): name for name, parameter in engine.module.named_parameters()}
    held = []
    for number, shard in enumerate(master_weights(engine)):
        first, offset = (rank * shard.numel() if stage in (1, 2) else 0), 0
        for piece, parameters in contiguous_spans(engine, number):
            for parameter in parameters:
                count = math.prod(getattr(parameter, "ds_shape", parameter.shape))
                if stage == 3:
                    length, at = piece.stop - piece.start, piece.start
                    start, stop = rank * length, min((rank + 1) * length, count)
                else:
                    start, stop = max(first - offset, 0), min(first + shard.numel() - offset, count)
                    at = offset + start - first
                    offset += count
                held.append(Slice(number, at, names[id(parameter)], start, stop - start))
    return [part for part in held if part.length > 0]


def is_zero1_bf16(engine: "DeepSpeedEngine") -> bool:
    """Tell if the optimizer is the one of ZeRO-1 that keeps fp32 gradients of bf16 weights."""
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer

    return isinstance(engine.optimizer, BF16_Optimizer)


def scaler_state(engine: "DeepSpeedEngine") -> dict[str, float]:
    """Return what the loss scale of fp16 depends on; nothing in other precisions, which scale no loss."""
    scaler = loss_scaler(engine) if engine.fp16_enabled() else None
    return {} if scaler is None else {name: getattr(scaler, name) for name in SCALER_STATE}


def set_scaler_state(engine: "DeepSpeedEngine", state: dict[str, float]) -> None:
    """Have the loss scale go on from `scaler_state`."""
    for name in scaler_state(engine).keys() & state.keys():
        setattr(loss_scaler(engine), name, state[name])


def loss_scaler(engine: "DeepSpeedEngine") -> Any:
    """Return the object that knows the loss scale of fp16."""
    optimizer = engine.optimizer
    return optimizer.loss_scale_config if engine.zero_optimization_stage() == 0 else optimizer.loss_scaler


def is_low_precision(engine: "DeepSpeedEngine") -> bool:
    """Tell if the network computes in bf16 or fp16."""
    return engine.bfloat16_enabled() or engine.fp16_enabled()


def moments(engine: "DeepSpeedEngine") -> dict[str, list[torch.Tensor | None]]:
    """Return what the optimizer keeps for every value of the shards in `master_weights`; None before its first step."""
    kept = [base_optimizer(engine).state.get(shard, {}) for shard in master_weights(engine)]
    names = sorted({name for state in kept for name, value in state.items() if name != STEP and value is not None})
    return {name: [state.get(name) for state in kept] for name in names}


def steps(engine: "DeepSpeedEngine") -> list[float | None]:
    """Return the number of steps of each shard in `master_weights`; None where the optimizer counts none, so far."""
    kept = [base_optimizer(engine).state.get(shard, {}) for shard in master_weights(engine)]
    return [None if state.get(STEP) is None else float(state[STEP]) for state in kept]


def set_moments(engine: "DeepSpeedEngine", number: int, kept: dict[str, torch.Tensor], step: float | None) -> None:
    """Have the optimizer go on with these tensors of a shard, and after so many steps."""
    shard = master_weights(engine)[number]
    counted = {} if step is None else {STEP: torch.tensor(step, dtype=torch.float32, device=shard.device)}
    base_optimizer(engine).state[shard] = kept | counted


def base_optimizer(engine: "DeepSpeedEngine") -> torch.optim.Optimizer:
    """Return torch's optimizer, which without ZeRO in fp32 is DeepSpeed's as well."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


@contextmanager
def temporary_weights(engine: "DeepSpeedEngine", shards: list[torch.Tensor]) -> Iterator[None]:
    """Have the network compute with these values, in the order and the shapes of `master_weights`, such as an EMA.

    Collective, as is the return to the trained weights at the end.
    """
    if engine.zero_optimization_stage() == 0 and not is_low_precision(engine):
        weights = master_weights(engine)
        trained = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, shards)
            yield
            torch._foreach_copy_(weights, trained)
        return
    set_network_weights(engine, shards)
    yield
    set_network_weights(engine, master_weights(engine))


@torch.no_grad()
def set_network_weights(engine: "DeepSpeedEngine", shards: list[torch.Tensor]) -> None:
    """Round these values, in the order and the shapes of `master_weights`, to the weights of the network; collective.

    Without ZeRO in fp32 those are the network's weights themselves, and nothing is to be done.
    """
    optimizer, stage = engine.optimizer, engine.zero_optimization_stage()
    if stage == 3:
        optimizer._partition_all_parameters()
        for number, shard in enumerate(shards):
            optimizer.fp16_partitioned_groups_flat[number].copy_(shard)
            optimizer._unflatten_partitioned_parameters(number)
        if optimizer.persistent_parameters:
            optimizer.persistent_parameters[0].all_gather(optimizer.persistent_parameters)
    elif stage > 0:
        name = "fp32_groups_flat_partition" if is_zero1_bf16(engine) else "single_partition_of_fp32_groups"
        trained = getattr(optimizer, name)
        setattr(optimizer, name, shards)
        optimizer.update_lp_params()
        setattr(optimizer, name, trained)
    elif is_low_precision(engine):
        rounded = [weight for group in optimizer.fp16_groups for weight in group]
        torch._foreach_copy_(rounded, shards)
