"""Files of the experts' samples, from which a router is trained, are those of the plan or are named."""

import os

import numpy as np
import pytest

from hpcddm.files.checked_reads import Unreadable
from hpcddm.sampling.router_samples import open_images

IMAGES = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)


def of_objects(path):
    with open(path, "wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def huge(path):
    with open(path, "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 4, 4, 3)}
        np.lib.format.write_array_header_1_0(file, header)


def torn(path):
    np.save(path, IMAGES)
    os.truncate(path, path.stat().st_size - 1)


WRONG = {
    "objects": (of_objects, "holds object"),
    "huge": (huge, "holds uint8"),
    "torn": (torn, "holds uint8"),
    "another shape": (lambda path: np.save(path, IMAGES[:1]), "holds uint8"),
    "another type": (lambda path: np.save(path, IMAGES.astype(np.float32)), "holds float32"),
    "in columns": (lambda path: np.save(path, np.asfortranarray(IMAGES)), "holds uint8"),
    "another format": (lambda path: path.write_bytes(b"PK" * 100), "is not a file of images"),
    "nothing": (lambda path: path.write_bytes(b""), "is not a file of images"),
    "a pipe": (os.mkfifo, "is a pipe instead of a file"),
    "a link": (lambda path: path.symlink_to("/dev/zero"), "is a link"),
}


def test_images_of_the_plan_are_mapped(tmp_path):
    np.save(tmp_path / "samples.npy", IMAGES)
    assert np.array_equal(open_images(tmp_path / "samples.npy", IMAGES.shape), IMAGES)


@pytest.mark.parametrize("case", WRONG)
def test_anything_else_is_one_line(tmp_path, case):
    make, reason = WRONG[case]
    make(tmp_path / "samples.npy")
    with pytest.raises(Unreadable, match=rf"samples\.npy: {reason}"):
        open_images(tmp_path / "samples.npy", IMAGES.shape)
