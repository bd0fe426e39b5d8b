import io
import os

import numpy as np
import pytest
from PIL import Image

from hpcddm.data import copies, image_decoding
from hpcddm.data.catalog import ImageFormat
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.copies import files_of, open_copy, write_copy
from hpcddm.data.images import CatalogImages, CopiedImages
from hpcddm.data.tars import tar_writing
from hpcddm.errors import UserError
from tests.catalogs import catalog_of
from tests.data.oddities import encoded
from tests.data.refusals import assert_refused

SIDE, COUNT = 8, 40
LISTED = np.array([1, 2, 5, 6, 7, 11, 20, 21, 22, 39], dtype=np.uint32)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """Forty samples with classes and captions in four tars, two of them photographs in JPEG."""
    folder, pixels = tmp_path_factory.mktemp("source"), np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE))
    for number in range(4):
        samples = [sample(index, pixels[index]) for index in range(10 * number, 10 * number + 10)]
        tar_writing.write_samples(folder / f"{number}.tar", samples)
    return catalog_of(folder, [folder / f"{number}.tar" for number in range(4)], ranges=2)


def sample(number, pixels):
    stream, name = io.BytesIO(), "JPEG" if number in (5, 6) else "PNG"
    Image.fromarray(pixels.astype(np.uint8)).save(stream, format=name)
    key, caption = f"pictures/{number}", f"picture {number}, caf\u00e9"
    return tar_writing.Sample(key, stream.getvalue(), {"JPEG": "jpeg"}.get(name, "png"), number % 4, caption)


def copy(folder, catalog, numbers=LISTED, advance=lambda done: None):
    folder.mkdir(exist_ok=True)
    return write_copy(folder, catalog, numbers, advance)


@pytest.fixture(params=[1 << 30, 700], ids=["one tar", "many tars"])
def tar_bytes(request, monkeypatch):
    """Bytes with which a tar is full; a file of columns is full with every second tar."""
    monkeypatch.setattr(copies, "TAR_BYTES", request.param)
    monkeypatch.setattr(copies, "PART_SAMPLES", 8)
    return request.param


def test_a_copy_has_the_samples_of_its_list_in_its_order_and_their_files_as_they_are(tmp_path, catalog, tar_bytes):
    written = copy(tmp_path / "copy", catalog)
    opened = open_copy(tmp_path / "copy")
    assert len(written) == len(opened) == len(LISTED)
    assert CatalogImages(opened).files(range(len(LISTED))) == CatalogImages(catalog).files(LISTED)
    for name in ("key", "caption"):
        assert opened.texts(name).gather(range(len(LISTED))) == catalog.texts(name).gather(LISTED)
    assert np.array_equal(opened.column("label").gather(range(len(LISTED))), catalog.column("label").gather(LISTED))
    tars = [name for name in files_of(opened) if name.endswith(".tar")]
    assert (len(tars) == 1) == (tar_bytes > 1000) and len(set(files_of(opened))) == len(files_of(opened))
    assert {file.name for file in (tmp_path / "copy").iterdir()} == set(files_of(opened))


def test_images_of_a_copy_are_found_by_the_numbers_of_all_samples(tmp_path, catalog, tar_bytes):
    copy(tmp_path / "copy", catalog)
    write_columns(tmp_path / "list.h5", {"numbers": LISTED})
    images = CopiedImages(open_copy(tmp_path / "copy"), Column("numbers", {tmp_path / "list.h5": len(LISTED)}))
    wanted = [39, 1, 7, 7, 20]
    assert np.array_equal(images.images(wanted), CatalogImages(catalog).images(wanted))
    for absent in ([0], [40], [7, 8]):
        with pytest.raises(KeyError, match=f"numbers has no {absent[-1]}"):
            images.images(absent)


def test_an_interrupted_copy_keeps_the_tars_that_are_complete(tmp_path, catalog, monkeypatch):
    monkeypatch.setattr(copies, "TAR_BYTES", 700)

    def stop(done):
        if done > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(tmp_path / "copy", catalog, advance=stop)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "copy").iterdir()}
    assert kept and all(file.suffix == ".tar" for file in kept)
    written = copy(tmp_path / "copy", catalog)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert CatalogImages(written).files(range(len(LISTED))) == CatalogImages(catalog).files(LISTED)


