"""The table of results on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(facts: dict[str, Any]) -> None:
    """Print the arms, the floor and what is missing, from the facts of the report's manifest."""
    table = Table(title="held-out images as reference; lower FD and KID are better", title_justify="left")
    for name in ("arm", "FD", "KID", "judge agrees", "images", "training FLOPs"):
        table.add_column(name, justify="left" if name == "arm" else "right", no_wrap=True)
    for name, arm in (*facts["arms"].items(), ("floor: real images", facts["floor"])):
        flops = f"{arm['train_flops']:.3g}" if "train_flops" in arm else ""
        agreement = f"{arm['agreement']:.1%}"
        table.add_row(Text(name), f"{arm['fd']:.2f}", f"{arm['kid']:.4f}", agreement, f"{arm['images']:,}", flops)
    Console(width=max(Console().width, 90)).print(table)
    # Reports that were made before experts could be missing do not say so.
    if facts.get("remark"):
        print(f"made with {facts['remark']}")
