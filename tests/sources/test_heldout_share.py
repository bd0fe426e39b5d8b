import pytest

from hpcddm.sources.heldout_share import is_heldout

KEYS = [f"n{number % 1000:08d}/{number}.JPEG" for number in range(20_000)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_the_share_is_met(share):
    held = sum(is_heldout(key, share) for key in KEYS)
    assert abs(held - share * len(KEYS)) < 4 * (share * (1 - share) * len(KEYS)) ** 0.5


def test_a_greater_share_holds_out_the_same_images_and_more():
    small, great = ({key for key in KEYS if is_heldout(key, share)} for share in (0.05, 0.1))
    assert small < great


def test_the_choice_is_the_same_for_ever():
    held_out = [number for number in range(200) if is_heldout(f"{number:03d}", 0.05)]
    assert held_out == [2, 9, 35, 39, 56, 58, 78, 115, 143, 195]


def test_a_key_may_be_any_text():
    assert all(not is_heldout(key, 1e-12) for key in ("", "caf\u00e9", b"\xff.jpg".decode(errors="surrogateescape")))
