"""Agreement of all ranks, every few steps, on what one of them wants."""

import time

import torch
import torch.distributed as dist

INTERVAL_SECONDS = 1.0
"""Longest time between two agreements, as far as steps are not longer: a stop that is requested waits for the next."""


class RankAgreement:
    """Agreement of all ranks on their wishes, by messages between the hosts, so that no GPU is waited for.

    most_steps: most steps between two agreements; fewer where they take longer than `SECONDS`, so that the time that
    Slurm grants before the end of an allocation is left for saving. One rank on its own agrees at every step.
    """

    def __init__(self, most_steps: int) -> None:
        self._group = dist.new_group(backend="gloo")
        self._most_steps = most_steps if dist.get_world_size() > 1 else 1
        self._interval = self._steps = 0
        self._time = time.monotonic()

    def is_due(self) -> bool:
        """Count a step, and tell if the ranks are to agree after it; the same on all ranks."""
        self._steps += 1
        return self._steps > self._interval

    def reach(self, *wishes: bool) -> tuple[bool, ...]:
        """Return for each wish if any rank has it; collective."""
        now = time.monotonic()
        steps = max(1, min(int(INTERVAL_SECONDS * self._steps / max(now - self._time, 1e-9)), self._most_steps))
        self._steps, self._time = 0, now
        if dist.get_world_size() == 1:
            return wishes
        # All ranks go on for as many steps as the first proposes.
        flags = torch.tensor([*wishes, steps if dist.get_rank() == 0 else 0], dtype=torch.int32)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._group)
        *agreed, proposed = flags.tolist()
        self._interval = proposed - 1
        return tuple(map(bool, agreed))