LEFT = {
    "other samples": lambda folder, catalog: copy(folder, catalog, LISTED - np.uint32(1)),
    "a longer list": lambda folder, catalog: copy(folder, catalog, np.arange(COUNT, dtype=np.uint32)),
    "a torn tar": lambda folder, catalog: (copy(folder, catalog), os.truncate(folder / "images-00000.tar", 1000)),
    "half a tar": lambda folder, catalog: (folder / ".images-00003.tar.0123456789abcdef").write_bytes(b"x" * 1000),
}


@pytest.mark.parametrize("left", LEFT)
def test_what_an_interrupted_attempt_left_of_another_list_is_replaced(tmp_path, catalog, tar_bytes, left):
    (tmp_path / "copy").mkdir()
    LEFT[left](tmp_path / "copy", catalog)
    (tmp_path / "copy" / "catalog.json").unlink(missing_ok=True)
    written = copy(tmp_path / "copy", catalog)
    assert CatalogImages(written).files(range(len(LISTED))) == CatalogImages(catalog).files(LISTED)
    assert {file.name for file in (tmp_path / "copy").iterdir()} == set(files_of(written))


def test_a_torn_source_and_a_torn_copy_are_named(tmp_path, catalog):
    assert_refused(r"catalog.json: is missing; remove", open_copy, tmp_path)
    copy(tmp_path / "copy", catalog)
    torn = tmp_path / "copy" / "images-00000.tar"
    os.truncate(torn, torn.stat().st_size - 1000)
    with pytest.raises(UserError, match=r"images-00000.tar has [0-9]+ bytes instead of [0-9]+"):
        CatalogImages(open_copy(tmp_path / "copy")).images([0])


def placed(name, number):
    """A picture of random pixels that EXIF turns, taken somewhere."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "52N13E-camera"
    return encoded(number, name, exif=exif)


@pytest.fixture
def photographs(tmp_path):
    pictures = [placed(("JPEG", "PNG", "WEBP")[number % 3], number) for number in range(9)]
    samples = [tar_writing.Sample(str(number), content, "jpg") for number, content in enumerate(pictures)]
    tar_writing.write_samples(tmp_path / "0.tar", samples)
    return catalog_of(tmp_path, [tmp_path / "0.tar"])


def test_copies_without_exif_show_the_same_pictures(tmp_path, photographs, monkeypatch):
    monkeypatch.setattr(copies, "TAR_BYTES", 700)
    (tmp_path / "copy").mkdir()
    written = write_copy(tmp_path / "copy", photographs, range(9), lambda done: None, drops_exif=True)
    form = ImageFormat(3, SIDE, {"name": "resize"})
    images = [CatalogImages(own.with_image_format(form)).images(range(9)) for own in (written, photographs)]
    assert np.array_equal(*images) and written.texts("key").gather(range(9)) == list(map(str, range(9)))
    content = b"".join(path.read_bytes() for path in (tmp_path / "copy").glob("*.tar"))
    assert b"52N13E" not in content and b"52N13E" in (tmp_path / "0.tar").read_bytes()


def test_a_picture_whose_exif_cannot_be_dropped_is_named_with_the_way_out(tmp_path):
    tar_writing.write_samples(tmp_path / "0.tar", [tar_writing.Sample("cats/7", placed("TIFF", 7), "jpg")])
    catalog = catalog_of(tmp_path, [tmp_path / "0.tar"])
    with pytest.raises(UserError, match=r"cats/7: TIFF: its EXIF .*; 'data.read_from.exif: keep' copies it"):
        copy(tmp_path / "copy", catalog, range(1))
        write_copy(tmp_path / "copy", catalog, range(1), lambda done: None, drops_exif=True)


def test_pictures_of_every_format_are_copied_whatever_their_names_say(tmp_path):
    picture, samples = Image.new("RGB", (SIDE, SIDE), "red"), []
    for name in image_decoding.FORMATS + ("MPO",):
        stream = io.BytesIO()
        picture.save(stream, format=name, **({"save_all": True, "append_images": [picture]} if name == "MPO" else {}))
        samples.append(tar_writing.Sample(name, stream.getvalue(), "jpg"))
    tar_writing.write_samples(tmp_path / "0.tar", samples)
    copied = copy(tmp_path / "copy", catalog_of(tmp_path, [tmp_path / "0.tar"]), range(len(samples)))
    assert CatalogImages(copied).files(range(len(samples))) == [sample.image for sample in samples]
