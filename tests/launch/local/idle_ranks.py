"""Ranks that do nothing but live and die."""

import os
import signal
import time
from pathlib import Path


def run_unit(folder: str, deaf: str = "") -> None:
    """Write the process id, and leave a trace at TERM, or be deaf to it."""
    rank = os.environ["SUBMITIT_LOCAL_GLOBALID"]

    def leave(*_: object) -> None:
        Path(folder, f"left-{rank}").touch()
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else leave)
    Path(folder, f".{rank}").write_text(str(os.getpid()))
    Path(folder, f".{rank}").rename(Path(folder, f"pid-{rank}"))
    time.sleep(60)
