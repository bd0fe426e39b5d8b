"""Programs that start at once: each is forked from a process that has imported torch and the verbs.

Each is a process of its own, with the environment and the folder that a started program has. The checks of shapes,
which the tests install in their own process, are not in it.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack

PRELOADED = ("torch", "h5py", "hpcddm.cli", "hpcddm.commands.submit", "hpcddm.commands.status", "hpcddm.jobs.entry")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*PRELOADED, __name__])


def run(module: str, *arguments: object, timeout: float, environment: Mapping[str, str]) -> subprocess.CompletedProcess:
    """Run a module as `python -m` does in this folder, and return its exit code and what it wrote."""
    words = [module, *map(str, arguments)]
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.NamedTemporaryFile("r")) for _ in range(2)]
        process = CONTEXT.Process(
            target=_run, args=(words, dict(environment), os.getcwd(), [file.name for file in files])
        )
        process.start()
        process.join(timeout)
        said = [file.read() for file in files]
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout, *said)
    return subprocess.CompletedProcess(words, process.exitcode, *said)


def _run(words: list[str], environment: dict[str, str], folder: str, files: list[str]) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    # What was imported before the fork is imported, but a module that is run is run anew.
    sys.modules.pop(words[0], None)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
