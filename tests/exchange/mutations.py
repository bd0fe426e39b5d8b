"""Seeded mutations of what another site sends: of its bytes, of its JSON, and of the headers of its tensors."""

import copy
import json
import random
from typing import Any

from tests.exchange.hostile import encode_header, split_header

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**19, 10**20, 0.5, -0.0, 1e-320, 1e300),
    *("", "x", "NaN", "..", "/etc/passwd", "\x1b[2J", "\u212a", "\ud800", "0" * 64, "x" * 5000, "10000000000"),
    *([], {}, [[]], [None], {"": 0}, {"name": "kmeans"}, [0] * 1000),
)
ODD_TEXTS = ("NaN", "Infinity", "1e999", "-0", "1" * 30, '"\\u0000"', "[" * 40 + "]" * 40, '{"a":1,"a":2}')


def mutated(content: bytes, generator: random.Random) -> bytes:
    """Return a file with one or a few mutations of a kind that suits it."""
    kinds = [_bytes]
    if content[:1] in (b"{", b"["):
        kinds += [_json, _json, _json_text]
    elif content[8:9] == b"{":
        kinds += [_header, _header_text]
    change = generator.choice(kinds)
    for _ in range(generator.choice((1, 1, 2, 5))):
        content = change(content, generator)
    return content


def _bytes(content: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(content) + 1)
    end = min(len(content), place + generator.randrange(1, 64))
    other = generator.randrange(len(content) + 1)
    part = content[place:end]
    changes = (
        lambda: (
            content[:place]
            + bytes(byte ^ 1 << generator.randrange(8) for byte in content[place:][:1])
            + content[place + 1 :]
        ),
        lambda: content[:place],
        lambda: content[place:],
        lambda: content + generator.randbytes(generator.randrange(1, 64)),
        lambda: content[:place] + generator.randbytes(end - place) + content[end:],
        lambda: content[:place] + part * 2 + content[end:],
        lambda: content[:place] + content[end:],
        lambda: content[:other] + part + content[other:],
        lambda: content[:place] + bytes(len(part)) + content[end:],
    )
    return generator.choice(changes)()


def _json(content: bytes, generator: random.Random) -> bytes:
    try:
        value = json.loads(content)
        change_value(value, generator)
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return _bytes(content, generator)


def _json_text(content: bytes, generator: random.Random) -> bytes:
    """Put a text that no encoder writes in the place of a value, or write a key twice."""
    try:
        value = json.loads(content)
        holder, key = generator.choice(_places(value) or [(None, None)])
        if holder is None:
            return content
        holder[key] = "\x7f@"
        return json.dumps(value).replace('"\\u007f@"', generator.choice(ODD_TEXTS)).replace('"\x7f@"', "1e999").encode()
    except (ValueError, RecursionError):
        return _bytes(content, generator)


def _header(content: bytes, generator: random.Random) -> bytes:
    header, values = split_header(content)
    return encode_header(_json(header, generator), values)


def _header_text(content: bytes, generator: random.Random) -> bytes:
    header, values = split_header(content)
    return encode_header(_json_text(header, generator), values)


def change_value(value: Any, generator: random.Random) -> None:
    """Change one place in nested values: other value, other type, none, twice, exchanged, renamed, or a copy."""
    places = _places(value)
    if not places:
        return
    (holder, key), (other, place) = generator.choice(places), generator.choice(places)
    kind = generator.randrange(6)
    if kind == 0:
        holder[key] = copy.deepcopy(generator.choice(ODD_VALUES))
    elif kind == 1:
        del holder[key]
    elif kind == 2:
        holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
    elif kind == 3:
        holder[key] = copy.deepcopy(other[place])
    elif kind == 4 and isinstance(holder, dict):
        holder[generator.choice((f"{key}x", key.upper(), key[:-1], "../x", "\u212a", str(place)))] = holder.pop(key)
    elif isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = generator.choice(
            (holder[key] + 1, -holder[key], holder[key] * 10**9, str(holder[key]), holder[key] / 3)
        )
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[f"{key}-2"] = copy.deepcopy(holder[key])


def _places(value: Any) -> list[tuple[Any, Any]]:
    """List mapping and key, or list and position, of everything in nested values."""
    found, level = [], [value]
    while level:
        item = level.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        found += [(item, key) for key in keys]
        level += [item[key] for key in keys]
    return found
