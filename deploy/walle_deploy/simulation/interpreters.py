"""Interpreters on this machine that can run simulations."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import walle_deploy
import walle_stream
from walle_stream.vm.package.reader import CURRENT_TAG

_PROBE: Final = (
    "import sys, walle_deploy.simulation.child; print(sys.implementation.cache_tag, end='')"
)
_TAG: Final = re.compile(r"cpython-(\d)(\d{1,2})")


def command_for(tag: str) -> tuple[str, dict[str, str]] | str:
    """Return the interpreter for a tag with its environment, or the reason if none; may block.

    A tag is such as ``cpython-314``; an empty one means this interpreter.
    """
    if tag in {"", CURRENT_TAG}:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return sys.executable, _environment(path)
    return _find_interpreter(tag)


@cache
def _find_interpreter(tag: str) -> tuple[str, dict[str, str]] | str:
    match = _TAG.fullmatch(tag)
    name = f"python{match[1]}.{match[2]}" if match else ""
    executable = shutil.which(name) if name else None
    if executable is None:
        return f"there is no {name or 'interpreter ' + tag} on this machine"
    roots = {str(Path(*package.__path__).parent) for package in (walle_stream, walle_deploy)}
    environment = _environment(os.pathsep.join(sorted(roots)))
    try:
        probe = subprocess.run(  # noqa: S603 - an interpreter found on PATH
            [executable, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20.0,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not answer: {error}"
    if probe.returncode or probe.stdout != tag:
        last = probe.stderr.strip().splitlines()[-1:] or [f"it says that it is {probe.stdout!r}"]
        return f"{executable} cannot simulate: {last[0]}"
    return executable, environment


def _environment(path: str) -> dict[str, str]:
    # makes the order of sets of strings the same every time
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
