"""Process that has imported torch, and forks the units of this machine, which then need not import it again."""

import importlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.launch.base import PYTHON

SERVER = ("-m", "hpcddm.launch.local.fork_server")
PRELOADED = ("torch", "torch._dynamo", "h5py", "hpcddm.jobs.entry")
"""Modules that most units import, the second to count FLOPs.

None may start a thread or use a GPU: forked processes could not continue it.
"""


class ForkServer:
    """Connection to such a process; it ends with this one, and its units then save and exit.

    Args:
        environment: Variables of all its units, among them those that libraries read when they are imported.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        own, other = socket.socketpair()
        command = [*PYTHON, "-u", *SERVER]
        with other:
            # In a session of its own, which Ctrl-C does not reach.
            self._process = subprocess.Popen(command, env=environment, stdin=other.fileno(), start_new_session=True)
        self._channel = own.makefile("rw")

    def start(self, folder: Path, variables: Mapping[str, str]) -> int:
        """Start the ranks of a unit under a controller.

        Args:
            folder: Existing folder for the ranks' first outputs.
            variables: Further variables of their environment, among them those of submitit's controller.

        Returns:
            Process id of the controller, which leads a session of its own.

        Raises:
            UserError: The server has ended.
        """
        return int(self._ask({"folder": str(folder), "variables": dict(variables)}))

    def is_running(self, controller: int) -> bool:
        """Return True if a controller that this server started still runs; False also once the server has ended."""
        with suppress(UserError):
            return bool(self._ask(controller))
        return False

    def _ask(self, request: Any) -> Any:
        answer = ""
        with suppress(OSError):
            print(json.dumps(request), file=self._channel, flush=True)
            answer = self._channel.readline()
        if not answer:
            raise UserError("the process that starts units has died; see what it said above, and submit again")
        return json.loads(answer)


def serve() -> None:
    """Answer the requests on the standard input, which is a socket, until the launcher closes it or ends."""
    from hpcddm.launch.local.controller import control

    for module in PRELOADED:
        importlib.import_module(module)
    with open(0, closefd=False) as requests:
        for line in requests:
            request = json.loads(line)
            if isinstance(request, int):
                answer: int = _is_running(request)
            else:
                if (answer := os.fork()) == 0:
                    _enter_session(request["variables"])
                    control(Path(request["folder"]))
            os.write(0, f"{json.dumps(answer)}\n".encode())


def _is_running(child: int) -> bool:
    """Return True if a child still runs; the first call after its end reaps it."""
    with suppress(ChildProcessError):
        return os.waitpid(child, os.WNOHANG) == (0, 0)
    return False


def _enter_session(variables: Mapping[str, str]) -> None:
    os.setsid()
    os.environ.update(variables)
    # Replaces the socket: the launcher reads its end when the server ends, not when the last unit does.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


if __name__ == "__main__":
    serve()
