"""Resources that a unit has and its job reads; the keys of a site that only a submission uses are in `site.py`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpcddm.config.schema import Positive, StrictModel, inner_error


class JobResources(StrictModel):
    """Resources of one unit as its job reads them, without the keys that only its submission uses."""

    nodes: Positive = 1
    ranks_per_node: Positive = 1
    cpus_per_rank: Positive = 1
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    memory_gb: Positive = 4
    minutes: Positive = 60
    zero_stage: Literal[0, 1, 2, 3] = 1
    """ZeRO stage of DeepSpeed: 0 shards nothing, 1 optimizer states, 2 also gradients, 3 also weights."""
    micro_batch: Positive | None = None
    """Maximum number of images per forward pass of a rank; by default the rank's whole share of a batch."""
    checkpoint_blocks: Annotated[int, Field(ge=0)] = 0
    """Interval n of activation checkpointing: every n-th block recomputes its activations; 1 for all, 0 for none."""
    compile_blocks: Literal["auto", True, False] = "auto"
    """True to compile the blocks of a network with `torch.compile` at the start of its training.

    'auto' compiles them on GPUs, in trainings of more than some minutes.
    """
    sync_every_steps: Positive = 16
    """Maximum number of steps between two agreements of the ranks on stops and saves; fewer if steps are slow."""

    @model_validator(mode="after")
    def _can_compile(self) -> "JobResources":
        if self.compile_blocks is True and self.zero_stage == 3:
            raise inner_error(
                "compile_blocks: true needs zero_stage: 0, 1 or 2; in 3 weights come and go within a block"
            )
        return self

    @property
    def ranks(self) -> int:
        """World size of the unit."""
        return self.nodes * self.ranks_per_node
