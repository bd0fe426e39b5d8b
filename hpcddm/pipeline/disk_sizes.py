"""Sizes on disk that several stages share: images, training states and weights."""

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Training
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.runs.unit_training import ResolvedTraining

CURVE_POINT_BYTES = 560
"""Bytes of one point of a loss curve: as JSON, as TensorBoard events with the other metrics, and as a line of a log."""
HEADER_BYTES = 4_000
"""Bytes of names and shapes in a weights file; more for large networks, where they are negligible."""
KEPT_STATES, STAGED_STATES = 2, 1
STATE_FILES = 3
"""Files per training state besides those of the ranks: its folder, its description, and a temporary file."""
TAR_BLOCK_BYTES, PNG_CHUNK_BYTES, COLUMNS_BYTES = 512, 80, 84
"""Bytes of a tar's block, of a PNG's chunks, and of one sample's columns without a caption."""
LIST_ENTRY_BYTES, CLUSTER_BYTES = 4, 2
"""Bytes of a sample's number in a list, and of a sample's cluster."""


def values_per_image(experiment: Experiment) -> int:
    """Return the number of values of one image, which equals its bytes as uint8."""
    return experiment.data.image_size**2 * experiment.data.channels


def sample_bytes(experiment: Experiment) -> int:
    """Return the maximum bytes of one sample in a tar, which a PNG of pure noise needs."""
    # A PNG of noise has one more byte per row than the image, and its chunks.
    largest = values_per_image(experiment) + experiment.data.image_size + PNG_CHUNK_BYTES
    # Image and class are one tar entry each, in whole blocks.
    return -(-largest // TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES + 3 * TAR_BLOCK_BYTES + COLUMNS_BYTES


def state_bytes(parameters: int, training: Training) -> int:
    """Return the bytes of a training state: weights, two AdamW moments and every average, in fp32."""
    return parameters * (4 + 8 + 4 * training.num_averages)


def training_space(training: ResolvedTraining, ranks: int) -> DiskSpace:
    """Estimate the disk space of a training: weights, snapshots, loss curve and training states.

    Args:
        training: The training.
        ranks: Number of ranks.
    """
    parameters, own = training.parameters, training.settings
    kept = (1 + len(own.snapshots)) * own.num_averages
    states = KEPT_STATES + STAGED_STATES
    curve = CURVE_POINT_BYTES * (own.images // own.log_every_images + 1)
    # The folder of the states, weights, curve, TensorBoard's folder and file; each rank writes its part of every state.
    files = 4 + kept + bool(own.snapshots) + states * (STATE_FILES + ranks)
    state = state_bytes(parameters, own)
    return DiskSpace((4 * parameters + HEADER_BYTES) * kept + curve, states * state, files, state)
