"""Expressions of a filter that are refused, before anything is computed."""

import time

import pytest

from hpcddm.config.filter.predicate import Predicate
from hpcddm.errors import UserError

HOSTILE = {
    "__import__('os').system('x')": "__import__('os').system('x') is not understood",
    "open('/etc/passwd').read() == a": "is not understood",
    "a.__class__.__mro__[1].__subclasses__() == a": "is not understood",
    "a in (select key from t)": "invalid syntax",
    "a in read_csv('/etc/passwd')": "read_csv('/etc/passwd') is not understood",
    "a > 1; drop": "invalid syntax",
    "a > 1 # comment\nor True": "a comment hides what is behind it",
    "a > " + "9" * 5000: "5004 characters, where 4000 are enough",
    "a > " + "9" * 3900: "is too large a number",
    "a > " + "9" * 400: "is too large a number",
    "a > 1e999": "1e999 is too large a number",
    "(" * 10_000 + "a" + ")" * 10_000: "20001 characters",
    "(" * 1_900 + "a" + ")" * 1_900: "too many nested parentheses",
    "-" * 3_900 + "a > 1": "nested more than 50 levels deep",
    "+".join("a" * 1_900) + " > 1": "nested more than 50 levels deep",
    "a" + ".b" * 1_900: "nested more than 50 levels deep",
    "9**9**9 > a": "9**9**9 is not understood",
    "a << 10000000000 > 1": "is not understood",
    "'a' * 9999999999 == a": "'a' is a text, where a number is needed",
    "a == 'x' + 'y'": "'x' is a text, where a number is needed",
    "f'{a}' == 'x'": "is not understood",
    "a == b'x'": "is not understood",
    "a == 1j": "is not understood",
    "[b for b in a] == a": "is not understood",
    "a if b else c": "is not understood",
    "a in ()": "() is not understood",
    "a[0] > 1": "is not understood",
    "a > 1\u202e and b": "invisible characters",
    "a\u200b > 1": "invisible characters",
    "a > 1\0": "invisible characters",
    "a \uff1e 1": "invalid character",
    "\uff41nd > 1 and": "invalid syntax",
    "max(width) > 3": "max(width) is not understood",
    "length(a, b) > 3": "is not understood",
    "length(a=b) > 3": "is not understood",
    "width + 1": "width + 1 is a number, where true or false is needed",
    "'x'": "'x' is a text, where true or false is needed",
    "width > 3 and lower(lang)": "lower(lang) is a text, where true or false is needed",
    "a > 'x' + 3": "'x' is a text, where a number is needed",
    "lower(3) == 'x'": "3 is a number, where a text is needed",
    "'x' in ('x', 1) or a": "1 is a number, where a text is needed",
    "a is None": "None follows `is`; only null may",
    "a == null": "null may appear only in",
    "a = 3": "invalid syntax",
    "a > 1 and": "invalid syntax",
    "1 < 2": "names no column",
    "": "empty",
}


@pytest.mark.parametrize("expression, message", HOSTILE.items(), ids=[text[:30] for text in HOSTILE])
def test_a_hostile_expression_is_refused_with_one_line_and_at_once(expression, message):
    started = time.perf_counter()
    with pytest.raises(UserError) as caught:
        Predicate(expression)
    assert time.perf_counter() - started < 1
    line = str(caught.value)
    assert line.startswith("data.filter: ") and message in line
    assert line.isprintable() and len(line) < 600
