"""Reads samples by byte offset from shared, read-only tars."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from hpcddm.data import noise
from hpcddm.errors import UserError


class TarReader:
    """Images of a list of samples; `samples` is (N,) of dtype `tar.SAMPLE`, whose `shard` is an index into `tars`."""

    def __init__(self, tars: Sequence[Path], samples: np.ndarray) -> None:
        self.samples = samples
        self._tars = tars
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def images(self, dataset_indices: Sequence[int]) -> np.ndarray:
        """Return the images of some samples: uint8 (N, H, W, C).

        Raises `UserError` naming the tar when bytes are missing or are no image.
        """
        return np.stack([self._image(self.samples[dataset_index]) for dataset_index in dataset_indices])

    def labels(self, dataset_indices: Sequence[int]) -> torch.Tensor:
        """Return the classes of some samples: int64 (N,)."""
        return torch.from_numpy(self.samples["label"][dataset_indices].astype(np.int64))

    def clusters(self, dataset_indices: Sequence[int]) -> torch.Tensor:
        """Return the cluster ids of some samples: int64 (N,)."""
        return torch.from_numpy(self.samples["cluster"][dataset_indices].astype(np.int64))

    def _image(self, sample: np.void) -> np.ndarray:
        shard, size = int(sample["shard"]), int(sample["size"])
        if shard not in self._files:
            self._files[shard] = os.open(self._tars[shard], os.O_RDONLY)
        content = os.pread(self._files[shard], size, int(sample["offset"]))
        try:
            if len(content) != size:
                raise ValueError(f"{len(content)} of {size} bytes")
            pixels = np.asarray(Image.open(io.BytesIO(content)))
        except (ValueError, OSError, SyntaxError) as error:
            # Pillow calls a broken PNG chunk a SyntaxError.
            raise UserError(f"{self._tars[shard]}: torn at byte {sample['offset']} ({error})") from None
        return pixels if pixels.ndim == 3 else pixels[..., None]


class SampleOrder:
    """Endless order, permuted anew in every epoch; the sample at index n is a function of (seed, stream, n) alone."""

    def __init__(self, seed: int, stream: str, size: int) -> None:
        self._seed, self._stream, self._size = seed, stream, size
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def dataset_indices(self, sample_indices: Sequence[int]) -> np.ndarray:
        """Return the rows at some indices of the endless order: int64 (N,)."""
        return np.array([self._row(sample_index) for sample_index in sample_indices], dtype=np.int64)

    def _row(self, sample_index: int) -> int:
        epoch, position = divmod(sample_index, self._size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, noise.permutation(self._seed, f"{self._stream}/order/{epoch}", self._size)
        return self._order[position]


def to_tensor(images: np.ndarray) -> torch.Tensor:
    """Convert uint8 (N, H, W, C) to float32 (N, C, H, W) in [-1, 1]."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div(127.5).sub(1)


def to_images(tensor: torch.Tensor) -> np.ndarray:
    """Convert (N, C, H, W) in [-1, 1] to uint8 (N, H, W, C), rounded."""
    scaled = tensor.add(1).mul(127.5).round().clamp(0, 255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
