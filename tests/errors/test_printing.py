"""Text that others wrote reaches no terminal and no page but as visible letters on one line."""

import shlex

import jinja2
from hypothesis import given
from hypothesis import strategies as st

from hpcddm.commands.terminal import plain_text
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import MAX_CHARACTERS, MAX_LINE_CHARACTERS, echo, printable, quoted, warn
from hpcddm.evaluation.report import rendering

SHOWN = {
    "plain": ("plain", "plain"),
    "escape": ("\x1b[2J\x07", r"\x1b[2J\x07"),
    "8-bit control": ("\x9b2J", r"\x9b2J"),
    "right to left": ("a\u202eb\u2066", r"a\u202eb\u2066"),
    "lone surrogate": ("\udcff", r"\udcff"),
    "zero width": ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
    "tag": ("\U000e0041", r"\U000e0041"),
    "line breaks": ("a\nb\rc\x85d\u2028e", "a b c d e"),
    "other letters": ("\u732b \xe9 \U0001f60a", "\u732b \xe9 \U0001f60a"),
    "wide space": ("\u732b\u3000\u732b", "\u732b \u732b"),
    "not a text": (["\x1b"], r"['\x1b']"),
    "long": ("a" * 1000, "a" * (MAX_CHARACTERS - 3) + "..."),
}


def test_what_cannot_be_seen_is_written_out():
    assert {case: (text, printable(text)) for case, (text, _) in SHOWN.items()} == SHOWN


@given(st.text(), st.integers(3, 100))
def test_any_text_is_printable_on_one_line(text, most):
    shown = printable(text, most)
    assert shown.isprintable() and len(shown) <= 10 * most
    assert shown == text or not text.isprintable() or len(text) > most


def test_an_error_is_one_line_of_visible_letters():
    for kind in (UserError, ConfigError):
        assert str(kind("a\nnext: curl\x1b[2J")) == r"a next: curl\x1b[2J"
    assert len(str(UserError("a" * 100_000))) == MAX_LINE_CHARACTERS


def test_lines_are_printed_one_by_one(capsys):
    echo("a\nb", "[red]\x1b[2J")
    echo("wrong", err=True)
    assert capsys.readouterr() == ("a b\n[red]\\x1b[2J\n", "wrong\n")


def test_a_console_shows_markup_as_it_is():
    assert plain_text("[red]a\nb", "[link=x]\x1b").plain == "[red]a b\n[link=x]\\x1b"


def test_a_value_in_advice_is_one_word_of_a_shell():
    for value in ("runs/a b", "x; rm -rf ~", "$(touch x)", "it's", "a\nb", "\x1b[2J"):
        assert shlex.split(quoted(value)) == [printable(value)]


def test_a_page_shows_names_as_visible_letters(monkeypatch, tmp_path):
    loader = jinja2.DictLoader({"page": "{{ name }}"})
    monkeypatch.setattr(rendering.jinja2, "FileSystemLoader", lambda place: loader)
    page = rendering.render("page", name="<b>\x1b[2J\u202e\n$\\frac")
    assert page == r"&lt;b&gt;\x1b[2J\u202e $\frac"


def test_a_warning_is_printed_once(capsys):
    for line in ("one", "another", "one"):
        warn(line)
    assert capsys.readouterr() == ("", "one\nanother\n")
