"""HDF5 files that others wrote: whatever would read other files, run plugins or fill the memory is refused by name."""

import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcddm.clustering.partition import read_arrays
from hpcddm.data.columns import Column
from hpcddm.data.sources import array_files
from hpcddm.errors import UserError
from hpcddm.files import hdf5

ROWS = 40
DATA = np.arange(ROWS, dtype=np.float32)


def external_storage(file, folder):
    (folder / "secret").write_bytes(b"secret".ljust(4 * ROWS))
    file.create_dataset("a", (ROWS,), "f4", external=[(str(folder / "secret"), 0, 4 * ROWS)])


def external_link(file, folder):
    with h5py.File(folder / "secret.h5", "w") as other:
        other["a"] = DATA
    file["a"] = h5py.ExternalLink(str(folder / "secret.h5"), "a")


def soft_link(file, folder):
    file["b"] = DATA
    file["a"] = h5py.SoftLink("/b")


def virtual(file, folder):
    with h5py.File(folder / "secret.h5", "w") as other:
        other["a"] = DATA
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "a", (ROWS,))
    file.create_virtual_dataset("a", layout)


def references(file, folder):
    file["b"] = DATA
    file.create_dataset("a", data=np.array([file["b"].ref] * ROWS, dtype=h5py.ref_dtype))


def variable_length(file, folder):
    file.create_dataset("a", (ROWS,), h5py.vlen_dtype(np.int32))[0] = [1, 2]


def compound(file, folder):
    file["a"] = np.zeros(ROWS, [("x", "f4"), ("y", "i4")])


def never_written(file, folder):
    file.create_dataset("a", (1 << 40,), "u1")


def sparse_chunks(file, folder):
    file.create_dataset("a", (1 << 31,), "u1", chunks=(1 << 24,), compression="gzip", fillvalue=0)[:3] = 1


def large_chunk(file, folder):
    file.create_dataset("a", (1, 1 << 31), "u1", chunks=(1, 1 << 31), compression="gzip")


def plugin(file, folder):
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((ROWS,))
    made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((ROWS,)), made)


def empty(file, folder):
    file["a"] = h5py.Empty("f4")


EVERYWHERE = {
    "another file": (external_storage, "'a' has its values in another file"),
    "virtual": (virtual, "'a' has its values in another file"),
    "external link": (external_link, "'a' is a link"),
    "soft link": (soft_link, "'a' is a link"),
    "references": (references, "'a' holds object, neither numbers nor texts"),
    "variable length": (variable_length, "'a' holds object, neither numbers nor texts"),
    "compound": (compound, "'a' holds .*, neither numbers nor texts"),
    "never written": (never_written, "'a' declares 1,099,511,627,776 bytes and holds 0"),
    "sparse chunks": (sparse_chunks, "'a' (declares 2,147,483,648 bytes and holds|is packed by a filter)"),
    "large chunk": (large_chunk, "'a' "),
    "a plugin's filter": (plugin, "'a' is packed by a filter"),
    "nothing": (empty, "'a' holds"),
}


def deep(file, folder):
    file["/".join("abcdefghijkl")] = DATA


def loop(file, folder):
    file.create_group("g")["h"] = file["/"]


def packed(file, folder):
    file.create_dataset("a", data=DATA, compression="gzip")


def texts(file, folder):
    file.create_dataset("a", data=["x"] * ROWS)


def type_of_its_own(file, folder):
    file["a"], file["t"] = DATA, np.dtype("f4")


RUNS_ONLY = {
    "deep": (deep, "too many groups"),
    "loop": (loop, "has several names"),
    "packed": (packed, "'a' is packed by a filter"),
    "texts": (texts, "'a' holds object"),
    "a type": (type_of_its_own, "'t' is neither a dataset nor a group"),
}


def made(folder: Path, make) -> Path:
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        make(file, folder)
    return path


def refused(words, read):
    started = time.monotonic()
    with pytest.raises(UserError, match=words) as caught:
        read()
    text = str(caught.value)
    assert "a.h5: " in text and text.isprintable() and time.monotonic() - started < 5


@pytest.mark.parametrize("case", EVERYWHERE | RUNS_ONLY)
def test_a_file_of_a_run_is_refused_before_its_data_are_read(tmp_path, case):
    make, words = (EVERYWHERE | RUNS_ONLY)[case]
    path = made(tmp_path, make)
    refused(words, lambda: read_arrays(path))
    refused(words, lambda: Column("a", {path: ROWS}))


@pytest.mark.parametrize("case", EVERYWHERE)
def test_a_source_is_refused_before_its_data_are_read(tmp_path, case):
    make, words = EVERYWHERE[case]
    path = made(tmp_path, make)
    refused(words, lambda: array_files.open_rows(path, "a"))


@pytest.mark.parametrize(
    "options", [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}, {"chunks": (7,)}]
)
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


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_plain_file_of_a_run_is_opened(tmp_path, kind):
    path = tmp_path / "a.h5"
    (tmp_path / "b.h5").touch()
    {"link": lambda: path.symlink_to(tmp_path / "b.h5"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    refused(f"is a {kind}", lambda: read_arrays(path))
    refused(f"is a {kind}", lambda: Column("a", {path: ROWS}))


def test_a_partition_is_finite(tmp_path):
    path = made(tmp_path, lambda file, folder: file.create_dataset("a", data=[1.0, np.nan]))
    refused("'a' is not finite", lambda: read_arrays(path))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["key/bytes"], file["key/offsets"] = DATA[:2], np.arange(2, dtype="u1"), np.arange(3, dtype="u8")
    return path


def mutated(path, change):
    """Read a file with some bytes replaced, or its end cut off; anything but values or one line is a fault."""
    places, kept = change
    raw = bytearray(path.read_bytes())
    for place, value in places:
        raw[int(place * len(raw))] = value
    changed = path.with_name("changed.h5")
    changed.write_bytes(raw[: int(kept * len(raw))])
    started = time.monotonic()
    try:
        with hdf5.open_checked(changed) as file:
            for _, dataset in hdf5.list_datasets(file):
                dataset[()]
    except UserError as error:
        assert str(error).isprintable()
    assert time.monotonic() - started < 5


SHARE = st.floats(0, 1, exclude_max=True)
CHANGES = st.tuples(st.lists(st.tuples(SHARE, st.integers(0, 255)), min_size=1, max_size=8), SHARE | st.just(1.0))
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
QUIET |= {"derandomize": True, "database": None}


@given(change=CHANGES)
@settings(max_examples=200, **QUIET)
def test_mutated_files_end_in_one_line(whole, change):
    mutated(whole, change)


@pytest.mark.long
@given(change=CHANGES)
@settings(max_examples=10_000, **QUIET)
def test_many_mutated_files_end_in_one_line(whole, change):
    mutated(whole, change)
