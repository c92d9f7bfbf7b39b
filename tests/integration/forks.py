"""Runs commands in forks of one process that has imported them: imports are half of a short command.

A fork is a process of its own: it may be killed, replace itself by `exec`, or end by `os._exit`.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

IMPORTED = (
    "walle_connectors.embedded",
    "walle_connectors.events",
    "walle_connectors.files",
    "walle_connectors.simulator",
    "walle_stream.cli.definitions",
    "walle_stream.cli.run",
    "walle_stream.spec.schema",
)


class Forks:
    """The process that forks, and its client; one command at a time."""

    def __init__(self):
        # scripts must give the same in every run: a command would start itself again with this
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def run(self, folder, module, arguments, environ, cwd, given, timeout):
        """Run a module as `python -m` does; its input and output are files of the folder.

        Returns:
            What `subprocess.run` returns.

        Raises:
            subprocess.TimeoutExpired: It took longer; it was killed.
        """
        files = [folder / name for name in ("in", "out", "err")]
        files[0].write_text(given)
        environ = {**environ, "PYTHONHASHSEED": "0"}
        request = [module, arguments, environ, str(Path(cwd).absolute()), [*map(str, files)]]
        with self._lock:
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            killer = threading.Timer(timeout, os.kill, (self._answer(), signal.SIGKILL))
            killer.start()
            code = self._answer()
            is_over = killer.finished.is_set()
            killer.cancel()
            killer.join()
        if is_over:
            raise subprocess.TimeoutExpired([module, *arguments], timeout)
        texts = [file.read_bytes().decode() for file in files[1:]]
        return subprocess.CompletedProcess([module, *arguments], code, *texts)

    def _answer(self):
        return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve():
    """Fork for each request; return what the fork has to run."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        if not (child := os.fork()):
            answers.close()
            return json.loads(line)
        print(child, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers)
    return None


def become(module, arguments, environ, cwd, files):
    """Run a module in this fork as if Python had been started for it."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for number, file in enumerate(files):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(file, flags, 0o600), number)
    gc.unfreeze()
    importlib.reload(importlib.import_module("walle_stream.faults"))  # it reads the environment
    sys.argv[1:] = arguments
    sys.orig_argv[:] = [sys.executable, "-m", module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__" and (request := serve()):
    become(*request)
