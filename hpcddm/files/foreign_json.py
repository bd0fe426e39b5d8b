"""Values of a JSON file that another program has written, read by their types."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hpcddm.errors import UserError
from hpcddm.files import checked_reads


class ForeignJson(dict[str, Any]):
    """Content of such a file; values that are only compared may be read as those of any mapping."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path

    @classmethod
    def read(cls, path: Path) -> "ForeignJson":
        """Read a file; raises `Unreadable` also where it holds something else than a mapping."""
        return cls(checked_reads.read_required_json(path, dict[str, Any], follows_links=True), path)

    def take(self, key: str, kind: Any, *otherwise: Any) -> Any:
        """Return a value; raises `UserError` naming file and key for one of another kind, or a missing one.

        Args:
            key: Keys from the outermost on, joined with dots.
            kind: Type of the value, as pydantic has it.
            otherwise: Value in place of a missing one or of null.
        """
        found: Any = self
        for part in key.split("."):
            if not isinstance(found, dict):
                raise self.error(key, f"'{part}' is looked for in {found!r:.60}")
            if (found := found.get(part)) is None:
                break
        if found is None and otherwise:
            return otherwise[0]
        try:
            return _adapter(kind).validate_python(found, strict=True)
        except ValidationError as error:
            first = error.errors()[0]["msg"]
            raise self.error(key, f"is {found!r:.60}; {first[:1].lower()}{first[1:]}") from None

    def error(self, key: str, reason: str) -> UserError:
        """Return the error about the value at a key."""
        return UserError(f"{self.path}: {key} {reason}; correct it, or copy the file again")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
