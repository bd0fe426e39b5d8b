"""HDF5 files that others wrote: whatever would read other files, run plugins or fill the memory is refused by name."""

import os
import time

import h5py
import numpy as np
import pytest

from hpcddm.clustering.partition import read_arrays
from hpcddm.data.columns import Column
from hpcddm.errors import UserError
from hpcddm.sources import array_files

ROWS = 40
DATA = np.arange(ROWS, dtype=np.float32)


def external_storage(file, folder):
    (folder / "secret").write_bytes(b"secret".ljust(4 * ROWS))
    file.create_dataset("a", (ROWS,), "f4", external=[(str(folder / "secret"), 0, 4 * ROWS)])


def write_secret(folder):
    with h5py.File(folder / "secret.h5", "w") as other:
        other["a"] = DATA


def external_link(file, folder):
    write_secret(folder)
    file["a"] = h5py.ExternalLink(str(folder / "secret.h5"), "a")


def soft_link(file, folder):
    file["b"] = DATA
    file["a"] = h5py.SoftLink("/b")


def virtual(file, folder):
    write_secret(folder)
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "a", (ROWS,))
    file.create_virtual_dataset("a", layout)


def references(file, folder):
    file["b"] = DATA
    file.create_dataset("a", data=np.array([file["b"].ref] * ROWS, dtype=h5py.ref_dtype))


def sparse_chunks(file, folder):
    file.create_dataset("a", (1 << 31,), "u1", chunks=(1 << 24,), compression="gzip", fillvalue=0)[:3] = 1


def plugin(file, folder):
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((ROWS,))
    made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((ROWS,)), made)


def compound(file, folder):
    file["a"] = np.zeros(ROWS, [("x", "f4"), ("y", "i4")])


def values(*arguments, **options):
    """A writer of one dataset."""
    return lambda file, folder: file.create_dataset("a", *arguments, **options)


EVERYWHERE = {
    "another file": (external_storage, "'a' has its values in another file"),
    "virtual": (virtual, "'a' has its values in another file"),
    "external link": (external_link, "'a' is a link"),
    "soft link": (soft_link, "'a' is a link"),
    "references": (references, "'a' holds object, neither numbers nor texts"),
    "variable length": (values((ROWS,), h5py.vlen_dtype(np.int32)), "'a' holds object, neither numbers nor texts"),
    "compound": (compound, "'a' holds .*, neither numbers nor texts"),
    "never written": (values((1 << 40,), "u1"), "'a' declares 1,099,511,627,776 bytes and holds 0"),
    "sparse chunks": (sparse_chunks, "'a' (declares 2,147,483,648 bytes and holds|is packed by a filter)"),
    "large chunk": (values((1, 1 << 31), "u1", chunks=(1, 1 << 31), compression="gzip"), "'a' "),
    "a plugin's filter": (plugin, "'a' is packed by a filter"),
    "nothing": (values(data=h5py.Empty("f4")), "'a' holds"),
}


RUNS_ONLY = {
    "deep": (lambda file, folder: file.create_dataset("/".join("abcdefghijkl"), data=DATA), "too many groups"),
    "loop": (lambda file, folder: file.update(g=file["/"]), "has several names"),
    "packed": (values(data=DATA, compression="gzip"), "'a' is packed by a filter"),
    "texts": (values(data=["x"] * ROWS), "'a' holds object"),
    "a type": (lambda file, folder: file.update(a=DATA, t=np.dtype("f4")), "'t' is neither a dataset nor a group"),
}


def refused(words, read):
    started = time.monotonic()
    with pytest.raises(UserError, match=words) as caught:
        read()
    text = str(caught.value)
    assert "a.h5: " in text and text.isprintable() and time.monotonic() - started < 5


@pytest.mark.parametrize("case", EVERYWHERE | RUNS_ONLY)
def test_a_file_is_refused_before_its_data_are_read(tmp_path, case):
    make, words = (EVERYWHERE | RUNS_ONLY)[case]
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        make(file, tmp_path)
    refused(words, lambda: read_arrays(path))
    refused(words, lambda: Column("a", {path: ROWS}))
    if case in EVERYWHERE:
        refused(words, lambda: array_files.open_rows(path, "a"))


PACKED = [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}, {"chunks": (7,)}]


@pytest.mark.parametrize("options", PACKED, ids=str)
def test_a_source_may_be_packed_and_have_other_things_beside(tmp_path, options):
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("in/a", data=DATA, **options)
        file.create_dataset("in/zeros", data=np.zeros(1 << 20), **options)
        file["link"] = h5py.SoftLink("/in/a")
        file.create_dataset("texts", data=["x", "yy"])
        compound(file, tmp_path)
    (tmp_path / "a.h5").symlink_to("b.h5")
    assert array_files.open_rows(tmp_path / "a.h5", "in/a").whole().tolist() == DATA.tolist()
    assert array_files.open_rows(tmp_path / "a.h5", "in/zeros").row(5) == 0
    assert array_files.open_rows(tmp_path / "a.h5", "texts").row(1) == "yy"
    assert array_files.array_names(tmp_path / "a.h5") == ["a", "in/a", "in/zeros", "texts"]


def test_only_a_plain_file_of_a_run_is_opened(tmp_path):
    (tmp_path / "b").touch()
    for kind, make in (("link", lambda path: path.symlink_to("b")), ("pipe", os.mkfifo), ("folder", os.mkdir)):
        path = tmp_path / f"{kind}-a.h5"
        make(path)
        refused(f"is a {kind}", lambda path=path: read_arrays(path))
        refused(f"is a {kind}", lambda path=path: Column("a", {path: ROWS}))


def test_a_partition_is_finite(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = [1.0, np.nan]
    refused("'a' is not finite", lambda: read_arrays(tmp_path / "a.h5"))
