"""Reads YAML in which a plain word has one meaning: a decimal number, true, false, null, or else a text.

YAML 1.1 reads 12:00:00 as 43200, 060 as 48, no as false and 2026-01-01 as a date; these are refused, in files and on
the command line alike, with the place and what to write.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hpcddm.config.validation_errors import Location, Origins
from hpcddm.errors import ConfigError

MAX_VALUES = 100_000
"""Most values of a text with anchors once every alias is expanded."""
ODD, TEXT, MERGE = "odd", "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
"""Tags of a plain word that readers of YAML take for different things, of a text, and of the key '<<'."""
NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*|[1-9][0-9]{0,2}(_[0-9]{3})+)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
DECIMAL = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
"""A number as above, or with zeros before it, or with stray underscores."""
BASE_60 = re.compile(r"[-+]?([0-9]+)(?::([0-9]{1,2}))?:([0-9]{1,2}(?:\.[0-9]*)?)")
BASES = re.compile(r"[-+]?0(x[0-9a-f][0-9a-f_]*|o[0-7][0-7_]*|b[01][01_]*)", re.IGNORECASE)
WORDS = {"": "null", "null": "null", "true": "bool", "false": "bool"}
"""Words that stand for a value, and the ends of their tags; also capitalised, or in capitals."""
NOTHING = ("~", "None")

Problem = tuple[yaml.Mark, str]


class StrictLoader(yaml.SafeLoader):
    """Loader of YAML that accepts no tags, and distinguishes only numbers, true, false, null and texts."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse a tag, such as !!python/name, which would give a value another kind."""
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem=f"the tag {event.tag} is not read here", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node."""
        others: str = super().resolve(kind, value, implicit)
        if kind is not yaml.ScalarNode or not implicit[0]:
            return others
        word = value.lower() if value in (value.lower(), value.upper(), value.capitalize()) else value
        if word in WORDS:
            return f"tag:yaml.org,2002:{WORDS[word]}"
        if NUMBER.fullmatch(value) and math.isfinite(float(value)):
            return f"tag:yaml.org,2002:{'float' if re.search('[.eE]', value) else 'int'}"
        if value in ("=", "<<"):
            return MERGE if value == "<<" else TEXT
        is_odd = others != TEXT or value in NOTHING or any(form.fullmatch(value) for form in (BASE_60, BASES, DECIMAL))
        return ODD if is_odd else TEXT


def read_yaml(path: Path) -> tuple[dict[str, Any], Origins]:
    """Read the mapping in a YAML file, and the lines of its keys.

    Raises `ConfigError` with file, line and column of every mistake.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no readable YAML ({error}); it needs to be a text in UTF-8") from None
    values, lines = _load(text, str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: needs a mapping of keys at the top")
    return values, Origins(str(path), lines)


def parse_value(key: str, text: str, place: str) -> Any:
    """Read the value of a key on the command line; raises `ConfigError` with `place`."""
    return _load(text, place, key)[0]


def _load(text: str, place: str, key: str | None = None) -> tuple[Any, dict[Location, int]]:
    """Read a text; key: that of a value on the command line, None for a file.

    Raises `ConfigError` with one line for every mistake.
    """
    lines: dict[Location, int] = {}
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        if root is None and key is None:
            return None, lines
        if root is None:
            raise ConfigError(f"{place}: no value; write {key}=null for nothing, or '{key}=\"\"' for an empty text")
        sizes: dict[int, float] = {}
        if _size(root, sizes) > max(MAX_VALUES, len(sizes)):
            raise yaml.MarkedYAMLError(problem=f"its anchors expand to more than {MAX_VALUES:,} values")
        problems = list(_problems(root, key or "", set()))
        if key is not None and root.tag == ODD:
            problems = [(root.start_mark, f"{_advice(root.value, key)}'{key}=\"{root.value}\"' for a text")]
        if key is not None and text[root.end_mark.index :].strip():
            problems.append((root.end_mark, f"what follows would be a comment; write '{key}=\"...\"' for a text"))
        if problems:
            places = [
                place if key is not None else f"{place}:{mark.line + 1}:{mark.column + 1}" for mark, _ in problems
            ]
            raise ConfigError(*(f"{at}: {text}" for at, (_, text) in zip(places, problems, strict=True)))
        _number_lines(root, (), lines)
        return loader.construct_document(root), lines
    except RecursionError:
        raise ConfigError(f"{place}: no readable YAML (it is nested too deeply)") from None
    except yaml.YAMLError as error:
        raise ConfigError(_syntax(error, text, place, key)) from None


def _syntax(error: yaml.YAMLError, text: str, place: str, key: str | None) -> str:
    """Return the message about a text that is not YAML."""
    mark, reason = getattr(error, "problem_mark", None), str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        reason = ", ".join(filter(None, (error.context, error.problem)))
    elif isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        place += f":{before.count(chr(10)) + 1}" if key is None else ""
    reason = " ".join(reason.split())
    if key is not None:
        return f"{place}: '{text}' is not a YAML value ({reason}); write '{key}=\"...\"' for a text"
    return f"{place}{f':{mark.line + 1}:{mark.column + 1}' if mark else ''}: no readable YAML ({reason})"


def _size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Count the values of a node with every alias expanded; infinity for an alias within its own anchor."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in inner if isinstance(part, yaml.Node))
    return sizes[id(node)]


def _problems(node: yaml.Node, key: str, seen: set[int]) -> Iterator[Problem]:
    """Yield keys that appear twice or are not texts, and ambiguous plain words."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and node.tag == ODD:
        yield node.start_mark, f'{key}: {_advice(node.value, key)}"{node.value}" for a text'
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _problems(item, key, seen)
    elif isinstance(node, yaml.MappingNode):
        keys: dict[str, int] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag not in (TEXT, MERGE):
                shown = f"'{name.value}'" if isinstance(name, yaml.ScalarNode) else "a list or a mapping"
                yield name.start_mark, f"{shown} as a key: a key needs to be a text; put it in quotes"
                continue
            if name.value in keys:
                yield name.start_mark, f"key '{name.value}' appears twice, first in line {keys[name.value]}"
            keys[name.value] = name.start_mark.line + 1
            yield from _problems(value, name.value, seen)


def _advice(text: str, key: str) -> str:
    """Return what a plain word may mean, and what to write instead; the word in quotes ends the sentence."""
    digits = text.replace("_", "")
    is_date = re.match("[0-9]{4}-", text)
    if ":" in text and not is_date:
        return f"{text} is a number of base 60 to YAML 1.1; write {_time(BASE_60.fullmatch(text), key)}, or "
    if BASES.fullmatch(text):
        return f"{text} is not a decimal number; write {int(digits, 0)}, or "
    if DECIMAL.fullmatch(text):
        number = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", digits)
        if math.isfinite(float(number)):
            return f"{text} is not the same number to all readers of YAML; write {number}, or "
    if text in NOTHING:
        return f"{text} may be a text, or nothing; write null for nothing, or "
    if text.lower() in ("yes", "no", "on", "off"):
        truth = "true" if text.lower() in ("yes", "on") else "false"
        return f"{text} is {truth} to YAML 1.1; write {truth}, or "
    return f"{text} is {'a date to YAML 1.1' if is_date else 'not a finite number'}; write "


def _time(match: re.Match[str] | None, key: str) -> str:
    """Return what to write for a time such as 12:00:00, by the unit in the key's name; match: None for other forms."""
    if match is None:
        return "a decimal number"
    first, middle, last = int(match[1]), match[2], float(match[3])
    if "minutes" in key and middle is None:
        return f"{60 * first + math.ceil(last)} for {first} h {last:g} min"
    if "minutes" in key:
        return f"{60 * first + int(middle) + math.ceil(last / 60)} minutes"
    if "seconds" in key:
        return f"{60 * (first if middle is None else 60 * first + int(middle)) + last:g} seconds"
    return "a decimal number"


def _number_lines(node: yaml.Node, location: Location, lines: dict[Location, int]) -> None:
    """Fill in the lines of all keys and items below a node; what is merged in comes before the node's keys."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[(*location, number)] = item.start_mark.line + 1
            _number_lines(item, (*location, number), lines)
    elif isinstance(node, yaml.MappingNode):
        for name, value in sorted(node.value, key=lambda pair: bool(pair[0].tag != MERGE)):
            if name.tag == MERGE:
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    _number_lines(merged, location, lines)
            else:
                lines[(*location, name.value)] = name.start_mark.line + 1
                _number_lines(value, (*location, name.value), lines)
