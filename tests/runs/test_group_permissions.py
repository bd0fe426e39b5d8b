"""The umask follows the run's folder."""

import os

import pytest

from hpcddm.runs import group_permissions


@pytest.fixture(params=[0o022, 0o077], ids=["022", "077"])
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("mode, is_shared", [(0o2775, True), (0o2770, True), (0o0775, False), (0o2755, False)])
@pytest.mark.parametrize("inside", ["", "run/that/is/to/come"])
def test_what_is_written_is_for_the_group_where_the_folder_is(tmp_path, mask, mode, is_shared, inside):
    tmp_path.chmod(mode)
    group_permissions.prepare_writes(tmp_path / inside)
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~(mask & ~0o070 if is_shared else mask)
