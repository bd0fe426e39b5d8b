"""The table of results on the terminal."""

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from hpcddm.commands.terminal import needed_columns, table_console

COLUMNS = {
    "fd": ("FD", ".2f"),
    "kid": ("KID", ".4f"),
    "agreement": ("classifier\nagrees", ".1%"),
    "precision": ("preci-\nsion", ".1%"),
    "recall": ("recall", ".1%"),
    "density": ("den-\nsity", ".2f"),
    "coverage": ("cover-\nage", ".1%"),
    "diversity": ("diver-\nsity", ".2f"),
    "images": ("images", ",d"),
    "train_flops": ("training\nFLOPs", ".3g"),
}


def print_table(results: dict[str, Any]) -> None:
    """Print the arms, the floor and what is missing, from the facts of the report's manifest."""
    title = "held-out images as reference; lower FD and KID are better, a diversity of 1 is real"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("arm", no_wrap=True)
    for name, _ in COLUMNS.values():
        table.add_column(name, justify="right", vertical="bottom", no_wrap=True)
    for name, arm in (*results["arms"].items(), ("floor: real images", results["floor"])):
        # Reports that were made before there were so many measures have fewer; the floor has no training.
        cells = [format(arm[key], form) if key in arm else "" for key, (_, form) in COLUMNS.items()]
        table.add_row(Text(name), *cells)
    table_console(needed_columns(table), wraps_lines=True).print(table)
    # Reports that were made before experts could be missing do not say so.
    if results.get("remark"):
        print(f"made with {results['remark']}")
