"""What a few pictures tell of all: sides as people see them, formats, grey ones, and those that cannot be used."""

import io

import pytest
from PIL import Image

from hpcddm.sources.folders import picture_sample
from hpcddm.sources.folders.picture_sample import read_sample
from hpcddm.sources.folders.proposal import SamplePicture


def picture(width, height, mode="RGB", kind="PNG", **options):
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, kind, **options)
    return stream.getvalue()


def sample(*contents):
    return read_sample(SamplePicture(str(number), content) for number, content in enumerate(contents))


def test_sides_are_those_of_upright_pictures():
    exif = Image.Exif()
    exif[0x0112] = 6
    seen = sample(picture(40, 30), picture(50, 20, kind="JPEG", exif=exif), Image.new("L", (9, 7)))
    assert (seen.widths, seen.heights) == ([40, 20, 9], [30, 50, 7])
    assert dict(seen.formats) == {"PNG": 1, "JPEG": 1, "": 1} and seen.short_sides == [7, 20, 30]


@pytest.mark.parametrize(
    "sides, size", [([5], 8), ([9], 8), ([28], 28), ([31], 28), ([32, 500], 32), ([100, 300, 4000], 256)]
)
def test_half_of_the_pictures_are_large_enough(sides, size):
    assert sample(*(picture(side, side + 1) for side in sides)).image_size == size


def test_what_cannot_be_used_is_named():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    contents = {"a": picture(9, 9), "b": picture(9, 9)[:-20], "c": pointer}
    unreadable = SamplePicture("d", None, "cannot be read (Permission denied)")
    seen = read_sample([*(SamplePicture(name, content) for name, content in contents.items()), unreadable])
    assert [name for name, _ in seen.broken] == ["b", "c", "d"] and seen.opened == 4
    assert seen.remarks()[0].startswith("3 of 4 opened cannot be used: b (PNG truncated at byte")
    assert seen.remarks()[0].endswith("; 'git lfs pull' fetches the files")


def test_grey_and_small_pictures():
    grey, colour = picture(64, 64, "L"), picture(64, 64)
    assert sample(grey, grey).is_grey and not sample(grey, colour).is_grey and not sample().is_grey
    assert sample(grey, colour, colour).remarks() == ["1 of 3 opened are grey, the others have colours"]
    (remark,) = sample(picture(9, 9), colour, colour).remarks()
    assert remark == "1 of 3 opened are less than half of image_size: they will be blurred"


def test_reading_ends_when_it_takes_too_long(monkeypatch):
    monkeypatch.setattr(picture_sample, "SECONDS", -1)
    assert sample(*[picture(9, 9)] * 30).opened == picture_sample.FEWEST
