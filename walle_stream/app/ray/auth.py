"""Authentication mode of a Ray cluster, found before Ray is imported.

A cluster checks tokens if its ``ray start`` found one, and a joining process must use the same
mode. With a token where none is checked, Ray cancels every actor. Without a token where one is
checked, nothing answers. The cluster does not announce its mode. A run is on a machine of the
cluster, however, and the environment of that machine's raylet has the mode.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MODE: Final = "RAY_AUTH_MODE"
"""``token`` or ``disabled``; Ray reads the variable when it is imported."""

_TOKENS: Final = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_PROC: Final = Path("/proc")
_RAYLET: Final = b"/raylet"
_GCS: Final = b"--gcs-address="


def adopt_auth_mode(address: str) -> None:
    """Set the mode of the cluster at ``HOST:PORT`` or ``auto`` for this process, unless set."""
    if os.environ.get(MODE):
        return
    port = address.rpartition(":")[2] if ":" in address else ""
    modes = set(_modes_here(port))
    if len(modes) == 1:
        os.environ[MODE] = modes.pop()
    elif _has_token():
        os.environ[MODE] = "token"  # as `ray start` does


def _modes_here(port: str) -> Iterator[str]:
    # modes of the raylets here that belong to the cluster and to this user
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if not arguments[0].endswith(_RAYLET):
                continue
            of = [
                argument.removeprefix(_GCS) for argument in arguments if argument.startswith(_GCS)
            ]
            if port and not any(address.endswith(b":" + port.encode()) for address in of):
                continue
            environ = (folder / "environ").read_bytes().split(b"\0")
            environment = dict(pair.partition(b"=")[::2] for pair in environ)
            yield (environment.get(MODE.encode()) or b"disabled").decode()


def _has_token() -> bool:
    is_kept = (Path.home() / ".ray" / "auth_token").exists()
    return is_kept or any(os.environ.get(name) for name in _TOKENS)
