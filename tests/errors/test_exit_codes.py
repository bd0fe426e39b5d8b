"""One number has one meaning, and the page that people read says all of them."""

import inspect
import re

from hpcddm import errors
from hpcddm.errors import ExitCode
from hpcddm.jobs import stopping, watchdog
from tests.helpers import REPOSITORY


def test_no_two_codes_clash_and_each_is_explained():
    codes = {code.name: code.value for code in ExitCode}
    explained = re.findall(r'^    ([A-Z_]+) = ([0-9]+)\n    """(.+)"""$', inspect.getsource(ExitCode), re.MULTILINE)
    assert len(set(codes.values())) == len(codes) == len(explained)
    assert {name: int(code) for name, code, _ in explained} == codes
    # From 126 on a shell says that it could not start, or which signal ended it: of those only Ctrl-C's is ours.
    assert {code for code in codes.values() if code >= 126} == {ExitCode.INTERRUPTED}
    table = (REPOSITORY / "docs" / "exit-codes.md").read_text()
    assert all(f"| {code} | {meaning} |" in table for _, code, meaning in explained)


def test_errors_and_ranks_end_with_them():
    kinds = {errors.UserError: 1, errors.ConfigError: 2, errors.SchedulerUnreachable: 4}
    assert {kind: kind.exit_code for kind in kinds} == kinds
    assert (watchdog.EXIT_CODE, stopping.EXIT_CODE) == (ExitCode.WATCHDOG, ExitCode.HELD_OR_ABANDONED)
