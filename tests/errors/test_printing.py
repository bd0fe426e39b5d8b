"""Text that others wrote reaches no terminal and no page but as visible letters on one line."""

import jinja2
from hypothesis import given
from hypothesis import strategies as st

from hpcddm.errors.printing import printable
from hpcddm.evaluation.report import rendering


@given(st.text(), st.integers(3, 100))
def test_any_text_is_printable_on_one_line(text, most):
    shown = printable(text, most)
    assert shown.isprintable() and len(shown) <= 10 * most
    assert shown == text or not text.isprintable() or len(text) > most


def test_a_page_shows_names_as_visible_letters(monkeypatch, tmp_path):
    loader = jinja2.DictLoader({"page": "{{ name }}"})
    monkeypatch.setattr(rendering.jinja2, "FileSystemLoader", lambda place: loader)
    page = rendering.render("page", name="<b>\x1b[2J\u202e\n$\\frac")
    assert page == r"&lt;b&gt;\x1b[2J\u202e $\frac"
