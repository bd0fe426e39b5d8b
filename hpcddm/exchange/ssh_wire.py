"""Strings of the SSH wire format (RFC 4251, section 5): four bytes of length, then the bytes."""

import struct


class Malformed(ValueError):
    """Error for bytes or a text that do not have the form of a key or a signature; the message is the reason."""


def write_strings(*values: bytes) -> bytes:
    """Return values one after the other, each after its length."""
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def read_strings(content: bytes, count: int, allow_more: bool = False) -> list[bytes]:
    """Return the first values of bytes that `write_strings` could have written.

    Args:
        content: The bytes.
        count: Number of values.
        allow_more: False to refuse bytes behind the last value.

    Raises:
        Malformed: The bytes end too early or too late.

    Examples:
        >>> read_strings(write_strings(b"key", b""), 2)
        [b'key', b'']
    """
    values, place = [], 0
    for _ in range(count):
        if place + 4 > len(content):
            raise Malformed("it ends too early")
        (size,) = struct.unpack_from(">I", content, place)
        place += 4 + size
        if place > len(content):
            raise Malformed("it ends too early")
        values.append(content[place - size : place])
    if place < len(content) and not allow_more:
        raise Malformed(f"{len(content) - place} bytes follow its end")
    return values
