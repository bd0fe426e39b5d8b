"""Count lines of code, without docstrings, comments, imports and blank lines: python -m tests.count_code FOLDER ..."""

import ast
import sys
from pathlib import Path


def count_code(text: str) -> int:
    """Return the number of lines of a module's text that are code."""
    others = {number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith("#")}
    others |= {number for number, line in enumerate(text.splitlines(), 1) if not line.strip()}
    for node in ast.walk(ast.parse(text)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            others |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(text.splitlines()) - len(others)


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        lines = sum(count_code(path.read_text()) for path in Path(folder).rglob("*.py"))
        print(f"{folder}: {lines:,} lines of code")
