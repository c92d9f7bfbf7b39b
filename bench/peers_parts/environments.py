"""Virtual environments of the peers, made by the bench in ``.venv-peers``.

Peers are never installed beside walle: what they pin would change it. A peer whose
wheel needs an older Python gets one where this machine has it.
"""

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from peers_parts.contenders import Contender

_MSGSPEC: Final = f"msgspec=={version('msgspec')}"
_LIST: Final = "import importlib.metadata as m, platform, sys; print(platform.python_version());"


class Environment(NamedTuple):
    """Where a peer runs."""

    python: Path
    python_version: str
    version: str
    """Of the peer's package; empty without one."""


class Missing(NamedTuple):
    """Why a peer does not take part."""

    reason: str


def find_environment(
    contender: Contender, folder: Path, *, may_install: bool
) -> Environment | Missing:
    """Find or make the environment of a peer; blocks on the package index.

    Args:
        contender: The peer; it has a requirement.
        folder: Where environments are.
        may_install: Whether to make a missing environment.

    Returns:
        The environment, or why there is none.
    """
    requirement = contender.requirement
    name = requirement.partition("==")[0]
    kind = "-kafka" if contender.also else ""
    homes = {minor: folder / f"{name}{kind}-{minor}" for minor in contender.pythons}
    # what was made before, on whichever Python, is looked for before anything is tried again
    for home in homes.values():
        found = _look_into(home / "bin" / "python", requirement)
        if found is not None:
            return found
    if not may_install:
        return Missing(f"{requirement} is not installed in {folder.name}")
    tried = []
    for minor, home in homes.items():
        problem = _make(home, minor, requirement, contender.also)
        found = _look_into(home / "bin" / "python", requirement)
        if found is not None:
            return found
        tried.append(f"Python {minor}: {problem or 'installed, but not found'}")
    return Missing(f"{requirement} cannot be installed ({'; '.join(tried)})")


def _look_into(python: Path, requirement: str) -> Environment | None:
    if not python.exists():
        return None
    name, _, wanted = requirement.partition("==")
    done = _run(str(python), "-c", f"{_LIST} print(m.version({name!r}), m.version('msgspec'))")
    lines = done.stdout.split()
    if done.returncode or lines[1] != wanted:
        return None
    return Environment(python, lines[0], wanted)


def _make(home: Path, minor: str, requirement: str, also: tuple[str, ...]) -> str:
    """Make an environment; returns what was in the way, or nothing."""
    python = _find_python(minor)
    if python is None:
        return "no such Python here"
    shutil.rmtree(home, ignore_errors=True)
    done = _run(python, "-m", "venv", str(home))
    if done.returncode == 0:
        # a peer that has to be compiled is none that users would have
        name = requirement.partition("==")[0]
        command = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command += ["--only-binary", name, requirement, _MSGSPEC, *also]
        done = _run(str(home / "bin" / "python"), *command)
        if done.returncode == 0:
            return ""
    shutil.rmtree(home, ignore_errors=True)
    if "No matching distribution" in done.stderr:
        return "no wheel"
    lines = done.stderr.strip().splitlines() or ["no message"]
    return lines[-1][:200]


def _find_python(minor: str) -> str | None:
    asked = (
        "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys._base_executable)"
    )
    for name in _candidates(minor):
        done = _run(name, "-c", asked)
        found, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == minor:
            return path
    return None


def _candidates(minor: str) -> list[str]:
    names = [f"python{minor}"]
    if shutil.which("pyenv"):
        # a shim of pyenv works for the version that is chosen alone
        versions = _run("pyenv", "versions", "--bare").stdout.split()
        for each in sorted(versions, reverse=True):
            if each.startswith(f"{minor}."):
                prefix = _run("pyenv", "prefix", each).stdout.strip()
                names.append(f"{prefix}/bin/python")
    return [name for name in names if shutil.which(name)]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
