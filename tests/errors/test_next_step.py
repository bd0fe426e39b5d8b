"""Advice on what to type: every command that the program prints can be pasted, and is made in one place."""

import ast
import re
import shlex
import shutil

import click
import pytest

from hpcddm.cli import VERBS, main
from hpcddm.errors.next_step import PROGRAMS, NextStep, command, step
from tests.helpers import REPOSITORY, commands, hpcddm

PACKAGE = REPOSITORY / "hpcddm"
ONE = "|".join(sorted(VERBS, key=len, reverse=True))
HAND_MADE = re.compile(
    rf"next: |[:`] *hpcddm ({ONE})\b|hpcddm ({ONE})( -\S+)* $|\bpip install |\bnpm pack |scontrol (release|update) "
)
"""Pattern of advice in a text that does not come from `hpcddm.errors.next_step`."""
TEXTS_OF_PROGRAMS = {"next_step.py"}


def commands_of(line):
    """Return the commands of a line of a shell, as words."""
    words, found = shlex.split(line), [[]]
    for word in words:
        if word == "&&":
            found.append([])
        else:
            found[-1].append(word)
    return found


def require_command(words):
    """Parse a command of hpcddm with its own parser, down to the types of its options; others must be programs."""
    assert words[0] in PROGRAMS, words
    if words[0] != "hpcddm":
        # The builtin of the shell is a program in POSIX, too; Slurm and npm are where they are needed.
        assert words[0] in ("cd", "scontrol", "npm") or shutil.which(words[0]), words
        return
    verb = commands()[words[1]]
    with click.Context(main, info_name="hpcddm") as context:
        verb.make_context(words[1], words[2:], parent=context)


def advice_in(text):
    """List the commands after 'next: ' in a text that was printed, which reach to the end of their lines."""
    return [line for _, line in re.findall(r"(^|; |\s)next: (.*)$", text, re.MULTILINE)]


def require_advice(text, count=None):
    """Require that all advice in a printed text can be pasted; return it."""
    lines = advice_in(text)
    assert count is None or len(lines) == count, text
    for line in lines:
        for words in commands_of(line):
            require_command(words)
    return lines


def docstrings(tree):
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, holders)]
    # A text that stands alone describes what is above it.
    return {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}


TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def test_no_text_holds_a_command_that_was_put_together_by_hand():
    hand_made = []
    for path, tree in TREES.items():
        described = docstrings(tree)
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in described]
        hand_made += [(path, text) for text in texts if isinstance(text, str) and HAND_MADE.search(text)]
    assert [(path, text) for path, text in hand_made if path.name not in TEXTS_OF_PROGRAMS] == []


def calls():
    """Yield the place and the words of every call that makes a command; what is computed there has a word instead."""
    for path, tree in TREES.items():
        if "hpcddm.errors.next_step import" not in path.read_text():
            continue
        for node in ast.walk(tree):
            is_call = isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("command", "step")
            # Tuples are commands of a `NextStep`, and those that others put into one.
            words = node.args if is_call else node.elts if isinstance(node, ast.Tuple) else []
            # What begins with words of others is tried where these are written.
            if words and (not isinstance(words[0], ast.Starred) if is_call else _word(words[0]) in PROGRAMS):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", [_word(word) for word in words]


def _word(node):
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
    # Words that may be there or not are tried in the situations below.
    return None if isinstance(node, ast.Starred) else "any thing"


def refused(commands):
    """What the parser says of those of these commands that it does not take, each with its place."""
    found = []
    for place, words in commands:
        try:
            require_command(words)
        except Exception as error:
            found.append((place, words, repr(error)))
    return found


def test_every_call_makes_a_command_that_the_parser_takes():
    made = {place: [word for word in words if word is not None] for place, words in calls()}
    # Of 'hpcddm' alone all the rest is what the user typed.
    whole = {place: commands_of(command(*words))[0] for place, words in made.items() if words != ["hpcddm"]}
    assert len(whole) > 40 and refused(whole.items()) == []


def test_the_table_of_verbs_says_what_each_verb_says_of_itself():
    table = " ".join(hpcddm("--help").output.split())
    for name in VERBS:
        assert f"{name} {commands()[name].help.splitlines()[0]}" in table, name


def helps():
    """Yield the example and the next command of every verb's help."""
    for name, verb in commands().items():
        for line in (verb.help or "").splitlines():
            if found := re.search(r"(?:Example:|Next:|then:|^ +)\s*(hpcddm .*)", line):
                yield name, re.split(r"   |&& \./| \(or ", found[1])[0]


def test_what_help_names_as_example_or_next_is_a_command():
    named = [(verb, words) for verb, line in helps() for words in commands_of(line)]
    assert named and refused(named) == []


def test_what_is_not_a_command_cannot_be_advised():
    for words in (("submit again",), ("",), (), ("curl", "x"), ("hpcddm submit x",)):
        for make in (command, step, lambda *words: NextStep((words,), "a reason")):
            with pytest.raises(ValueError, match="is not a command"):
                make(*words)


def test_words_stay_words_and_the_command_is_the_end_of_the_line(tmp_path):
    odd = f"{tmp_path}/it's [a] run; rm -rf $HOME"
    both = NextStep((("cd", odd), ("hpcddm", "status", odd)), "why not", step("hpcddm", "wait", odd, reason="later"))
    first, second = both.lines()
    assert require_advice(f"{first}\n{second}", 2) == [both.line, both.then.line]
    assert commands_of(both.line) == [["cd", odd], ["hpcddm", "status", odd]]
    assert first.startswith("why not; next: cd ") and second.startswith("later; next: hpcddm wait ")
    recorded = str(step("hpcddm", "status", "run", reason="x cannot start"))
    assert str(step("hpcddm", "retry", "run", reason=recorded)) == "x cannot start; next: hpcddm retry run"
    assert str(NextStep(reason="all is well")) == "all is well" and NextStep().line == ""
